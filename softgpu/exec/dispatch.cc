#include "exec/dispatch.h"

#include <memory>
#include <numeric>
#include <utility>

#include "core/settings.h"
#include "exec/patience.h"

namespace softgpu::exec {

// ---- order -------------------------------------------------------------------------------------

static uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static std::vector<uint8_t> shuffled(uint64_t count, uint64_t seed) {
  std::vector<uint8_t> order(count);
  std::iota(order.begin(), order.end(), uint8_t{0});
  for (uint64_t i = count; i > 1; --i) std::swap(order[i - 1], order[mix(seed * 4096 + i) % i]);
  return order;
}

Order::Order(uint64_t count, uint64_t seed) : tail_at_(count / kWindow * kWindow) {
  if (!seed) return;
  full_ = shuffled(kWindow, seed);
  tail_ = shuffled(count - tail_at_, seed);
}

// ---- one after the other -----------------------------------------------------------------------

Block* own_block() {
  thread_local Block block;
  return &block;
}

namespace {

// One thread: a block runs to its end before the next one starts, unless it seems to wait for one
// that has not started. Then it stays, and takes turns with those that come after it.
class Serial {
 public:
  Serial(const LaunchState& state, uint64_t* instructions)
      : state_(state), instructions_(instructions) {}

  Fault run(const Order& order, uint64_t begin, uint64_t end) {
    Block* block = own_block();
    prepare(block);
    for (uint64_t i = begin; i < end && !ended(); ++i) {
      start_block(block, order.at(i), i);
      if (!finish(block)) set_aside(block);
      take_turns();
    }
    while (!waiting_.empty() && !ended()) take_turns();
    retire(block);
    for (auto& waiting : waiting_) retire(waiting.get());
    return std::move(fault_);
  }

 private:
  void prepare(Block* block) {
    init_block(block, &state_);
    if (state_.journal) block->watch = &watch_;
    block->instructions = *instructions_;  // clocks go on
  }

  bool ended() const { return fault_ || stopped_; }

  // True if the block has ended, or all have to.
  bool run_round(Block* block) {
    bool done = run_block_round(block);
    stopped_ = stopped_ || block->conflict || takes_too_long(*block);
    return done || stopped_;
  }

  bool takes_too_long(const Block& block) {
    Journal* const journal = state_.journal;
    return journal && journal->most_instructions() &&
           block.instructions > journal->most_instructions() && !journal->may(Unlike::kWaits);
  }

  void retire(Block* block) {
    *instructions_ = std::max(*instructions_, block->instructions);
    block->watch = nullptr;
    retire_block(block);
  }

  // False: it waits.
  bool finish(Block* block) {
    while (!run_round(block)) {
      if (block->yields >= kPatience) return false;
    }
    if (block->fault) fault_ = std::move(block->fault);
    return true;
  }

  void set_aside(Block* block) {
    waiting_.push_back(std::make_unique<Block>(std::move(*block)));
    *block = {};
    adopt(waiting_.back().get());
    prepare(block);
  }

  // Warps know their block.
  static void adopt(Block* block) {
    for (Warp& warp : block->warps) warp.block = block;
  }

  void take_turns() {
    for (size_t i = 0; i < waiting_.size() && !ended();) {
      Block* block = waiting_[i].get();
      if (!run_round(block)) {
        ++i;
        continue;
      }
      if (block->fault) fault_ = std::move(block->fault);
      retire(block);
      waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  const LaunchState& state_;
  uint64_t* instructions_;
  const Watch watch_{nullptr, state_.journal};
  std::vector<std::unique_ptr<Block>> waiting_;
  Fault fault_;
  bool stopped_ = false;  // by the watch
};

// Cooperative launch: all blocks are resident and take turns.
Fault run_interleaved(const LaunchState& state, const Order& order, uint64_t* instructions) {
  std::vector<Block> blocks(state.launch->grid.count());
  std::vector<bool> ended(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    init_block(&blocks[i], &state);
    start_block(&blocks[i], order.at(i), i);
  }
  for (size_t left = blocks.size(); left;) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (ended[i]) continue;
      if (!run_block_round(&blocks[i])) continue;
      ended[i] = true;
      --left;
      *instructions += blocks[i].instructions;
      if (blocks[i].fault) return std::move(blocks[i].fault);
    }
  }
  return {};
}

// A failed attempt costs as much as it ran, so a program that has conflicts is tried ever more
// rarely.
bool worth_an_attempt(const LaunchState& state, uint64_t blocks) {
  constexpr uint64_t kWorthThreads = 25000;  // instructions; waking a thread costs about 2000
  Experience& experience = state.program->experience;
  const uint64_t each = experience.instructions_per_block.load(std::memory_order_relaxed);
  if (thread_count() < 2 || blocks < 2 || each * blocks < kWorthThreads || watchdog()) return false;
  const uint32_t skip = experience.skip.load(std::memory_order_relaxed);
  if (skip) experience.skip.store(skip - 1, std::memory_order_relaxed);
  return skip == 0;
}

void note_conflict(Experience* experience) {
  const uint32_t count = experience->conflicts.fetch_add(1, std::memory_order_relaxed);
  experience->skip.store(8u << std::min(count, 7u), std::memory_order_relaxed);
}

}  // namespace

// With noise it is another one in each launch: sums whose order locks or compare-and-swap loops
// decide differ as well then, such as those of bf16.
static uint64_t order_seed(const LaunchState& state) {
  return state.noise ? state.noise : settings::block_seed();
}

Fault run_blocks(const LaunchState& state, uint64_t* instructions) {
  const uint64_t count = state.launch->grid.count();
  const Order order(count, order_seed(state));
  if (state.launch->cooperative) return run_interleaved(state, order, instructions);
  uint64_t begin = 0;
  Experience& experience = state.program->experience;
  if (!state.upsets && !state.journal && worth_an_attempt(state, count)) {
    const uint32_t threads = static_cast<uint32_t>(std::min<uint64_t>(thread_count(), count));
    if (run_side_by_side(state, order, threads, &begin, count, instructions) == Attempt::kConflict)
      note_conflict(&experience);
  }
  Fault fault;
  if (begin < count) fault = Serial(state, instructions).run(order, begin, count);
  if (!state.journal || !state.journal->is_second())
    experience.instructions_per_block.store(*instructions / count + 1, std::memory_order_relaxed);
  return fault;
}

}  // namespace softgpu::exec
