// This rank as a participant of the two-phase commit of cuts: does what the machine of a cut's
// states says (cut_states.h), in the store, towards the agent, the client and the report.
//
// Like the store it is the copier's thread's while that copies, else the dispatch thread's. Any
// thread may ask whether a cut waits.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_PARTICIPANT_H_
#define PYFT_CHECKPOINT_SNAPSHOT_PARTICIPANT_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/memory/pre_images.h"
#include "checkpoint/ranks.h"
#include "checkpoint/resources/communicators.h"
#include "checkpoint/snapshot/backoff.h"
#include "checkpoint/snapshot/coordination.h"
#include "checkpoint/snapshot/cut_schedule.h"
#include "checkpoint/snapshot/cut_states.h"
#include "checkpoint/snapshot/log.h"
#include "checkpoint/store/store.h"

namespace pyft::checkpoint {

// What else learns of a committed snapshot, and how long it may be waited for.
struct CutUsers {
  CutSchedule& schedule;
  CommitBackoff& backoff;
  std::optional<PreImages>& pre_images;
};

class Participant {
 public:
  // All must outlive this.
  Participant(const Log& log, Store& store, AgentChannel& agent, CommunicatorState& communicators,
              const Coordination& coordination, const CutUsers& users);

  const CutStates& states() const { return states_; }
  CutStates& states() { return states_; }
  // A server that died right after it had made a cut the committed snapshot has told no other
  // process.
  void tell_last();
  // A cut is being made. `full`: the client waits for it.
  void begin(const CutFacts& cut, bool full);
  // Does what the machine says. `why`: for a cut that could not be snapshotted.
  void perform(const CutActions& todo, const std::string& why = {});

  // A cut waits for other ranks, or for what they lack from before it. Then store and machine
  // belong to the dispatch thread.
  bool waits() const { return waits_.load(); }
  // The client has no room until that is decided, and has waited long enough. True once.
  bool is_wanted();
  // Nothing from before it is unacknowledged. Other ranks are seldom looked at.
  bool is_acknowledged();
  // Since when the agent compares the last cut.
  uint64_t asked_ns() const { return asked_ns_; }
  // Whether output has to wait for that comparison; it need not any more.
  bool holds_output() const { return released_ != states_.asked(); }
  void release_output() { released_ = states_.asked(); }

 private:
  // False: it is none of those.
  bool tell(const CutAction& action);
  bool change_store(const CutAction& action);
  void tell_users(const CutAction& action, const std::string& why);
  void stage(uint64_t name);
  void wait_for_others();
  void promote();
  void expect_pre_images();
  void decided(uint64_t cut, bool snapshotted);
  void cancelled(const std::string& why);
  bool stop_waiting();

  const Log log_;
  Store& store_;
  AgentChannel& agent_;
  CommunicatorState& communicators_;
  const Coordination& coordination_;
  const CutUsers users_;
  CutStates states_;
  std::atomic<bool> waits_{false};
  uint64_t asked_ns_ = 0;
  uint64_t wanted_until_ns_ = 0;  // the client waits so long for the cut that waits for other ranks
  bool full_ = false;             // the client waits for the open cut
  uint64_t released_ = 0;         // the last cut for which nothing is held back any more
  uint64_t next_look_ns_ = 0;     // whether other ranks lack something
  bool said_ = false, said_pre_images_ = false;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_PARTICIPANT_H_
