#include "algo/engine.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace flexccl {
namespace {

constexpr int kYields = 40;  // looks before sleeping: most answers come within these
constexpr std::chrono::milliseconds kGrace(500);
constexpr std::uint32_t kSleepMs = 20;          // then the other side is looked at
constexpr std::chrono::milliseconds kRetry(2);  // until a peer has reached this epoch

std::size_t padded(std::size_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

}  // namespace

struct Engine::Peer {
  int slot = 0;
  std::unique_ptr<Connection> connection;  // while `out` is being made
  std::unique_ptr<Outbound> out;
  Inbound* in = nullptr;  // owned by the inbox
  std::uint32_t frames_sent = 0, frames_received = 0;

  std::vector<int> sends, receives;  // of the running schedule
  std::size_t next_send = 0, next_receive = 0;
  std::size_t sent = 0;  // bytes of the current frame, header included
  std::size_t received = 0;
  FrameHeader header;
  const std::byte* from = nullptr;
  std::byte tail[kBlockBytes];
  Deadline lost_at = {};  // since when the other side seems to have left
  Deadline retry_at = {};
  // Of frames that a repair cut in two: bytes still to be sent, and to be dropped.
  std::size_t owed = 0, skip = 0, receiving = 0;
  FrameHeader owed_header = {};  // its last bytes go first, when it was cut in two itself
  std::size_t owed_of_header = 0;
  bool pays = false;        // it has begun to, in this epoch
  std::uint32_t ahead = 0;  // the later epoch in which it is; 0: it is not
  std::uint64_t done = 0;   // the last collective it is known to have completed
};

Engine::Engine(std::shared_ptr<const Membership> membership, std::shared_ptr<Responder> responder,
               Owner owner)
    : self_(std::move(membership)),
      inbox_(std::make_shared<Inbox>(self_->epoch, std::move(responder))),
      owner_(std::move(owner)) {
  peers_.resize(static_cast<std::size_t>(self_->slots()));
  Endpoint::process().add({self_->comm, self_->epoch, static_cast<std::uint32_t>(self_->slot)},
                          inbox_);
}

Engine::~Engine() {
  close();
}

void Engine::close() {
  Endpoint::process().remove({self_->comm, self_->epoch, static_cast<std::uint32_t>(self_->slot)},
                             inbox_);
  for (auto& peer : peers_) {
    if (!peer) continue;
    peer->connection.reset();
    peer->out.reset();
    peer->in = nullptr;
  }
  inbox_->close();
}

void Engine::change(std::shared_ptr<const Membership> next, std::span<const int> changed) {
  interrupted_.store(false, std::memory_order_release);
  self_ = std::move(next);
  for (const auto& peer : peers_) {
    if (!peer) continue;
    if (peer->sent) {  // the rest of the frame: zeros, which the other side drops
      peer->owed = sizeof peer->header + padded(peer->header.bytes) - peer->sent;
      peer->owed_header = peer->header;
      peer->owed_of_header = sizeof peer->header - std::min(sizeof peer->header, peer->sent);
      ++peer->frames_sent;
    }
    if (peer->received) {
      peer->skip = peer->receiving - peer->received;
      ++peer->frames_received;
    }
    peer->sent = peer->received = 0;
    peer->pays = false;
    peer->ahead = 0;
  }
  std::vector<std::uint32_t> sources;
  for (const int slot : changed) {
    auto& peer = peers_[static_cast<std::size_t>(slot)];
    std::erase(busy_, peer.get());
    peer.reset();
    sources.push_back(static_cast<std::uint32_t>(slot));
  }
  inbox_->enter(self_->epoch, sources);
}

std::uint64_t Engine::done_at(int slot) const {
  const auto& peer = peers_[static_cast<std::size_t>(slot)];
  return peer ? peer->done : 0;
}

Engine::Peer& Engine::peer_at(int slot) {
  auto& peer = peers_[static_cast<std::size_t>(slot)];
  if (!peer) {
    peer = std::make_unique<Peer>();
    peer->slot = slot;
  }
  return *peer;
}

void Engine::ring_peers() {
  for (const auto& peer : peers_) {
    if (peer && peer->out) peer->out->ring();
    if (peer && peer->in) peer->in->ring();
  }
}

void Engine::interrupt() {
  interrupted_.store(true, std::memory_order_release);
  inbox_->doorbell().ring();
}

void Engine::abort() {
  aborted_.store(true, std::memory_order_release);
  inbox_->doorbell().ring();
}

void Engine::copy(const Schedule& schedule) const {
  const Reduction& reduction = schedule.reduction;
  for (const Copy& copy : schedule.copies) {
    const std::size_t count = copy.bytes / element_size(reduction.dtype);
    if (copy.whole_reduction && reduction.premultiplies)
      premultiply(reduction, copy.from, copy.to, count);
    else if (copy.from != copy.to && copy.bytes)
      std::memmove(copy.to, copy.from, copy.bytes);
    if (copy.whole_reduction) finish(reduction, copy.to, count);
  }
}

void Engine::start(const Schedule& schedule) {
  schedule_ = &schedule;
  sent_.assign(schedule.sends.size(), 0);
  received_.assign(schedule.receives.size(), 0);
  for (Peer* peer : busy_) {
    peer->sends.clear(), peer->receives.clear();
    peer->next_send = peer->next_receive = 0;
    peer->lost_at = {};
  }
  busy_.clear();
  const auto at = [this](int position) -> Peer& {
    Peer& peer = peer_at(self_->slot_at(position));
    if (peer.sends.empty() && peer.receives.empty()) busy_.push_back(&peer);
    return peer;
  };
  for (std::size_t i = 0; i < schedule.sends.size(); ++i)
    at(schedule.sends[i].peer).sends.push_back(static_cast<int>(i));
  for (std::size_t i = 0; i < schedule.receives.size(); ++i)
    at(schedule.receives[i].peer).receives.push_back(static_cast<int>(i));
}

void Engine::run(const Schedule& schedule, std::uint64_t sequence) {
  sequence_ = sequence;
  suspect_ = -1;
  start(schedule);
  copy(schedule);
  auto last_progress = std::chrono::steady_clock::now();
  for (int idle = 0; !finished();) {
    look_up();
    const std::uint32_t rung = inbox_->doorbell().value();
    bool progress = connecting_ = false;
    for (Peer* peer : busy_) {
      try {
        progress |= advance_sends(*peer);
        progress |= advance_receives(*peer);
      } catch (const Error& error) {
        fail_at(peer->slot, error);
      } catch (const Interrupted&) {
        break;  // look_up() says why
      }
    }
    if (progress) {
      idle = 0;
      continue;
    }
    if (owner_.news()) throw Interrupted();
    if (++idle == 1) last_progress = std::chrono::steady_clock::now();
    if (std::chrono::steady_clock::now() - last_progress >
        std::chrono::milliseconds(self_->timeout_ms + self_->repair_ms))
      fail_stuck();
    wait(rung, idle);
  }
}

void Engine::look_up() const {
  if (aborted_.load(std::memory_order_acquire))
    fail(ncclInvalidUsage, where(), "the communicator was aborted");
  if (interrupted_.load(std::memory_order_acquire)) throw Interrupted();
}

bool Engine::finished() const {
  return std::all_of(busy_.begin(), busy_.end(), [](const Peer* peer) {
    return peer->next_send == peer->sends.size() && peer->next_receive == peer->receives.size();
  });
}

bool Engine::sendable(const Peer& peer) const {
  if (peer.next_send == peer.sends.size()) return false;
  const int after = schedule_->sends[static_cast<std::size_t>(peer.sends[peer.next_send])].after;
  return after < 0 || received_[static_cast<std::size_t>(after)];
}

bool Engine::receivable(const Peer& peer) const {
  if (peer.next_receive == peer.receives.size()) return false;
  const auto index = static_cast<std::size_t>(peer.receives[peer.next_receive]);
  const int after = schedule_->receives[index].after;
  return after < 0 || sent_[static_cast<std::size_t>(after)];
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
    peer.out = peer.connection->wait(std::chrono::milliseconds(connecting_ ? 0 : kSleepMs));
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

void Engine::wait(std::uint32_t rung, int idle) {
  const bool sockets = std::any_of(busy_.begin(), busy_.end(), [](const Peer* peer) {
    return (peer->out && peer->out->fd() >= 0) || (peer->in && peer->in->fd() >= 0);
  });
  const auto ahead =
      std::find_if(busy_.begin(), busy_.end(), [](const Peer* peer) { return peer->ahead > 0; });
  if (ahead != busy_.end()) {
    try {
      owner_.ahead((*ahead)->slot, (*ahead)->ahead);
    } catch (const Error&) {
      // It is gone, or others know more.
    }
    inbox_->doorbell().wait(rung, 1);  // what is there already must not keep this thread busy
  } else if (connecting_) {
    return;  // that was a wait
  } else if (sockets) {
    if (!poll_sockets()) check_peers();
  } else if (idle < kYields) {
    sched_yield();
  } else if (!inbox_->doorbell().wait(rung, kSleepMs)) {
    check_peers();
  }
}

bool Engine::poll_sockets() {
  std::vector<pollfd> looks;
  bool others = false;  // links without a socket, or not there yet, ring the doorbell
  for (const Peer* peer : busy_) {
    if (sendable(*peer)) {
      const int fd = peer->out ? peer->out->fd() : -1;
      fd >= 0 ? looks.push_back({fd, POLLOUT, 0}) : void(others = true);
    }
    if (receivable(*peer)) {
      const int fd = peer->in ? peer->in->fd() : -1;
      fd >= 0 ? looks.push_back({fd, POLLIN, 0}) : void(others = true);
    }
  }
  return poll(looks.data(), looks.size(), others ? 1 : static_cast<int>(kSleepMs)) > 0;
}

void Engine::check_peers() {
  const auto now = std::chrono::steady_clock::now();
  for (Peer* peer : busy_) {
    const bool writes = peer->next_send < peer->sends.size();
    const bool reads = peer->next_receive < peer->receives.size();
    if (reads && !peer->in) peer->in = inbox_->find(static_cast<std::uint32_t>(peer->slot));
    const bool out_ended = (writes || reads) && peer->out && !peer->out->alive();
    bool gone = (writes && out_ended) || (reads && peer->in && !peer->in->alive());
    // A rank that failed before it ever connected to this one shows only on the link towards it.
    // One that is done and left may look the same for the moment in which its link is delivered.
    if (reads && !peer->in && out_ended) {
      if (peer->lost_at == Deadline()) peer->lost_at = now;
      gone |= now - peer->lost_at > kGrace;
    }
    if (gone) fail_at(peer->slot, Error(ncclRemoteError, "its process or communicator is gone"));
  }
}

std::string Engine::where() const {
  std::ostringstream text;
  text << "flexccl: rank [" << self_->slot << "] of communicator [" << std::hex << self_->comm
       << std::dec << "], operation [" << sequence_ << "] " << describe(schedule_->op) << ": ";
  return text.str();
}

void Engine::fail_at(int peer, const Error& error) {
  suspect_ = peer;
  fail(error.code, where(), "rank [", peer, "]: ", error.what());
}

void Engine::fail_stuck() const {
  std::ostringstream whom;
  for (const Peer* peer : busy_)
    if (peer->next_send < peer->sends.size() || peer->next_receive < peer->receives.size())
      whom << " [" << peer->slot << "]";
  fail(ncclRemoteError, where(), "nothing moved for [", self_->timeout_ms, "] ms; waits for rank",
       whom.str());
}

}  // namespace flexccl
