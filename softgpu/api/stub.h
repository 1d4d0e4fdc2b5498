// Functions that exist so that programs link, and that say so when they are called.
#ifndef SOFTGPU_API_STUB_H_
#define SOFTGPU_API_STUB_H_

#include <atomic>

namespace softgpu::api {

// Names the function on stderr, once per function.
void report_stub(const char* name, std::atomic<bool>& said);

}  // namespace softgpu::api

// The names of all stubs, for softgpu_is_stub().
#define SOFTGPU_STUB_NAME(name) \
  __attribute__((section("softgpu_stubs"), used)) static const char* const stub_##name = #name;

// Declared without arguments: a C function may be given any and ignore them.
#define SOFTGPU_STUB(name, code)                                  \
  SOFTGPU_STUB_NAME(name)                                         \
  extern "C" __attribute__((visibility("default"))) long name() { \
    static std::atomic<bool> said{false};                         \
    softgpu::api::report_stub(#name, said);                       \
    return code;                                                  \
  }
#define SOFTGPU_TEXT_STUB(name)                                          \
  SOFTGPU_STUB_NAME(name)                                                \
  extern "C" __attribute__((visibility("default"))) const char* name() { \
    return "not supported by the soft GPU";                              \
  }

#endif  // SOFTGPU_API_STUB_H_
