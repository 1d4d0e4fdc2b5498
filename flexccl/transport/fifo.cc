#include "transport/fifo.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace flexccl {
namespace {

bool connected(const Fd& connection) {
  if (!connection) return true;
  pollfd look{connection.get(), POLLRDHUP, 0};
  return poll(&look, 1, 0) == 0;
}

}  // namespace

FifoOutbound::FifoOutbound(std::shared_ptr<Memory> memory, Doorbell reader, Fd connection)
    : memory_(std::move(memory)), reader_(std::move(reader)), connection_(std::move(connection)) {}

FifoOutbound::~FifoOutbound() {
  header()->writer_left.store(1, std::memory_order_release);
  reader_.ring();
}

std::size_t FifoOutbound::write(std::span<const iovec> parts) {
  if (header()->reader_left.load(std::memory_order_acquire))
    fail(ncclRemoteError, "it closed the link");
  const std::uint64_t used = tail_ - header()->head.load(std::memory_order_acquire);
  if (used > kFifoBytes || used % kBlockBytes)
    fail(ncclRemoteError, "the FIFO's read counter is off by [", used, "]");
  std::size_t room = kFifoBytes - used, taken = 0;
  for (const iovec& part : parts) {
    const auto* from = static_cast<const std::byte*>(part.iov_base);
    for (std::size_t left = std::min(part.iov_len, room); left;) {
      const std::size_t at = tail_ % kFifoBytes;
      const std::size_t now = std::min(left, kFifoBytes - at);
      std::memcpy(memory_->data() + 4096 + at, from, now);
      from += now, left -= now, room -= now, taken += now, tail_ += now;
    }
    if (!room) break;
  }
  if (taken) {
    header()->tail.store(tail_, std::memory_order_release);
    reader_.ring();
  }
  return taken;
}

bool FifoOutbound::alive() {
  return !header()->reader_left.load(std::memory_order_acquire) && connected(connection_);
}

FifoInbound::FifoInbound(std::shared_ptr<Memory> memory, Doorbell writer, Fd connection)
    : memory_(std::move(memory)), writer_(std::move(writer)), connection_(std::move(connection)) {}

FifoInbound::~FifoInbound() {
  header()->reader_left.store(1, std::memory_order_release);
  writer_.ring();
}

std::span<const std::byte> FifoInbound::peek() {
  // Read before `tail`: what was written before the writer left must still be delivered.
  const bool left = header()->writer_left.load(std::memory_order_acquire);
  const std::uint64_t ready = header()->tail.load(std::memory_order_acquire) - head_;
  if (ready > kFifoBytes || ready % kBlockBytes)
    fail(ncclRemoteError, "the FIFO's write counter is off by [", ready, "]");
  if (!ready && left) fail(ncclRemoteError, "it closed the link");
  const std::size_t at = head_ % kFifoBytes;
  return {memory_->data() + 4096 + at, std::min<std::size_t>(ready, kFifoBytes - at)};
}

void FifoInbound::consume(std::size_t bytes) {
  head_ += bytes;
  header()->head.store(head_, std::memory_order_release);
  writer_.ring();
}

bool FifoInbound::alive() {
  if (connected(connection_)) return true;
  return header()->tail.load(std::memory_order_acquire) != head_;  // read what is left first
}

}  // namespace flexccl
