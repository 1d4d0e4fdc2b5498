#include "algo/engine.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "algo/peer.h"
#include "base/error.h"

namespace flexccl {
namespace {

constexpr int kYields = 40;  // looks before sleeping: most answers come within these
constexpr std::chrono::milliseconds kGrace(500);
constexpr std::uint32_t kSleepMs = 20;  // then the other side is looked at

}  // namespace

Engine::Engine(std::shared_ptr<const Membership> membership, std::shared_ptr<Responder> responder,
               Owner owner)
    : self_(std::move(membership)),
      inbox_(std::make_shared<Inbox>(fingerprint(self_->key), self_->epoch, std::move(responder))),
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
    // A rank that failed before it ever connected to this one shows only on the link towards it,
    // or nowhere. One that is done and left may look the same for the moment in which its link is
    // delivered.
    if (reads && !peer->in && (out_ended || owner_.has_left(peer->slot))) {
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
  std::ostringstream ranks;
  for (const Peer* peer : busy_)
    if (peer->next_send < peer->sends.size() || peer->next_receive < peer->receives.size())
      ranks << " [" << peer->slot << "]";
  fail(ncclRemoteError, where(), "nothing moved for [", self_->timeout_ms, "] ms; waits for rank",
       ranks.str());
}

}  // namespace flexccl
