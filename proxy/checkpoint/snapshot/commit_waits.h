// Where a rank waits for the commit of a cut, and for how long: a cut for the one before it, output
// for the comparison with other ranks. No wait without a deadline. Dispatch thread.
//
// Waits at cuts let go of `busy` meanwhile: another rank may need what it guards sooner than it can
// answer.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_COMMIT_WAITS_H_
#define PYFT_CHECKPOINT_SNAPSHOT_COMMIT_WAITS_H_

#include <cstdint>
#include <mutex>

#include "checkpoint/device.h"
#include "checkpoint/snapshot/backoff.h"
#include "checkpoint/snapshot/coordination.h"
#include "checkpoint/snapshot/log.h"
#include "checkpoint/snapshot/options.h"
#include "checkpoint/snapshot/participant.h"
#include "checkpoint/store/store.h"

namespace pyft::checkpoint {

class CommitWaits {
 public:
  // All must outlive this.
  CommitWaits(const Log& log, Store& store, DeviceState& device, const Coordination& coordination,
              const SnapshotOptions& options, Participant& participant, CommitBackoff& backoff);

  // What the agent and other ranks have said meanwhile is done about the cut that waits.
  void poll();
  // A cut is held until other ranks' are known.
  bool is_undecided() const;
  void await_decision(std::unique_lock<std::mutex>* busy);
  // A step's cut is due while another one waits.
  void make_way(std::unique_lock<std::mutex>* busy);
  // The client has no room while a cut waits for those of other ranks. If that can be no line,
  // another one may be. False: there is a line.
  bool await_line(std::unique_lock<std::mutex>* busy);
  // A cut of which other ranks' depend becomes the committed snapshot when the agent says so, or
  // never. It waits for nothing but the agent here. False: the agent has said nothing.
  bool force_decision(bool for_room = false);
  // The cut that comes may be made now. False: it is left out.
  bool admit(const ring::CutMark& cut);
  // Before something of this rank goes to others. True: it has waited.
  bool commit_output();

 private:
  void await_others(uint64_t most_ns, std::unique_lock<std::mutex>* busy);
  // False: the client or the agent is gone, or a replay has begun.
  bool await_until(uint64_t deadline, bool replays, std::unique_lock<std::mutex>* busy);
  void pass();
  bool may_hold_output() const;
  bool is_alone() const { return log_.liveness.check() != ring::WaitStatus::kOk; }

  const Log log_;
  Store& store_;
  DeviceState& device_;
  const Coordination& coordination_;
  const SnapshotOptions& options_;
  Participant& participant_;
  CommitBackoff& backoff_;
  Backoff hold_;  // of output
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_COMMIT_WAITS_H_
