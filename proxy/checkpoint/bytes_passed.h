// How many bytes snapshots and restores have looked at, copied or hashed, in any thread of this
// process. For a process that looks from outside whether the server stands still: while a large
// model is copied nothing else of it moves. Nothing but the fact that it changes matters.
#ifndef PYFT_CHECKPOINT_BYTES_PASSED_H_
#define PYFT_CHECKPOINT_BYTES_PASSED_H_

#include <atomic>
#include <cstdint>

namespace pyft::checkpoint {

inline std::atomic<uint64_t> bytes_passed{0};

// After each piece: small ones, so that it is seen in time.
inline void pass_bytes(uint64_t bytes) {
  bytes_passed.fetch_add(bytes, std::memory_order_relaxed);
}

// A turn of a loop that waits for the agent, and has a deadline of its own.
inline void pass_turn() {
  pass_bytes(1);
}

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_BYTES_PASSED_H_
