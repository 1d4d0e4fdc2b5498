// What the generated handlers of cuDNN, cuFFT, cuRAND, cuSOLVER and cuSPARSE share: their objects
// by number, and arrays of the program's memory that travel with a command.
#ifndef PYFT_SERVER_LIBRARY_H_
#define PYFT_SERVER_LIBRARY_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "api/object_types.h"
#include "server/handlers/handlers.h"

namespace pyft::server {

// False: no living object of that type has the number.
bool find_object(Session& session, uint64_t id, ObjectType type, void** out);
// False: the number is of another type or in use.
bool keep_object(Session& session, uint64_t id, ObjectType type, void* object);
void forget_object(Session& session, uint64_t id);

// A buffer for functions that want host memory to work in; the same for all calls, only ever
// larger. Functions before may still use a smaller one, so none is freed.
void* host_scratch(Session& session, uint64_t bytes);

inline uint64_t array_bytes(int64_t count, int64_t element) {
  return count < 0 ? UINT64_MAX : static_cast<uint64_t>(count) * static_cast<uint64_t>(element);
}

inline double float_of(uint64_t bits) {
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// cuFFT's plans are numbers and not pointers.
inline int as_plan(const void* object) {
  return static_cast<int>(reinterpret_cast<intptr_t>(object));
}

inline void* scalar_or_address(const Scalar& scalar, uint32_t device_scalars) {
  if (device_scalars) return reinterpret_cast<void*>(scalar.low);
  return const_cast<Scalar*>(&scalar);
}

// Host arrays of one command: those the program passes follow its struct, in order, each padded to
// 8 bytes; those it gets are collected for the answer. `given` is what the client says, `needed`
// what the function will read or write.
class HostArrays {
 public:
  explicit HostArrays(Body tail) : tail_(tail) {}
  void* in(uint32_t given, uint64_t needed);
  void* out(uint32_t given, uint64_t needed);
  bool ok() const { return ok_; }
  Body results() const { return {results_, used_}; }

 private:
  Body tail_;
  bool ok_ = true;
  std::vector<std::vector<std::byte>> copies_;  // aligned, whatever the ring's alignment is
  alignas(16) std::byte results_[ring::kReplyInlineBytes] = {};
  size_t used_ = 0;
};

Status bad_arrays(const char* call);
Status missing_object_call(Session& session, const EntryHeader& header, const char* name);
Status finish_object_call(Session& session, const EntryHeader& header, const char* name, int code,
                          std::span<const uint64_t> values, Body results = {});

}  // namespace pyft::server

#endif  // PYFT_SERVER_LIBRARY_H_
