#include "backend/inject.h"

#include <dlfcn.h>

#include "softgpu.h"

namespace pyft::backend {

std::string inject(const char* library, const std::string& faults) {
  void* const handle = library ? dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : nullptr;
  const auto call =
      handle ? reinterpret_cast<decltype(&softgpu_inject)>(dlsym(handle, "softgpu_inject"))
             : nullptr;
  if (!call) return "the backend has no faults on request";
  char problem[256] = {};
  return call(faults.c_str(), problem, sizeof problem) ? problem : "";
}

}  // namespace pyft::backend
