#include "api/support.h"

#include <dlfcn.h>

#include "driver_versions.h"

namespace softgpu::api {

cudaError_t& last_error() {
  thread_local cudaError_t last = cudaSuccess;
  return last;
}

cudaError_t usable() {
  if (forked()) return cudaErrorInitializationError;
  return device_count() ? cudaSuccess : cudaErrorNoDevice;
}

DriverFunction driver_function_of(const char* name, unsigned version, uint64_t flags) {
  static void* self = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&driver_function_of), &info);
    return dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  }();
  const auto exported = [](const char* symbol) { return self ? dlsym(self, symbol) : nullptr; };
  const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const DriverAnswer answer = driver_function(name, version, per_thread, exported);
  return {answer.function, answer.too_old};
}

}  // namespace softgpu::api
