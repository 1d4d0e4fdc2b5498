#include "backend/inject.h"

#include <dlfcn.h>

#include "backend/twice.h"
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

namespace {

static_assert(static_cast<int>(TwiceEnd::kFailed) == SOFTGPU_TWICE_FAILED &&
              static_cast<int>(TwiceEnd::kRoom) == SOFTGPU_TWICE_ROOM);

decltype(&softgpu_execute_twice) soft_twice = nullptr;

TwiceHears& hears_of(void* context) {
  return *static_cast<TwiceHears*>(context);
}

void ask_soft(TwiceHears* hears, unsigned places, uint64_t most_bytes) {
  if (!hears) return soft_twice(nullptr);
  softgpu_twice twice{places, most_bytes, hears, nullptr, nullptr};
  twice.wrote = [](void* context, int again, unsigned long long address, unsigned long long bytes) {
    hears_of(context).wrote(again != 0, address, bytes);
  };
  twice.ended = [](void* context, softgpu_twice_end end, const char* kernel,
                   unsigned long long first_ns, unsigned long long second_ns) {
    hears_of(context).ended(static_cast<TwiceEnd>(end), kernel, first_ns, second_ns);
  };
  soft_twice(&twice);
}

}  // namespace

ExecuteTwice execute_twice(const char* library) {
  soft_twice = found<decltype(softgpu_execute_twice)>(library, "softgpu_execute_twice");
  return soft_twice ? ask_soft : nullptr;
}

}  // namespace pyft::backend
