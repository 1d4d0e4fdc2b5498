// How a new rank gets its place: a conversation with the nearest live rank on each side of its
// slot, over a connection that stays open meanwhile.
//
//   new rank   hello and question kJoin, with its step
//   neighbour  answer, once it has been told to agree (or that another step was decided); where
//              descriptors can travel, with that of the membership log
//              (membership/membership_log.h)
//   new rank   the decision, once both have agreed
//   neighbour  receipt, when it has heard
//
// Until the decision no rank has left the old epoch. A rank that ends its connection before it has
// given the decision has not decided anything.
#ifndef FLEXCCL_TRANSPORT_JOIN_H_
#define FLEXCCL_TRANSPORT_JOIN_H_

#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "transport/control.h"

namespace flexccl {

// The new rank's side of one conversation. All throw ncclRemoteError.
class JoinCall {
 public:
  // Connects, and says nothing yet.
  JoinCall(const Asked& asked, std::uint32_t own_slot, std::uint32_t epoch);
  JoinCall(JoinCall&&) = default;
  JoinCall& operator=(JoinCall&&) = default;
  int slot() const { return static_cast<int>(asked_.slot); }
  void speak(std::span<const std::byte> step);
  // Until it is clear that a member of the job listens.
  void wait_for_welcome();
  // kHere: it agrees; kGone: another step has that epoch there. `log`: its descriptor, if it
  // came.
  Answer wait_for_answer(Deadline deadline, Fd* log);
  void decide();
  void wait_for_receipt(Deadline deadline);

 private:
  Asked asked_;
  Question question_;
  Fd socket_;
  Hello hello_ = {};
};

// The neighbour's side.
class JoinVisit {
 public:
  // `here`: the communicator and slot that is visited.
  JoinVisit(int socket, const Key& key, std::pair<std::uint64_t, std::uint32_t> here,
            const Question& question, std::span<const std::byte> step)
      : socket_(socket), key_(key), here_(here), question_(question), step_(step) {}
  std::span<const std::byte> step() const { return step_; }
  // The new rank has hung up.
  bool gone() const;
  // `log`: -1, or a descriptor that is sent along if it can be.
  void answer(Answer answer, int log);
  // False: not within a short time; ask again. Throws when there will be none.
  bool comes_decision();
  void give_receipt();

 private:
  void may_fail() const;  // on purpose

  int socket_;
  Key key_;
  std::pair<std::uint64_t, std::uint32_t> here_;
  Question question_;
  std::span<const std::byte> step_;
};

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_JOIN_H_
