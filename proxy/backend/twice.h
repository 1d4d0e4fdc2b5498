// Launches of kernels that a device executes twice on the same memory, and what both have written.
// The soft GPU knows it by executing them; another device would need a table of kernels.
#ifndef PYFT_BACKEND_TWICE_H_
#define PYFT_BACKEND_TWICE_H_

#include <cstdint>

namespace pyft::backend {

// As softgpu_again.h has them. All but the first two: it was executed once.
enum class TwiceEnd : uint8_t {
  kDone,
  kSecondFailed,
  kOrder,
  kHost,
  kCalls,
  kClock,
  kWaits,
  kRoom,
  kFailed,
};

// Called by the thread that executes the launch.
struct TwiceHears {
  virtual ~TwiceHears() = default;
  // All that one execution has written, by address; the memory has it during the call.
  virtual void wrote(bool again, uint64_t address, uint64_t bytes) = 0;
  virtual void ended(TwiceEnd end, const char* kernel, uint64_t first_ns, uint64_t second_ns) = 0;
};

// What the thread puts on streams from now on is executed twice; null: once. The second execution
// starts so many SMs further on. `most_bytes`: of memory of the host for each launch.
using ExecuteTwice = void (*)(TwiceHears* hears, unsigned places, uint64_t most_bytes);
// nullptr: the backend has no such function.
ExecuteTwice execute_twice(const char* library);

}  // namespace pyft::backend

#endif  // PYFT_BACKEND_TWICE_H_
