// The links that arrive at one rank of one communicator, by source slot.
#ifndef FLEXCCL_TRANSPORT_INBOX_H_
#define FLEXCCL_TRANSPORT_INBOX_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>

#include "transport/control.h"
#include "transport/doorbell.h"
#include "transport/link.h"

namespace flexccl {

// The epoch is that of the caller; the inbox of a rank is one and the same in all epochs.
struct InboxName {
  std::uint64_t comm;
  std::uint32_t epoch, destination;
  friend bool operator==(const InboxName& a, const InboxName& b) {
    return a.comm == b.comm && a.destination == b.destination;
  }
  friend bool operator<(const InboxName& a, const InboxName& b) {
    return std::tie(a.comm, a.destination) < std::tie(b.comm, b.destination);
  }
};

class Inbox {
 public:
  // `key`: fingerprint of its communicator's. This process may know those of others, too.
  explicit Inbox(std::uint64_t key, std::uint32_t epoch = 0,
                 std::shared_ptr<Responder> responder = nullptr)
      : key_(key), epoch_(epoch), responder_(std::move(responder)) {}
  std::uint64_t key() const { return key_; }
  // Links of earlier epochs are refused, callers of later ones are asked to come again.
  std::uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  // The links of these sources are over: their successors may connect, in this epoch.
  void enter(std::uint32_t epoch, std::span<const std::uint32_t> changed) {
    const std::scoped_lock lock(mutex_);
    for (const std::uint32_t source : changed) links_.erase(source);
    epoch_.store(epoch, std::memory_order_release);
  }
  // Answers questions of other ranks (control.h); may be null.
  const std::shared_ptr<Responder>& responder() const { return responder_; }

  // False when there is a link from this slot already: a second one can only be an imposter. Also
  // when the epoch has changed meanwhile.
  bool add(std::uint32_t source, std::unique_ptr<Inbound> link, std::uint32_t epoch) {
    const std::scoped_lock lock(mutex_);
    if (epoch != this->epoch() || !links_.try_emplace(source, std::move(link)).second) return false;
    doorbell_.ring();
    return true;
  }
  // Null until the source has connected. The communicator's thread is the only one that reads it.
  Inbound* find(std::uint32_t source) {
    const std::scoped_lock lock(mutex_);
    const auto found = links_.find(source);
    return found == links_.end() ? nullptr : found->second.get();
  }
  void close() {
    const std::scoped_lock lock(mutex_);
    links_.clear();
  }
  const Doorbell& doorbell() const { return doorbell_; }

 private:
  std::mutex mutex_;
  std::map<std::uint32_t, std::unique_ptr<Inbound>> links_;
  Doorbell doorbell_;
  const std::uint64_t key_;
  std::atomic<std::uint32_t> epoch_;
  const std::shared_ptr<Responder> responder_;
};

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_INBOX_H_
