// The engine's way in: frames of one peer, checked, then reduced or copied to where they belong.
#include <algorithm>
#include <cstring>

#include "algo/peer.h"
#include "base/error.h"

namespace flexccl {

bool Engine::receivable(const Peer& peer) const {
  if (peer.next_receive == peer.receives.size()) return false;
  const auto index = static_cast<std::size_t>(peer.receives[peer.next_receive]);
  const int after = schedule_->receives[index].after;
  return after < 0 || sent_[static_cast<std::size_t>(after)];
}

bool Engine::advance_receives(Peer& peer) {
  bool progress = false;
  while (receivable(peer)) {
    if (!peer.in) peer.in = inbox_->find(static_cast<std::uint32_t>(peer.slot));
    if (!peer.in) break;
    const auto index = static_cast<std::size_t>(peer.receives[peer.next_receive]);
    const Receive& receive = schedule_->receives[index];
    const auto arrived = peer.in->peek();
    if (arrived.empty()) break;
    if (drop_stale(peer, arrived)) {
      progress = true;
      continue;
    }
    if (peer.ahead) break;
    peer.in->consume(take(peer, arrived, receive));
    progress = true;
    if (peer.received < sizeof(FrameHeader) + padded(receive.bytes)) continue;
    if (receive.completes)
      finish(schedule_->reduction, receive.to,
             receive.bytes / element_size(schedule_->reduction.dtype));
    received_[index] = 1;
    ++peer.next_receive, ++peer.frames_received;
    peer.received = 0;
  }
  return progress;
}

// What was sent before the repairs that this rank has taken is of no use; what was sent after ones
// that it has not taken yet waits.
bool Engine::drop_stale(Peer& peer, std::span<const std::byte> arrived) {
  if (!peer.skip) {
    if (peer.received) return false;
    FrameHeader header;
    std::memcpy(&header, arrived.data(), sizeof header);
    peer.ahead = 0;
    if (header.epoch == self_->epoch) return false;
    if (header.magic != kMagic || header.mac != frame_mac(self_->key, header)) return false;
    if (header.epoch > self_->epoch) peer.ahead = header.epoch;
    if (header.epoch >= self_->epoch || header.index != peer.frames_received) return false;
    peer.skip = sizeof header + padded(header.bytes);
    ++peer.frames_received;
  }
  const std::size_t now = std::min(peer.skip, arrived.size());
  peer.in->consume(now);
  peer.skip -= now;
  return true;
}

std::size_t Engine::take(Peer& peer, std::span<const std::byte> arrived, const Receive& receive) {
  std::size_t used = 0;
  if (peer.received == 0) {
    FrameHeader header;
    std::memcpy(&header, arrived.data(), sizeof header);
    verify(peer, header, receive);
    used = peer.received = sizeof header;
    peer.receiving = sizeof header + padded(header.bytes);
    const bool collective = receive.op.collective != Collective::kSendRecv;
    peer.done = std::max(peer.done, header.sequence - (collective && header.sequence));
  }
  const std::size_t at = peer.received - sizeof(FrameHeader);
  const std::size_t now = std::min(arrived.size() - used, padded(receive.bytes) - at);
  const std::size_t payload = std::min(now, receive.bytes - std::min(receive.bytes, at));
  if (receive.own)
    combine(schedule_->reduction, arrived.data() + used, receive.own + at, receive.to + at,
            payload / element_size(schedule_->reduction.dtype));
  else if (payload)
    std::memcpy(receive.to + at, arrived.data() + used, payload);
  peer.received += now;
  return used + now;
}

void Engine::verify(const Peer& peer, const FrameHeader& header, const Receive& receive) const {
  if (header.magic != kMagic || header.mac != frame_mac(self_->key, header))
    fail(ncclRemoteError, "it sent garbage instead of a frame");
  if (header.comm != self_->comm || header.epoch != self_->epoch ||
      header.source != static_cast<std::uint32_t>(peer.slot) ||
      header.index != peer.frames_received)
    fail(ncclRemoteError, "it sent frame [", header.index, "] of epoch [", header.epoch,
         "], expected was frame [", peer.frames_received, "] of epoch [", self_->epoch, "]");
  const bool collective = receive.op.collective != Collective::kSendRecv;
  if (header.op != receive.op || (collective && header.sequence != sequence_))
    fail(ncclInvalidUsage, "the ranks disagree: rank [", self_->slot, "] called ",
         describe(receive.op), " as operation [", sequence_, "], rank [", peer.slot, "] called ",
         describe(header.op), " as operation [", header.sequence, "]");
  if (header.bytes != receive.bytes)
    fail(ncclInternalError, "it sent [", header.bytes, "] bytes instead of [", receive.bytes, "]");
}

}  // namespace flexccl
