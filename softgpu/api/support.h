// What every exported function does around its work: say no in a forked child or without devices,
// report a dead device, remember the thread's last error.
#ifndef SOFTGPU_API_SUPPORT_H_
#define SOFTGPU_API_SUPPORT_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <memory>

#include "device/device.h"
#include "module/module.h"
#include "profiling/activities.h"
#include "work/handles.h"

// Marks an exported vendor symbol. tools/gen/gen_softgpu_stubs.py finds the implemented functions
// by this word, so it stands at the start of the line and the symbol's name on the same line.
#define SOFTGPU_API extern "C" __attribute__((visibility("default")))

namespace softgpu::api {

// Of the calling thread; a fault of its device overrides it.
cudaError_t& last_error();

// Remembers a failure for cudaGetLastError and passes it on.
inline cudaError_t record(cudaError_t status) {
  if (status != cudaSuccess) last_error() = status;
  return status;
}

// cudaSuccess if this process can use devices at all.
cudaError_t usable();

// The calling thread's device, made current if it was not.
inline Device& current_device() {
  ThreadDevice& current = thread_device();
  current.bound = true;
  Device& d = device(current.index);
  if (!d.active()) d.activate();
  return d;
}

// Runs a call that needs a live current device; `body(Device&)` returns a cudaError_t.
template <class Body>
cudaError_t with_device(Body body) {
  if (const cudaError_t bad = usable(); bad != cudaSuccess) return bad;
  Device& d = current_device();
  if (const cudaError_t dead = d.sticky(); dead != cudaSuccess) return dead;
  return body(d);
}

// The same for a call on a stream; `body(const std::shared_ptr<Stream>&)`.
template <class Body>
cudaError_t with_stream(const void* handle, Body body) {
  if (const cudaError_t bad = usable(); bad != cudaSuccess) return bad;
  current_device();
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  const cudaError_t dead = device(stream->device).sticky();
  if (dead != cudaSuccess) return dead;
  return body(stream);
}

// The driver's codes are the runtime's for everything that means the same in both.
inline CUresult driver_result(cudaError_t status) {
  switch (status) {
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidPitchValue:
    case cudaErrorInvalidMemcpyDirection:
      return CUDA_ERROR_INVALID_VALUE;
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidSymbol:
      return CUDA_ERROR_NOT_FOUND;
    default:
      return static_cast<CUresult>(status);
  }
}

template <class Body>
CUresult driver_call(Body body) {
  return driver_result(with_device(body));
}

inline uint64_t number(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}
inline void* pointer(uint64_t number) {
  return reinterpret_cast<void*>(number);
}

// One answer for cudaDeviceGetAttribute and cuDeviceGetAttribute: their numbers are the same.
cudaError_t device_attribute(int attribute, int device, int* value);

// The name of a code ("cudaErrorInvalidValue") and a sentence; nullptr if it is no code.
const char* error_name(int code);
const char* error_text(int code);

// The registered function behind a host address, or the handle itself if it already is one.
Function* registered_function(const void* address);

// What the driver answers for a name, `flags` being those of cuGetProcAddress: the newest function
// of this library that is not newer than that version of CUDA.
struct DriverFunction {
  void* address;  // nullptr: none
  bool too_old;   // there is one, but not in that version
};
DriverFunction driver_function_of(const char* name, unsigned version, uint64_t flags);

}  // namespace softgpu::api

#endif  // SOFTGPU_API_SUPPORT_H_
