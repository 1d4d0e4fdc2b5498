#include "ring/hold.h"

#include <algorithm>

namespace pyft::ring {

bool is_hold_wanted(const ControlPage& page, uint64_t step) {
  return step && page.hold_step.load(std::memory_order_acquire) == step;
}

bool begin_hold(ControlPage& page, uint64_t step, uint64_t cut, uint64_t position) {
  if (!is_hold_wanted(page, step) || now_ns() >= page.hold_until_ns.load()) return false;
  page.held_cut.store(cut, std::memory_order_relaxed);
  page.held_position.store(position, std::memory_order_relaxed);
  page.held_ns.store(now_ns(), std::memory_order_relaxed);
  page.held_step.store(step, std::memory_order_release);
  return true;
}

WaitStatus end_hold(ControlPage& page, const Liveness& liveness) {
  const uint64_t step = page.held_step.load(std::memory_order_relaxed);
  WaitStatus status = WaitStatus::kOk;
  while (status == WaitStatus::kOk) {
    const uint32_t seen = page.hold_futex.load(std::memory_order_seq_cst);
    const uint64_t now = now_ns(), until = page.hold_until_ns.load(std::memory_order_acquire);
    if (!is_hold_wanted(page, step) || now >= until) break;
    futex_wait(page.hold_futex, seen, std::min(kWaitSliceNs, until - now));
    status = liveness.check();
  }
  page.went_on_ns.store(now_ns(), std::memory_order_relaxed);
  page.held_step.store(0, std::memory_order_release);
  return status;
}

}  // namespace pyft::ring
