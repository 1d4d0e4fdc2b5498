// One page per communicator and host, mapped by the ranks there: the newest steps of the epoch. A
// repair is decided by one compare-and-swap of `head`; a rank that looks afterwards finds the step,
// so none has to be woken to hear of it. The page has a name only until all ranks of the host have
// mapped it; ranks that come later get its descriptor. A rank that cannot map it is told by
// message.
#ifndef FLEXCCL_MEMBERSHIP_MEMBERSHIP_LOG_H_
#define FLEXCCL_MEMBERSHIP_MEMBERSHIP_LOG_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "membership/membership.h"
#include "transport/memory.h"

namespace flexccl {

class MembershipLog {
 public:
  // Of a communicator that begins. Null where it is of no use (every survivor of a repair is told
  // anyway) or cannot be had.
  static std::shared_ptr<MembershipLog> begin(const Membership& self);
  // Of a new rank: the one that this process has mapped already; null: none.
  static std::shared_ptr<MembershipLog> find(const Membership& self);
  // The same from a descriptor; null when it is no membership log.
  static std::shared_ptr<MembershipLog> adopt(Fd fd, const Membership& self);
  ~MembershipLog();
  MembershipLog(const MembershipLog&) = delete;
  MembershipLog& operator=(const MembershipLog&) = delete;

  std::uint32_t epoch() const {
    return static_cast<std::uint32_t>(page_->head.load(std::memory_order_acquire) >> 32);
  }
  // The steps after `epoch`, oldest first; none when not all of them are there any more.
  std::vector<Change> steps_after(std::uint32_t epoch) const;
  // Writes those that are not there yet; they follow each other. False: the last one contradicts
  // what was decided before.
  bool publish(std::span<const Change> steps);
  // Whether the rank looks here.
  bool is_read_by(int slot) const;
  void set_reader(int slot, bool reads);
  int fd() const { return fd_.get(); }

 private:
  static constexpr std::uint32_t kCells = 64, kNone = UINT32_MAX;
  struct Step {
    Change change;
    std::uint32_t previous, padding;
    std::uint64_t mac;  // over everything above: also tells a cell that is being overwritten
  };
  static_assert(sizeof(Step) == 64);
  // Any rank of the host may be ended between two of its stores. A cell is written before `head`
  // names it and overwritten only after many later ones, so a half-written one is never decided.
  struct Page {
    std::atomic<std::uint64_t> head;  // epoch << 32 | cell
    std::atomic<std::uint32_t> claimed, arrived, nameless, padding;
    std::array<std::atomic<std::uint64_t>, 8> cells[kCells];
    std::atomic<std::uint64_t> readers[Info::kMaxSlots / 64];
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  static constexpr std::size_t kBytes = 8192;
  static_assert(sizeof(Page) <= kBytes);

  MembershipLog(Fd fd, Page* page, std::string name, const Membership& self);
  static std::shared_ptr<MembershipLog> map(Fd fd, const std::string& name, const Membership& self);
  static std::shared_ptr<MembershipLog> make(const Membership& self, bool shared);
  bool read(std::uint32_t cell, Step* step) const;
  std::uint64_t mac_of(const Step& step) const;
  bool append(const Change& change, std::uint64_t head);
  void forget_name();

  const Fd fd_;
  Page* const page_;
  const std::string name_;  // empty: never had one
  const Key key_;
};

}  // namespace flexccl

#endif  // FLEXCCL_MEMBERSHIP_MEMBERSHIP_LOG_H_
