// Runs one rank's operations, one at a time, and carries them across repairs.
//
// In a communicator that waits for repairs an operation that a peer's death interrupts pauses. A
// repair gives every member a new epoch; then each operation that some member had completed before
// is completed by the others from what the members keep (they *fetch*: results of identical-output
// operations, contributions of the rest), and the first one that no rank had completed is run again
// by all, from the same inputs, in the same order of additions. Which it is follows from the
// members' counters at the moment each took the epoch; those do not change any more, so all members
// decide alike without a vote.
#ifndef FLEXCCL_RUNNER_OPERATION_RUNNER_H_
#define FLEXCCL_RUNNER_OPERATION_RUNNER_H_

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "algo/engine.h"
#include "membership/steps.h"
#include "oplog/retention_buffer.h"
#include "runner/query_server.h"

namespace flexccl {

class JoinCall;

// What a rank that has left would have had to give, and no other one can.
struct NeverComes : Error {
  using Error::Error;
};

// A repair was waited for already, and did not come.
struct NoRepair : Error {
  using Error::Error;
};

class OperationRunner {
 public:
  // Made anew for each attempt: an average depends on the number of ranks.
  using Make = std::function<Operation(const Membership&)>;

  // A new rank (epoch > 0) starts after `position` collectives.
  OperationRunner(const Membership& membership, std::uint64_t position);
  ~OperationRunner();

  void run(const Make& make);
  void run(const std::vector<PointToPoint>& calls);
  // Counts a communicator that is made from this one without a message; `what` makes it another
  // one. Returns its number, and the slots that are live; in a replay as they were.
  std::pair<std::uint64_t, std::vector<int>> count_child(const Hash& what);

  // From any thread; the last step is the one that the caller of the repair wants, those before it
  // are decided. A running operation is interrupted by a step that it takes, or, when the
  // communicator does not wait for repairs, ends first.
  // Returns when the steps are taken. Throws ncclInvalidUsage when something else was decided.
  void change(const std::vector<Change>& steps);
  // Agrees to a step that the new rank will decide; the next operation waits for that. The nearest
  // ranks on both sides first make sure that the new one is there: ncclRemoteError.
  void agree(const std::vector<Change>& steps);
  // Takes what is decided; a running operation will.
  void look();
  // For a new rank: blocks until the nearest live ranks on both sides have agreed, decides, and
  // tells them. Throws ncclRemoteError at the deadline, ncclInvalidUsage when something else was
  // decided.
  void take_place();
  // Whether its own place, for which it came with a step of the epoch, is decided. Until then that
  // step is no other rank's: it may never be taken.
  bool placed() const { return placed_.load(std::memory_order_acquire); }
  // There is no rank to decide with.
  void place_alone() { placed_.store(true, std::memory_order_release); }
  // No rank comes in the place of `slot` any more, and it sends nothing: from now on whatever needs
  // more of it than has been sent is an error, and not waited for. From any thread.
  void note_left(int slot);
  bool has_left(int slot) const;
  void abort();
  void close();

  Membership membership() const { return *view(); }
  // The same without a copy; it stays as it is when a repair comes.
  std::shared_ptr<const Membership> view() const;
  // The steps that are decided and not taken here yet, and what they make of the membership.
  std::vector<Change> decided() const { return steps_->decided(view()->epoch); }
  Membership newest() const;
  // As the next operation will find it, if the new rank does not fail.
  std::shared_ptr<const Membership> expected() const;
  Counters counters() const { return retention_->counters(); }
  // The slot that a paused operation waits for, -1 when it cannot tell; nothing when none is
  // paused.
  std::optional<int> paused() const;
  // New ranks only, before the first operation.
  // Without memory, `operation` collectives are done and no messages were exchanged.
  void replay_after(std::uint64_t operation, std::span<std::byte> memory);
  void record(std::span<std::byte> memory);
  OperationLog& records() { return records_; }
  bool is_replaying() const { return records_.replaying(); }
  // The communicator that this one was split or shrunk from.
  void set_parent(std::uint64_t comm) {
    parent_ = comm;
    records_.set_parent(comm);
  }
  // Asks `slot`, wherever it is in its epochs.
  Answer status_of(int slot, const Address& address) const;
  // Asks those that are known. Throws ncclRemoteError.
  static Address find_address(const Membership& self, int slot);
  // Asks all what is complete, to forget the rest. For an idle communicator that keeps much.
  void flush();
  // Soon, in another thread.
  void ask_around();
  // Before it ends: ranks that may still keep something for this one are told that nothing is
  // needed any more, or would look for it in vain. After 3 s none is told any more.
  void say_goodbye();

