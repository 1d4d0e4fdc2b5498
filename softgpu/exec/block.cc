// A resident block: its storage, its warps in turn.
#include <cstring>

#include "core/settings.h"
#include "decode/instr.h"
#include "exec/upset.h"
#include "exec/warp.h"

namespace softgpu::exec {

// Local memory starts as zero like registers, but is rarely used: only what was written is cleared.
static void clear_local(Warp* warp) {
  if (!warp->local) return;
  const uint32_t words = warp->block->state->local_bytes / 4;
  std::memset(warp->local + size_t{warp->local_clean} * kLanes, 0,
              size_t{words - warp->local_clean} * kRowBytes);
  warp->local_clean = words;
}

void retire_block(Block* block) {
  for (Warp& warp : block->warps) {
    clear_local(&warp);
    warp.local = nullptr;
  }
}

static void init_warp(Block* block, uint32_t index) {
  const LaunchState& state = *block->state;
  const Traits& traits = state.program->traits;
  Warp& warp = block->warps[index];
  warp.block = block;
  warp.index = index;
  warp.rows = block->rows.reserve(0) + size_t{index} * traits.rows;
  std::memset(warp.rows, 0, size_t{kUniformRows} * kRowBytes);
  warp.base[0] = reinterpret_cast<const uint8_t*>(warp.rows);
  warp.base[1] = reinterpret_cast<const uint8_t*>(state.pool) - kPoolBit;
  if (traits.local) {
    const uint32_t words = state.local_bytes / 4;
    warp.local = block->local_rows.reserve(0)[size_t{index} * words].lane;
    warp.local_clean = words;
  }
  const uint32_t first = index * kLanes;
  const uint32_t count = std::min<uint32_t>(kLanes, state.threads - first);
  warp.initial = count == kLanes ? kFull : (1u << count) - 1;
  const Dim3 dim = state.launch->block;
  for (uint32_t lane = 0; lane < count; ++lane) {
    const uint32_t thread = first + lane;
    warp.rows[kTidRows].lane[lane] = thread % dim.x;
    warp.rows[kTidRows + 1].lane[lane] = thread / dim.x % dim.y;
    warp.rows[kTidRows + 2].lane[lane] = thread / dim.x / dim.y;
  }
}

void init_block(Block* block, const LaunchState* state) {
  const Traits& traits = state->program->traits;
  block->state = state;
  block->instructions = 0;
  block->conflict = false;
  block->fault = {};
  block->ranges.assign(traits.slots + 1, {});
  block->rows.reserve(size_t{state->warps} * traits.rows);
  block->shared_rows.reserve(state->shared_bytes / kRowBytes + 1);
  block->shared = reinterpret_cast<uint8_t*>(block->shared_rows.reserve(0));
  if (traits.local) block->local_rows.reserve(size_t{state->warps} * (state->local_bytes / 4));
  block->warps.resize(state->warps);
  for (uint32_t i = 0; i < state->warps; ++i) init_warp(block, i);
}

// Registers and shared memory start as zero: a program that reads what it did not write must not
// make results depend on which block ran here before.
static void start_warp(Warp* warp) {
  const Traits& traits = warp->block->state->program->traits;
  std::memset(warp->rows + kUniformRows, 0, size_t{traits.rows - kUniformRows} * kRowBytes);
  warp->pred.fill(0);
  warp->pred[kPredTrue] = kFull;
  warp->pred[kPredUniform + kPredTrue] = kFull;
  warp->live = warp->initial;
  warp->bar_result = 0;
  warp->active = 0;
  warp->parked.fill(0);
  warp->patience = 0;
  clear_local(warp);
  const LaunchState& state = *warp->block->state;
  const Inst* entry = state.program->code.data() + state.launch->kernel->entry / kInstrBytes;
  warp->runnable[0] = {warp->initial, entry};
  warp->runnable_count = 1;
}

void start_block(Block* block, uint64_t linear, uint64_t position) {
  const LaunchState& state = *block->state;
  const Dim3 grid = state.launch->grid;
  block->linear = linear;
  block->sm = state.sms.of(position);
  block->id = {static_cast<uint32_t>(linear % grid.x),
               static_cast<uint32_t>(linear / grid.x % grid.y),
               static_cast<uint32_t>(linear / grid.x / grid.y)};
  if (state.shared_bytes) std::memset(block->shared, 0, state.shared_bytes);
  block->barriers.fill({});
  block->live_threads = state.threads;
  block->yields = 0;
  for (Warp& warp : block->warps) start_warp(&warp);
}

static void run_warp(Warp* warp) {
  const Inst* in = next_group(warp);
  uint64_t count = 0;
  while (in) {
    ++count;
    const uint32_t guard = warp->pred[in->guard] ^ in->guard_xor;
    const uint32_t exec = (warp->active | in->force) & guard;
    in = exec ? in->fn(in, warp, exec) : in + 1;
  }
  warp->block->instructions += count;
}

// The same of a launch in which something is to go wrong.
static void run_warp_with_upsets(Warp* warp, UpsetRun* upsets) {
  const Inst* in = next_group(warp);
  while (in) {
    ++warp->block->instructions;
    const uint32_t guard = warp->pred[in->guard] ^ in->guard_xor;
    const uint32_t exec = (warp->active | in->force) & guard;
    const Inst* next = in + 1;
    if (exec) {
      upsets->before(in, warp);
      next = in->fn(in, warp, exec);
      upsets->after(in, warp, exec);
    }
    in = next;
  }
}

uint64_t watchdog() {
  return settings::watchdog();
}

// A group that loops yields now and then, so an endless kernel comes here again and again.
static void watch(Warp* warp) {
  Block* block = warp->block;
  if (!watchdog() || block->instructions <= watchdog() || !warp->runnable_count) return;
  const Group& next = warp->runnable[0];
  fault(next.pc, warp, FaultKind::kLaunchTimeout, first_lane(next.mask),
        "more than [" + std::to_string(watchdog()) + "] warp instructions");
}

bool run_block_round(Block* block) {
  bool progress = false, done = true;
  for (Warp& warp : block->warps) {
    if (warp.done()) continue;
    if (warp.can_run()) {
      progress = true;
      if (UpsetRun* const upsets = block->state->upsets) [[unlikely]] {
        run_warp_with_upsets(&warp, upsets);
      } else {
        run_warp(&warp);
      }
      watch(&warp);
      if (block->fault || block->conflict) return true;
    }
    done = done && warp.done();
  }
  if (!done && !progress) {
    for (Warp& warp : block->warps) {
      if (warp.done()) continue;
      const int lane = first_lane(warp.live);
      fault(&block->state->program->code[warp.parked_at.lane[lane]] - 1, &warp,
            FaultKind::kLaunchTimeout, lane, "all threads wait for each other");
      break;
    }
    return true;
  }
  return done;
}

}  // namespace softgpu::exec
