// Run-time state: a launch, its blocks, their warps.
//
// Divergence: a warp has one running group of lanes (mask `active`, one pc), a list of runnable
// groups, and lanes parked at BSYNC, WARPSYNC or BAR with a pc each. Participant masks of the
// barrier registers B0..B15 are kept per lane, so sibling groups that reuse the same register do
// not disturb each other (hardware keeps one per warp; programs cannot tell).
#ifndef SOFTGPU_EXEC_WARP_H_
#define SOFTGPU_EXEC_WARP_H_

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/address_space.h"
#include "core/kernel.h"
#include "exec/program.h"
#include "exec/watch.h"

namespace softgpu::exec {

// Windows of the generic address space; no host pointer reaches them.
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 48;
inline constexpr uint64_t kLocalWindow = uint64_t{2} << 48;
inline constexpr int kNamedBarriers = 16;

class UpsetRun;

// What all blocks of a launch share. Read-only while they run.
struct LaunchState {
  const Launch* launch = nullptr;
  const Program* program = nullptr;
  Sms sms;
  AddressSpace* memory = nullptr;
  const Row* pool = nullptr;
  std::array<std::span<const uint8_t>, 8> banks;
  std::vector<uint8_t> bank0;
  uint32_t threads = 0, warps = 0;
  uint32_t shared_bytes = 0;
  uint32_t local_bytes = 0;    // per thread, a multiple of 16
  uint64_t noise = 0;          // of float atomics, noise.h
  UpsetRun* upsets = nullptr;  // what is to go wrong; null: nothing
  Journal* journal = nullptr;  // where it is kept what is written over
};

struct Block;

struct Group {
  uint32_t mask = 0;
  const Inst* pc = nullptr;
};

enum class Parked : uint8_t { kNone, kBsync, kWarpsync, kBar };

struct Warp {
  const uint8_t* base[2] = {};  // [0] own rows, [1] constant pool minus kPoolBit
  uint32_t active = 0;          // lanes of the running group
  uint32_t live = 0;            // lanes that exist and have not exited
  int32_t budget = 0;           // backward branches until the running group has to yield
  uint32_t bar_result = 0;      // of the last BAR.RED
  uint32_t patience = 0;        // yields while lanes waited at a BSYNC
  std::array<uint32_t, kPredCount> pred{};

  Block* block = nullptr;
  Row* rows = nullptr;
  uint32_t* local = nullptr;  // local window: word w of lane l at [w * 32 + l]
  uint32_t local_clean = 0;   // words below this one are zero, of the local_bytes / 4
  uint32_t index = 0;         // in the block
  uint32_t initial = 0;       // lanes that exist

  std::array<Group, kLanes> runnable;  // in order of readiness
  uint32_t runnable_count = 0;
  std::array<uint32_t, 4> parked{};  // lanes by Parked
  Row parked_at{};                   // instruction to go on at, as an index
  Row parked_arg{};                  // B register, WARPSYNC mask or barrier number

  bool done() const { return live == 0; }
  bool can_run() const { return runnable_count != 0; }
};

// Rows that grow when they must and stay for the next block or launch.
class RowBuffer {
 public:
  // At least `count` rows; their content is what it was, or zero if they had to grow.
  Row* reserve(size_t count) {
    if (count > size_) {
      rows_ = std::make_unique<Row[]>(count);
      size_ = count;
    }
    return rows_.get();
  }

