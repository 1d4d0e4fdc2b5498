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

void* exported_symbol(const char* name, uint64_t flags) {
  static void* self = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&exported_symbol), &info);
    return dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  }();
  const std::string base = name;
  if (!self || !base.starts_with("cu")) return nullptr;
  const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  for (const std::string version : {"_v4", "_v3", "_v2", ""}) {
    for (const std::string variant : {"_ptsz", "_ptds", ""}) {
      if (!per_thread && !variant.empty()) continue;
      if (void* found = dlsym(self, (base + version + variant).c_str())) return found;
    }
  }
  return nullptr;
}

}  // namespace softgpu::api
