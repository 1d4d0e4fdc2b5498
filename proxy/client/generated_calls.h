// What the generated stubs of routes async and sync call.
#ifndef PYFT_CLIENT_GENERATED_CALLS_H_
#define PYFT_CLIENT_GENERATED_CALLS_H_

#include <cstring>

#include "api/commands.h"
#include "client/blas/blas.h"
#include "client/device/stream.h"

namespace pyft::client {

template <class Result>
Result as_result(cudaError_t error) {
  if constexpr (std::is_same_v<Result, cudaError_t>) return done(error);
  return static_cast<Result>(error);
}

inline void store(uint64_t, void*) {}

// Sends and waits; reply values go to the `out` parameters in order.
template <class Result, class... Out>
Result simple_call(uint16_t call, const void* body, size_t bytes, Out*... out) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return as_result<Result>(error);
  Reply reply;
  error = device->call(call, {static_cast<const std::byte*>(body), bytes}, &reply);
  if (error != cudaSuccess) return as_result<Result>(error);
  [[maybe_unused]] size_t index = 0;
  if (reply.code == 0)
    ((out ? std::memcpy(out, &reply.values[index++], sizeof *out) : nullptr), ...);
  return as_result<Result>(static_cast<cudaError_t>(reply.code));
}

template <class Result>
Result simple_send(uint16_t call, uint64_t stream, const void* body, size_t bytes) {
  cudaError_t error;
  Stream* found = stream_of(reinterpret_cast<cudaStream_t>(stream), &error);
  if (!found) return as_result<Result>(error);
  error = found->device.send(call, {static_cast<const std::byte*>(body), bytes});
  found->device.touch(*found);
  return as_result<Result>(error);
}

}  // namespace pyft::client

#endif  // PYFT_CLIENT_GENERATED_CALLS_H_
