#include "backend/inject.h"

#include <dlfcn.h>

#include "softgpu.h"
#include "softgpu_again.h"

namespace pyft::backend {

namespace {

template <class Call>
Call* found(const char* library, const char* name) {
  void* const handle = library ? dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : nullptr;
  return handle ? reinterpret_cast<Call*>(dlsym(handle, name)) : nullptr;
}

}  // namespace

void note_faults(const char* library, unsigned char* notes) {
  const auto call = found<decltype(softgpu_note_faults)>(library, "softgpu_note_faults");
  if (call) call(notes);
}

std::string missed_faults(const char* library) {
  char text[4096] = {};
  const auto call = found<decltype(softgpu_missed_faults)>(library, "softgpu_missed_faults");
  if (call) call(text, sizeof text);
  return text;
}

std::string inject(const char* library, const std::string& faults) {
  const auto call = found<decltype(softgpu_inject)>(library, "softgpu_inject");
  if (!call) return "the backend has no faults on request";
  char problem[256] = {};
  return call(faults.c_str(), problem, sizeof problem) ? problem : "";
}

ExecuteAgain execute_again(const char* library) {
  return found<decltype(softgpu_execute_again)>(library, "softgpu_execute_again");
}

}  // namespace pyft::backend