 private:
  std::unique_ptr<Row[]> rows_;
  size_t size_ = 0;
};

struct Barrier {
  uint32_t arrived = 0;
  uint32_t expected = 0;    // 0: all live threads
  uint32_t count_true = 0;  // BAR.RED
  uint8_t op = 0;           // BAR.RED: 0 POPC, 1 AND, 2 OR
};

// A resident block. Objects are reused for one block after the other.
struct Block {
  const LaunchState* state = nullptr;
  Dim3 id;
  uint64_t linear = 0;
  uint32_t sm = 0;  // on which it runs
  std::vector<Warp> warps;
  RowBuffer rows, shared_rows, local_rows;
  uint8_t* shared = nullptr;
  std::array<Barrier, kNamedBarriers> barriers;
  uint32_t live_threads = 0;
  uint64_t instructions = 0;
  uint32_t yields = 0;           // times a group of this block has let others run
  std::vector<Range> ranges;     // range cache by Inst::slot
  const Watch* watch = nullptr;  // told of what it does
  bool conflict = false;         // and has said that the blocks have to stop
  Fault fault;
};

// ---- operands ----------------------------------------------------------------------------

inline const Row* source(const Warp* warp, uint32_t operand) {
  return reinterpret_cast<const Row*>(warp->base[operand & kPoolBit] + operand);
}

inline Row* dest(Warp* warp, uint32_t operand) {
  return reinterpret_cast<Row*>(reinterpret_cast<uint8_t*>(warp->rows) + operand);
}

inline uint32_t pred_source(const Warp* warp, uint8_t index, bool negate) {
  return warp->pred[index] ^ (negate ? kFull : 0u);
}
inline uint32_t ps0(const Inst* in, const Warp* w) {
  return pred_source(w, in->ps0, in->pneg & 1);
}
inline uint32_t ps1(const Inst* in, const Warp* w) {
  return pred_source(w, in->ps1, in->pneg & 2);
}
inline uint32_t ps2(const Inst* in, const Warp* w) {
  return pred_source(w, in->ps2, in->pneg & 4);
}

inline void set_pred(Warp* warp, uint8_t index, uint32_t exec, uint32_t value) {
  warp->pred[index] = (warp->pred[index] & ~exec) | (value & exec);
}

inline int first_lane(uint32_t mask) {
  return std::countr_zero(mask);
}

// Calls f(lane) for each set bit, ascending.
template <class F>
inline void for_lanes(uint32_t mask, F&& f) {
  for (; mask; mask &= mask - 1) f(first_lane(mask));
}

// ---- control (schedule.cc, block.cc) ---------------------------------------------------------

// Stops the launch. Returns null, for `return fault(…)` in handlers.
const Inst* fault(const Inst* in, Warp* warp, FaultKind kind, int lane, const std::string& what);

// Stops the blocks: what the instruction does needs the one order, or cannot be compared.
const Inst* conflict(Warp* warp);
// Whether it may do so, says the watch.
inline bool may(const Warp* warp, Unlike what) {
  const Watch* const watch = warp->block->watch;
  return !watch || watch->may(what);
}

// The running group has ended or blocked: picks the next one. Null when the warp cannot go on.
const Inst* next_group(Warp* warp);
// Adds a group to the back of the list.
void push_group(Warp* warp, uint32_t mask, const Inst* pc);
// Parks `exec` with in + 1 as pc; the caller then returns leave().
void park(const Inst* in, Warp* warp, uint32_t exec, Parked why, uint32_t arg);
// Takes `exec` out of the running group; the rest of it goes on at in + 1.
const Inst* leave(const Inst* in, Warp* warp, uint32_t exec);
// Makes parked lanes runnable again, merged by pc.
void unpark(Warp* warp, uint32_t lanes, Parked why);
// Goes to `target` with the lanes of `taken`; the others of the running group fall through.
const Inst* branch(const Inst* in, Warp* warp, uint32_t taken, const Inst* target);
// The running group lets others run, of this and other warps, and goes on at `next` later.
const Inst* yield(Warp* warp, const Inst* next);
// A group of the warp has said that it spins (YIELD, NANOSLEEP): see schedule.cc.
void spins(Warp* warp);
// Ends lanes.
const Inst* exit_lanes(const Inst* in, Warp* warp, uint32_t exec);
// Releases BAR waiters of barrier `id` if all expected threads have arrived.
void try_release_barrier(Block* block, uint32_t id);

// Prepares a block for this launch; start_block makes it the block number `linear`. `position`: in
// the order in which blocks start.
void init_block(Block* block, const LaunchState* state);
void start_block(Block* block, uint64_t linear, uint64_t position);
// Runs every warp once until it blocks, yields or ends. True when the block has ended, also by a
// fault or a conflict.
bool run_block_round(Block* block);
// Hands over what a block left in local memory, before another launch uses its storage.
void retire_block(Block* block);
// SOFTGPU_WATCHDOG: warp instructions that a launch may execute; 0 is no limit.
uint64_t watchdog();

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_WARP_H_
