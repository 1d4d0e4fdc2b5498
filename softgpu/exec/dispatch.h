// The blocks of a launch: their order, and how they share threads.
#ifndef SOFTGPU_EXEC_DISPATCH_H_
#define SOFTGPU_EXEC_DISPATCH_H_

#include <cstdint>
#include <vector>

#include "exec/warp.h"

namespace softgpu::exec {

// In which order blocks start. SOFTGPU_BLOCK_SEED: 0 is the natural order, any other number
// shuffles blocks among kWindow neighbours, near enough for a block that waits for an earlier one.
class Order {
 public:
  static constexpr uint64_t kWindow = 256;
  Order(uint64_t count, uint64_t seed);
  uint64_t at(uint64_t i) const {
    if (full_.empty()) return i;
    const uint64_t first = i / kWindow * kWindow;
    return first + (first == tail_at_ ? tail_ : full_)[i - first];
  }

 private:
  uint64_t tail_at_ = 0;
  std::vector<uint8_t> full_, tail_;  // empty: natural order
};

// Runs all blocks of a launch. The outcome is that of one thread that starts the blocks in order,
// with any number of threads.
Fault run_blocks(const LaunchState& state, uint64_t* instructions);

// The outcome of an attempt to run blocks from `*begin` on side by side.
enum class Attempt { kDone, kConflict };
// Moves *begin behind the blocks that have run; kConflict: the rest has to run in order.
Attempt run_side_by_side(const LaunchState& state, const Order& order, uint32_t threads,
                         uint64_t* begin, uint64_t end, uint64_t* instructions);
// Threads that may run blocks: SOFTGPU_THREADS, or the CPUs this process may use.
uint32_t thread_count();

// The block whose storage the calling thread reuses from launch to launch.
Block* own_block();

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_DISPATCH_H_
