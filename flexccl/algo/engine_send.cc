// The engine's way out: frames to one peer, and the link to it, made when it is first used.
#include <algorithm>
#include <cstring>

#include "algo/peer.h"
#include "base/error.h"

namespace flexccl {
namespace {

constexpr std::chrono::milliseconds kLinkWait(20);  // then there are other things to look at
constexpr std::chrono::milliseconds kRetry(2);      // until a peer has reached this epoch

}  // namespace

bool Engine::sendable(const Peer& peer) const {
  if (peer.next_send == peer.sends.size()) return false;
  const int after = schedule_->sends[static_cast<std::size_t>(peer.sends[peer.next_send])].after;
  return after < 0 || received_[static_cast<std::size_t>(after)];
}

bool Engine::advance_sends(Peer& peer) {
  bool progress = false;
  while (sendable(peer)) {
    const auto index = static_cast<std::size_t>(peer.sends[peer.next_send]);
    const std::size_t before = peer.sent;
    const bool done = write_frame(peer, schedule_->sends[index]);
    progress |= done || peer.sent != before;
    if (!done) break;
    sent_[index] = 1;
    ++peer.next_send;
  }
  return progress;
}

// An attempt that has got as far as asking goes on across repairs: the other side may have made its
// end already. Only that of a slot that changes ends.
bool Engine::connect(Peer& peer) {
  const auto now = std::chrono::steady_clock::now();
  if (now < peer.retry_at) return false;
  std::uint32_t asked_in = self_->epoch;
  try {
    if (!peer.connection) ask_for_link(peer);
    asked_in = peer.connection->epoch();
    peer.out = peer.connection->wait(connecting_ ? std::chrono::milliseconds(0) : kLinkWait);
    if (peer.out) peer.connection.reset();
    connecting_ |= !peer.out;
    return bool(peer.out);
  } catch (const Error& error) {
    peer.connection.reset();
    // It may have refused only because it has gone on to this epoch meanwhile.
    const bool again = error.code == ncclRemoteError && asked_in < self_->epoch;
    if (error.code != ncclInProgress && !again) throw;
    peer.retry_at = now + kRetry;
    if (!again) owner_.behind(peer.slot);
    return false;
  }
}

// The other side drops the rest of a frame only in this epoch; in an older one it would be taken
// for what it stands for.
bool Engine::may_pay(Peer& peer) {
  const auto now = std::chrono::steady_clock::now();
  if (now < peer.retry_at) return false;
  if (owner_.has_taken(peer.slot)) return true;
  peer.retry_at = now + kRetry;
  return false;
}

void Engine::ask_for_link(Peer& peer) {
  const Address known = self_->address(peer.slot);
  peer.connection = Endpoint::process().connect(
      known.port ? known : owner_.locate(peer.slot),
      {{self_->comm, self_->epoch, static_cast<std::uint32_t>(peer.slot)},
       static_cast<std::uint32_t>(self_->slot),
       self_->transport,
       self_->key,
       in_ms(self_->timeout_ms),
       [this] {
         if (aborted_ || interrupted_ || owner_.news()) throw Interrupted();
       }},
      inbox_->doorbell());
}

bool Engine::pay_debt(Peer& peer) {
  peer.pays = true;
  static constexpr std::byte kZeros[4096] = {};
  while (peer.owed) {
    const std::size_t head = peer.owed_of_header;
    auto* rest = reinterpret_cast<std::byte*>(&peer.owed_header + 1) - head;
    const iovec part =
        head ? iovec{rest, head}
             : iovec{const_cast<std::byte*>(kZeros), std::min(peer.owed, sizeof kZeros)};
    const std::size_t taken = peer.out->write({&part, 1});
    if (!taken) return false;
    peer.owed -= taken;
    peer.owed_of_header -= head ? taken : 0;
  }
  return true;
}

bool Engine::write_frame(Peer& peer, const Send& send) {
  if (!peer.out && !connect(peer)) return false;
  if (peer.owed && !((peer.pays || may_pay(peer)) && pay_debt(peer))) return false;
  const std::size_t body = send.bytes / kBlockBytes * kBlockBytes;
  if (peer.sent == 0) {
    peer.header = {kMagic,
                   self_->epoch,
                   self_->comm,
                   sequence_,
                   send.bytes,
                   send.op,
                   static_cast<std::uint32_t>(self_->slot),
                   peer.frames_sent,
                   0};
    peer.header.mac = frame_mac(self_->key, peer.header);
    peer.from = send.staging ? send.staging : send.from;
    if (send.staging)
      premultiply(schedule_->reduction, send.from, send.staging,
                  send.bytes / element_size(schedule_->reduction.dtype));
    std::memset(peer.tail, 0, sizeof peer.tail);
    if (send.bytes > body) std::memcpy(peer.tail, peer.from + body, send.bytes - body);
  }
  iovec parts[3] = {{&peer.header, sizeof peer.header},
                    {const_cast<std::byte*>(peer.from), body},
                    {peer.tail, send.bytes > body ? kBlockBytes : 0}};
  std::size_t skip = peer.sent, used = 0;
  iovec rest[3];
  for (const iovec& part : parts) {
    const std::size_t cut = std::min(skip, part.iov_len);
    skip -= cut;
    if (part.iov_len > cut)
      rest[used++] = {static_cast<std::byte*>(part.iov_base) + cut, part.iov_len - cut};
  }
  peer.sent += peer.out->write({rest, used});
  if (peer.sent < sizeof peer.header + padded(send.bytes)) return false;
  peer.sent = 0;
  ++peer.frames_sent;
  return true;
}

}  // namespace flexccl
