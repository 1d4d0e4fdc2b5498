#include "api/support.h"

#include <dlfcn.h>

#include <string>

namespace softgpu::api {

cudaError_t& last_error() {
  thread_local cudaError_t last = cudaSuccess;
  return last;
}

cudaError_t usable() {
  if (forked()) return cudaErrorInitializationError;
  return device_count() ? cudaSuccess : cudaErrorNoDevice;
}

void* exported_symbol(const char* name) {
  static void* self = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&exported_symbol), &info);
    return dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  }();
  const std::string base = name;
  if (!self || !base.starts_with("cu")) return nullptr;
  for (const char* version : {"_v4", "_v3", "_v2", ""}) {
    if (void* found = dlsym(self, (base + version).c_str())) return found;
  }
  return nullptr;
}

}  // namespace softgpu::api
