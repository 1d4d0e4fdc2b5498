// Blocks of one launch on several threads at once; track.h says why the outcome is that of one.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include <sched.h>

#include "core/settings.h"
#include "exec/dispatch.h"
#include "exec/patience.h"
#include "exec/team.h"

namespace softgpu::exec {
namespace {

// What launches of all devices share. One launch at a time: the others run on their own thread.
struct Workshop {
  std::mutex in_use;
  Marks marks;
  Team team;
  std::array<Tracker, kMaxThreads> trackers;
};

// Never destroyed: its threads may outlive static objects.
Workshop& workshop() {
  static Workshop* const one = std::make_unique<Workshop>().release();
  return *one;
}

struct Wave {
  const LaunchState& state;
  const Order& order;
  const uint64_t end, chunk;
  std::atomic<uint64_t> next;  // block that no thread has taken
  std::atomic<bool> full{false}, conflict{false};
  std::atomic<uint64_t> instructions{0};
};

// True if the block has ended in peace. A block that seems to wait may do so for one that no thread
// is going to start, which does not show as a conflict.
bool run_block(Wave* wave, Block* block, uint64_t position) {
  start_block(block, wave->order.at(position), position);
  while (!run_block_round(block)) {
    if (wave->conflict.load(std::memory_order_relaxed)) return false;
    if (block->yields >= 4 * kPatience) return false;
  }
  return !block->conflict && !block->fault;
}

void run_chunks(Wave* wave, Block* block) {
  constexpr size_t kLogLines = size_t{4} << 20 >> kLineShift;  // of 4 MiB that were written
  while (!wave->full.load(std::memory_order_relaxed)) {
    const uint64_t first = wave->next.fetch_add(wave->chunk);
    const uint64_t last = std::min(first + wave->chunk, wave->end);
    for (uint64_t i = first; i < last; ++i) {
      if (wave->conflict.load(std::memory_order_relaxed)) return;
      if (!run_block(wave, block, i)) {
        wave->conflict = true;
        return;
      }
    }
    if (first >= wave->end) return;
    if (block->watch->tracker->lines_written() > kLogLines) wave->full = true;
  }
}

void work(Wave* wave, Tracker* tracker) {
  Block* block = own_block();
  init_block(block, &wave->state);
  const Watch watch{tracker, nullptr};
  block->watch = &watch;
  run_chunks(wave, block);
  block->watch = nullptr;
  retire_block(block);
  wave->instructions += block->instructions;
}

// Results of neighbouring blocks often share a line, so a chunk is a multiple of the floats in one;
// a few chunks per thread, because threads may be held up.
uint64_t chunk_of(uint64_t blocks, uint32_t threads, bool large) {
  const uint64_t wanted = std::max<uint64_t>(blocks / (threads * (large ? 1 : 4)), 1);
  if (blocks < 64) return (blocks + threads - 1) / threads;
  return (wanted + 15) / 16 * 16;
}

Attempt run_wave(Wave* wave, uint32_t threads) {
  Workshop& shop = workshop();
  const uint32_t attempt = shop.marks.next_attempt();
  for (uint32_t i = 0; i < threads; ++i) shop.trackers[i].begin(&shop.marks, attempt, i);
  shop.team.run(threads, [&](uint32_t i) { work(wave, &shop.trackers[i]); });
  if (!wave->conflict) return Attempt::kDone;
  for (uint32_t i = 0; i < threads; ++i) shop.trackers[i].undo();
  return Attempt::kConflict;
}

}  // namespace

uint32_t thread_count() {
  static const uint32_t count = [] {
    auto wanted = static_cast<long>(std::min<uint64_t>(settings::threads(), kMaxThreads));
    cpu_set_t allowed;
    if (wanted <= 0 && sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
      wanted = std::min(CPU_COUNT(&allowed), 8);
    }
    return static_cast<uint32_t>(std::clamp<long>(wanted, 1, kMaxThreads));
  }();
  return count;
}

Attempt run_side_by_side(const LaunchState& state, const Order& order, uint32_t threads,
                         uint64_t* begin, uint64_t end, uint64_t* instructions) {
  const std::unique_lock lock(workshop().in_use, std::try_to_lock);
  if (!lock) return Attempt::kDone;
  const bool large = state.program->experience.conflicts.load(std::memory_order_relaxed) != 0;
  while (*begin < end) {
    const uint64_t chunk = chunk_of(end - *begin, threads, large);
    Wave wave{state, order, end, chunk, *begin};
    if (run_wave(&wave, threads) == Attempt::kConflict) return Attempt::kConflict;
    *begin = std::min(wave.next.load(), end);
    *instructions += wave.instructions;
  }
  return Attempt::kDone;
}

}  // namespace softgpu::exec
