// One word per communicator and rank on which its thread sleeps; peers on the same host ring it
// after they wrote to or read from a FIFO. Lives in memory that peers map.
#ifndef FLEXCCL_TRANSPORT_DOORBELL_H_
#define FLEXCCL_TRANSPORT_DOORBELL_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/memory.h"

namespace flexccl {

class Doorbell {
 public:
  static constexpr std::size_t kBytes = 4096;

  Doorbell() : Doorbell(Memory::create(kBytes)) {}
  explicit Doorbell(std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {}

  // Read before looking for work; wait() returns at once if it was rung since.
  std::uint32_t value() const { return words()->value.load(std::memory_order_seq_cst); }
  void ring() const;
  // Returns whether it was rung within the time.
  bool wait(std::uint32_t seen, std::uint32_t timeout_ms) const;
  int fd() const { return memory_->fd(); }

 private:
  // Both are seq_cst: the ringer writes `value` then reads `sleepers`, the sleeper writes
  // `sleepers` then reads `value`; with weaker orders both could miss each other.
  struct Words {
    std::atomic<std::uint32_t> value;
    std::atomic<std::uint32_t> sleepers;
  };
  static_assert(sizeof(Words) == 8 && std::atomic<std::uint32_t>::is_always_lock_free);
  Words* words() const { return reinterpret_cast<Words*>(memory_->data()); }
  std::shared_ptr<Memory> memory_;
};

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_DOORBELL_H_
