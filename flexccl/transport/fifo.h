// A byte queue in memory between one writer and one reader: links between ranks of one process
// (loopback) and of one host (shm). The counters are shared with the other process and checked.
#ifndef FLEXCCL_TRANSPORT_FIFO_H_
#define FLEXCCL_TRANSPORT_FIFO_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/doorbell.h"
#include "transport/link.h"
#include "transport/memory.h"

namespace flexccl {

inline constexpr std::size_t kFifoBytes = 512 << 10;  // of data; four slices of an algorithm

// Counters only grow; `counter % kFifoBytes` is the position. A writer's release store of `tail`
// publishes the bytes before it, a reader's release store of `head` gives their room back.
struct FifoHeader {
  alignas(64) std::atomic<std::uint64_t> tail;  // written by the writer
  alignas(64) std::atomic<std::uint64_t> head;  // written by the reader
  alignas(64) std::atomic<std::uint32_t> writer_left;
  std::atomic<std::uint32_t> reader_left;
};
inline constexpr std::size_t kFifoMemoryBytes = 4096 + kFifoBytes;
static_assert(sizeof(FifoHeader) <= 4096 && std::atomic<std::uint64_t>::is_always_lock_free);

// `connection`, when there is one, is the socket whose end tells that the other process died.
class FifoOutbound final : public Outbound {
 public:
  FifoOutbound(std::shared_ptr<Memory> memory, Doorbell reader, Fd connection);
  ~FifoOutbound() override;
  std::size_t write(std::span<const iovec> parts) override;
  bool alive() override;
  void ring() override { reader_.ring(); }

 private:
  FifoHeader* header() const { return reinterpret_cast<FifoHeader*>(memory_->data()); }
  std::shared_ptr<Memory> memory_;
  Doorbell reader_;
  Fd connection_;
  std::uint64_t tail_ = 0;
};

class FifoInbound final : public Inbound {
 public:
  FifoInbound(std::shared_ptr<Memory> memory, Doorbell writer, Fd connection);
  ~FifoInbound() override;
  std::span<const std::byte> peek() override;
  void consume(std::size_t bytes) override;
  bool alive() override;
  void ring() override { writer_.ring(); }

 private:
  FifoHeader* header() const { return reinterpret_cast<FifoHeader*>(memory_->data()); }
  std::shared_ptr<Memory> memory_;
  Doorbell writer_;
  Fd connection_;
  std::uint64_t head_ = 0;
};

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_FIFO_H_
