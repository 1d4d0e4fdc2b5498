// Which lanes run next: divergence, re-convergence and barriers.
#include <cstdio>

#include "decode/instr.h"
#include "exec/kernel_name.h"
#include "exec/patience.h"
#include "exec/warp.h"

namespace softgpu::exec {

// Backward branches a group may take before it lets others run: an intra-warp spin lock needs
// this to make progress, and 20,000 keeps the cost invisible.
inline constexpr int32_t kBranchBudget = 20000;

void push_group(Warp* warp, uint32_t mask, const Inst* pc) {
  for (uint32_t i = 0; i < warp->runnable_count; ++i) {
    if (warp->runnable[i].pc == pc) {
      warp->runnable[i].mask |= mask;
      return;
    }
  }
  warp->runnable[warp->runnable_count++] = {mask, pc};
}

// Lanes of `among` whose entry is `value`.
static uint32_t lanes_with(const Row& entries, uint32_t value, uint32_t among) {
  return among & test([&](int h) { return load(&entries, h) == value; });
}

// Lanes at one barrier register with one set of participants wait together. Others may wait there
// in an inner call of the same function, which has saved the register and uses it for its own
// lanes.
static uint32_t ready_at_bsync(const Warp* warp) {
  uint32_t waiting = warp->parked[static_cast<int>(Parked::kBsync)];
  uint32_t ready = 0;
  while (waiting) {
    const int first = first_lane(waiting);
    const uint32_t barrier = warp->parked_arg.lane[first];
    const Row& participants = warp->rows[kBarrierRows + barrier];
    const uint32_t wanted = participants.lane[first] & warp->live;
    const uint32_t agree =
        test([&](int h) { return (load(&participants, h) & warp->live) == wanted; });
    const uint32_t here = lanes_with(warp->parked_arg, barrier, waiting) & agree;
    if (!(wanted & ~here)) ready |= here;
    waiting &= ~here;
  }
  return ready;
}

static uint32_t ready_at_warpsync(const Warp* warp) {
  const uint32_t waiting = warp->parked[static_cast<int>(Parked::kWarpsync)];
  uint32_t ready = 0;
  for_lanes(waiting, [&](int lane) {
    if (!(warp->parked_arg.lane[lane] & warp->live & ~waiting)) ready |= 1u << lane;
  });
  return ready;
}

void unpark(Warp* warp, uint32_t lanes, Parked why) {
  warp->parked[static_cast<int>(why)] &= ~lanes;
  const Inst* code = warp->block->state->program->code.data();
  while (lanes) {
    const uint32_t at = warp->parked_at.lane[first_lane(lanes)];
    const uint32_t together = lanes_with(warp->parked_at, at, lanes);
    push_group(warp, together, code + at);
    lanes &= ~together;
  }
}

const Inst* next_group(Warp* warp) {
  if (warp->parked[static_cast<int>(Parked::kBsync)]) {
    unpark(warp, ready_at_bsync(warp), Parked::kBsync);
  }
  if (warp->parked[static_cast<int>(Parked::kWarpsync)]) {
    unpark(warp, ready_at_warpsync(warp), Parked::kWarpsync);
  }
  if (!warp->runnable_count) {
    warp->active = 0;
    return nullptr;
  }
  const Group group = warp->runnable[0];
  --warp->runnable_count;
  for (uint32_t i = 0; i < warp->runnable_count; ++i) warp->runnable[i] = warp->runnable[i + 1];
  warp->active = group.mask;
  const bool waits = warp->block->yields >= kPatience;
  warp->budget = waits ? kBranchBudget / 40 : kBranchBudget;
  return group.pc;
}

void park(const Inst* in, Warp* warp, uint32_t exec, Parked why, uint32_t arg) {
  warp->parked[static_cast<int>(why)] |= exec;
  const auto at = static_cast<uint32_t>(in + 1 - warp->block->state->program->code.data());
  write(&warp->parked_at, exec, [&](int) { return splat(at); });
  write(&warp->parked_arg, exec, [&](int) { return splat(arg); });
}

const Inst* leave(const Inst* in, Warp* warp, uint32_t exec) {
  warp->active &= ~exec;
  return warp->active ? in + 1 : next_group(warp);
}

const Inst* conflict(Warp* warp) {
  warp->block->conflict = true;
  return nullptr;
}

const Inst* yield(Warp* warp, const Inst* next) {
  ++warp->block->yields;
  push_group(warp, warp->active, next);
  warp->active = 0;
  return nullptr;
}

// Lanes at a BSYNC may hold the lock for which their absent partners spin. After so many yields
// they go on alone, as lanes of the hardware do; what they leave waits no longer for them. The
// number is far above what loops do that end by themselves.
inline constexpr uint32_t kSpinYields = 20000;

void spins(Warp* warp) {
  const uint32_t waiting = warp->parked[static_cast<int>(Parked::kBsync)];
  warp->patience = waiting ? warp->patience + 1 : 0;
  if (warp->patience < kSpinYields) return;
  warp->patience = 0;
  for_lanes(waiting, [&](int lane) {
    Row& participants = warp->rows[kBarrierRows + warp->parked_arg.lane[lane]];
    for (uint32_t& mask : participants.lane) mask &= ~(1u << lane);
  });
  unpark(warp, waiting, Parked::kBsync);
}

const Inst* branch(const Inst* in, Warp* warp, uint32_t taken, const Inst* target) {
  if (taken == warp->active) {
    if (target <= in && --warp->budget <= 0) return yield(warp, target);
    return target;
  }
  push_group(warp, taken, target);
  warp->active &= ~taken;
  return in + 1;
}

void try_release_barrier(Block* block, uint32_t id) {
  Barrier& barrier = block->barriers[id];
  const uint32_t expected = barrier.expected ? barrier.expected : block->live_threads;
  if (!barrier.arrived || barrier.arrived < expected) return;
  uint32_t result = barrier.count_true;
  if (barrier.op == 1) result = barrier.count_true == barrier.arrived;
  if (barrier.op == 2) result = barrier.count_true != 0;
  barrier = {};
  for (Warp& warp : block->warps) {
    const uint32_t waiting = warp.parked[static_cast<int>(Parked::kBar)];
    const uint32_t lanes = waiting ? lanes_with(warp.parked_arg, id, waiting) : 0;
    if (!lanes) continue;
    warp.bar_result = result;
    unpark(&warp, lanes, Parked::kBar);
  }
}

const Inst* exit_lanes(const Inst* in, Warp* warp, uint32_t exec) {
  Block* block = warp->block;
  warp->live &= ~exec;
  block->live_threads -= static_cast<uint32_t>(std::popcount(exec));
  for (uint32_t id = 0; id < kNamedBarriers; ++id) {
    if (block->barriers[id].arrived) try_release_barrier(block, id);
  }
  return leave(in, warp, exec);
}

const Inst* fault(const Inst* in, Warp* warp, FaultKind kind, int lane, const std::string& what) {
  Block* block = warp->block;
  if (block->fault) return nullptr;
  const Row* tid = warp->rows + kTidRows;
  const auto pc = static_cast<size_t>(in - block->state->program->code.data()) * kInstrBytes;
  char where[256];
  std::snprintf(where, sizeof where, " in block [%u,%u,%u], thread [%u,%u,%u], pc [0x%zx]",
                block->id.x, block->id.y, block->id.z, tid[0].lane[lane], tid[1].lane[lane],
                tid[2].lane[lane], pc);
  block->fault.kind = kind;
  block->fault.message =
      "kernel [" + readable_kernel_name(block->state->launch->kernel->name) + "]: " + what + where;
  return nullptr;
}

}  // namespace softgpu::exec
