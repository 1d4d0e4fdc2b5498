// How many bytes snapshots and restores have looked at, copied or hashed, in any thread of this
// process. For a process that looks from outside whether the server stands still: while a large
// model is copied nothing else of it moves. Nothing but the fact that it changes matters.
//
// What the host's processors have hashed and copied of it is counted as well: a large model is
// passed over at the speed of host memory, which a device's bus exceeds.
#ifndef PYFT_CHECKPOINT_BYTES_PASSED_H_
#define PYFT_CHECKPOINT_BYTES_PASSED_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pyft::checkpoint {

inline std::atomic<uint64_t> bytes_passed{0};
inline std::atomic<uint64_t> host_hashed{0}, host_copied{0};

// After each piece: small ones, so that it is seen in time.
inline void pass_bytes(uint64_t bytes) {
  bytes_passed.fetch_add(bytes, std::memory_order_relaxed);
}

inline void pass_hashed(uint64_t bytes) {
  host_hashed.fetch_add(bytes, std::memory_order_relaxed);
  pass_bytes(bytes);
}

inline void pass_copied(uint64_t bytes) {
  host_copied.fetch_add(bytes, std::memory_order_relaxed);
  pass_bytes(bytes);
}

inline void pass_copy(std::byte* to, const std::byte* from, uint64_t bytes) {
  std::memcpy(to, from, bytes);
  pass_copied(bytes);
}

// A turn of a loop that waits for the agent, and has a deadline of its own.
inline void pass_turn() {
  pass_bytes(1);
}

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_BYTES_PASSED_H_
