#include "checkpoint/snapshot/quiescence.h"

#include <unistd.h>

#include <algorithm>

#include "ring/wait.h"

namespace pyft::checkpoint {

// Nothing but a hint depends on it. Where it is waited for in vain, because another rank needs what
// comes behind the gate, it is tried more and more seldom. A stream that captures is not looked at.
bool Quiescence::rests_at_gate() {
  if (device_.capturing()) return false;
  if (restless_gates_) return --restless_gates_, false;
  const bool rests = drain(0).problem.empty();
  if (!rests) restless_gates_ = restless_pause_ *= 2;
  return rests;
}

// A device that gets on with what it was given long before has all the time it needs; what cannot
// be waited for is an operation that needs another rank, which may need what comes behind this cut.
// A device may show nothing of long work of its own: whether such an operation waits tells.
Quiescence::Drained Quiescence::drain(uint64_t more_ns) {
  const uint64_t still_ns = options_.drain_timeout_ns + more_ns;
  const uint64_t last = ring::now_ns() + options_.drain_limit_ns;
  uint64_t deadline = ring::now_ns() + still_ns, seen = device_.progress();
  useconds_t pause = 10;
  for (;;) {
    bool moved = false;
    while (device_.work() && ring::now_ns() < last) moved = true;
    const int code = device_.idle();
    if (code == 0) return {};
    if (code != kNotReady)
      return {"the device fails with code [" + std::to_string(code) + "] before the cut"};
    const uint64_t now = ring::now_ns(), progress = device_.progress();
    if (moved || progress != seen || !device_.waits()) deadline = now + still_ns;
    seen = progress;
    if (now > last)
      return {"after [" + std::to_string(options_.drain_limit_ns / 1'000'000'000) +
              "] s the device still works on what it was given before"};
    if (now > deadline)
      return {"for [" + std::to_string(still_ns / 1'000'000) +
                  "] ms a stream has stood still before its end",
              true};
    usleep(pause);
    pause = std::min<useconds_t>(pause * 2, 200);
  }
}

}  // namespace pyft::checkpoint
