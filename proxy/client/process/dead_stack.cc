#include "client/process/dead_stack.h"

#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pyft/settings.h"

namespace pyft::client {

const bool clears_stack = settings::clear_stack();

namespace {

// Deeper than any call of this library, and than most of what programs call between two of them:
// with 4 KiB times stayed in parameters of PyTorch's kernels, with 16 KiB none did.
constexpr size_t kCleared = 16 << 10;
constexpr size_t kRoom = 64 << 10;  // stays free below it, for handlers of signals

// Of this thread's own stack; nothing if they are not known.
struct Bounds {
  uintptr_t low = 0, high = 0;
};

Bounds find_bounds() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes)) return {};
  void* low = nullptr;
  size_t bytes = 0;
  const bool known = pthread_attr_getstack(&attributes, &low, &bytes) == 0;
  pthread_attr_destroy(&attributes);
  const auto start = reinterpret_cast<uintptr_t>(low);
  return known ? Bounds{start, start + bytes} : Bounds{};
}

}  // namespace

__attribute__((noinline)) void clear_dead_stack() {
  thread_local const Bounds bounds = find_bounds();
  std::byte dead[kCleared];
  const auto here = reinterpret_cast<uintptr_t>(&dead);
  if (here >= bounds.high || here < bounds.low + kRoom) return;
  std::memset(dead, 0, sizeof dead);
  asm volatile("" : : "r"(dead) : "memory");  // else it is left out: no thread reads it
}

}  // namespace pyft::client
