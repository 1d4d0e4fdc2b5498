// What one rank knows of the steps of the epoch beyond its own: those that are decided and not
// taken yet, and the one to which it has agreed. A replacement is taken as soon as it is known; a
// rank is added or removed between operations of the caller's choice, so those wait for its call.
#ifndef FLEXCCL_MEMBERSHIP_STEPS_H_
#define FLEXCCL_MEMBERSHIP_STEPS_H_

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "membership/membership.h"
#include "membership/membership_log.h"
#include "transport/socket.h"

namespace flexccl {

class Steps {
 public:
  // Of a rank that is in `epoch`.
  Steps(std::uint32_t epoch, std::shared_ptr<MembershipLog> log);

  std::shared_ptr<MembershipLog> log() const;
  void set_log(std::shared_ptr<MembershipLog> log);
  // Decided steps, oldest first. False: one contradicts what is known.
  bool learn(std::span<const Change> steps);
  // This rank's part in a step that is not decided yet; an earlier agreement is over.
  void agree(const Change& step);
  // The newest epoch that is decided, as far as known here.
  std::uint32_t newest() const;
  // What a rank in `epoch` takes now, in order; and all that it knows to be decided.
  std::vector<Change> ready(std::uint32_t epoch) const;
  std::vector<Change> decided(std::uint32_t epoch) const;
  bool any_ready(std::uint32_t epoch) const { return newest() > epoch && !ready(epoch).empty(); }
  // Those that are decided, and the one to which it has agreed.
  std::vector<Change> expected(std::uint32_t epoch) const;
  // It has agreed to a step that is not decided.
  bool in_doubt(std::uint32_t epoch) const;
  // For the process that is to take a slot.
  enum class Vote { kOpen, kAgreed, kDecided, kOther };
  Vote vote(const Change& step) const;
  // Waits for a change of the vote, at most until `limit`.
  Vote wait_for_vote(const Change& step, Deadline limit) const;
  // Waits until a rank asks for the vote of that step.
  bool wait_for_voter(const Change& step, std::chrono::microseconds longest) const;
  void note_voter(const Change& step);

 private:
  // Precondition of these: mutex_ is held.
  void look() const;
  bool pin_up();
  bool follow_page();
  std::optional<Change> decided_at(std::uint32_t epoch) const;
  Vote count_vote(const Change& step) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::shared_ptr<MembershipLog> log_;
  std::atomic<const MembershipLog*> look_at_;  // log_, which stays as it is once it is there
  mutable std::map<std::uint32_t, Change> known_;
  std::optional<Change> agreed_;
  std::optional<Change> voter_;
  mutable std::atomic<std::uint32_t> newest_;
  std::atomic<std::uint32_t> agreed_epoch_ = 0;
};

}  // namespace flexccl

#endif  // FLEXCCL_MEMBERSHIP_STEPS_H_
