// The links that arrive at one rank of one communicator, by source slot.
#ifndef FLEXCCL_TRANSPORT_INBOX_H_
#define FLEXCCL_TRANSPORT_INBOX_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "transport/doorbell.h"
#include "transport/link.h"

namespace flexccl {

struct InboxName {
  std::uint64_t comm;
  std::uint32_t epoch, destination;
  auto operator<=>(const InboxName&) const = default;
};

class Inbox {
 public:
  // False when there is a link from this slot already: a second one can only be an imposter.
  bool add(std::uint32_t source, std::unique_ptr<Inbound> link) {
    const std::scoped_lock lock(mutex_);
    if (!links_.try_emplace(source, std::move(link)).second) return false;
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
};

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_INBOX_H_