 private:
  using Lock = std::unique_lock<std::mutex>;
  // The same in this epoch, telling `slot` how far this rank is.
  Answer exchange_membership(const Membership& self, int slot);
  struct Message {
    PointToPoint call;
    std::uint64_t index = 0;  // between the two ranks, in this direction
    bool done = false;
  };
  void learn(const std::vector<Change>& steps);
  // Takes what is decided, unless an operation runs: false.
  bool take_if_idle();
  void interrupt(const Lock& lock);  // of mutex_; the operation that runs, if it has to
  void greet(const Membership& self, const Change& step);
  std::vector<JoinCall> call_both_sides(const Membership& self, Deadline deadline);
  // Preconditions of all these: the calling thread has the turn.
  // `waking`: others may sleep in an operation that this step interrupts.
  void apply(bool waking = false);
  // What an operation begins with: there is no step left to be taken, nor in doubt.
  void catch_up();
  void wait_for_decision();                     // in doubt
  void hear_of(int slot, std::uint32_t epoch);  // that is ahead
  void inform(int slot);                        // which is behind
  bool has_taken(int slot);
  // A rank that was still making the communicator when a step was decided may have missed it.
  void ask_for_news();
  void settle(const std::function<bool()>& attempt);
  void pause(const Error& error);
  // Waits until `over`, a member has left of which `error` is, or `limit`. Throws when it has left.
  void quiesce(Lock& lock, const Error& error, Deadline limit, const std::function<bool()>& over);
  // Where nothing is kept. Throws what `attempt` throws; with `partial`, a peer that is gone keeps
  // it standing, as a kernel of NCCL, until the program aborts the communicator or the deadline
  // passes.
  void once(const std::function<void()>& attempt);
  void look_up() const;  // throws when there is something more important than waiting
  bool must_ask(Collective collective, bool interrupted) const;
  // Throws where the operation cannot run in the ring: its root was removed.
  void need_root(const Operation& operation, const Make& make) const;
  int find_source(std::uint64_t sequence, const Operation& operation);
  bool keeps_result(int slot, std::uint64_t sequence);
  // `until`: how long a rank that does not answer is waited for, unless as long as for a repair.
  Answer ask_about(int slot, std::optional<Deadline> until = {});
  Answer ask_patiently(int slot, const Question& question, std::span<std::byte> to,
                       std::optional<Deadline> until = {});
  [[noreturn]] void never_comes(int slot, const Error& error);
  void set_paused(std::optional<int> suspect);
  void fetch_all(int source, std::uint64_t sequence, const Operation& operation, Ring ring,
                 Buffers buffers);
  void fetch_sum(std::uint64_t sequence, const Operation& operation, Ring ring, std::size_t offset,
                 std::span<std::byte> to);
  void fetch_blocks(std::uint64_t sequence, const Operation& operation, Ring ring, Buffers buffers);
  // `blocks`: what is fetched lies where the number of ranks says.
  void fetch(Question question, int slot, std::span<std::byte> to, bool blocks = false);
  Answer ask_slot(int slot, Question question, std::span<std::byte> to);
  // Returns whether a replacement of this rank can give others what they need of the operation.
  bool record(const Operation& operation, Ring ring, const Hash& input, const Make& make);
  void replay(Operation operation, std::uint64_t sequence);
  void replay(const std::vector<PointToPoint>& calls);
  void record_batch(const std::vector<PointToPoint>& calls, const LogPosition& before,
                    const Hash& input);
  RecordOwner owner() const;
  void enter(std::uint64_t operation, std::uint64_t sequence);
  void release_known(std::uint64_t sequence, bool in_ring, Collective collective);
  void meet_pairs(const std::vector<PointToPoint>& calls);
  bool fetch_message(const PointToPoint& call, std::uint64_t index);
  void exchange(std::vector<Message>& messages);
  Address locate(int slot);

  std::mutex control_;  // one repair at a time
  std::mutex turn_;     // the thread that holds it may use the engine
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const Membership> membership_, published_;  // of the holder of the turn, of all
  std::optional<int> paused_;
  std::set<int> left_;
  std::atomic<bool> any_left_ = false;
  std::atomic<bool> aborted_ = false, placed_;

  const std::shared_ptr<Steps> steps_;
  std::shared_ptr<RetentionBuffer> retention_;
  const std::shared_ptr<QueryServer> query_server_;
  OperationLog records_;
  std::uint64_t parent_ = 0;
  Engine engine_;
  // Of the holder of the turn:
  const bool keeps_, joined_;
  bool settled_;                   // nothing that was begun before this epoch is open any more
  bool behind_;                    // a new rank that may repeat what others have completed
  std::map<int, Answer> answers_;  // of this epoch
  std::set<int> informed_;         // in this epoch
};

}  // namespace flexccl

#endif  // FLEXCCL_RUNNER_OPERATION_RUNNER_H_
