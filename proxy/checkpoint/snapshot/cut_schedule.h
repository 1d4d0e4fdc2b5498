// Which cuts are snapshotted: each K-th, as their cost allows and the log's room needs, and those
// that the client makes by itself for want of space. Dispatch thread, but for committed().
#ifndef PYFT_CHECKPOINT_SNAPSHOT_CUT_SCHEDULE_H_
#define PYFT_CHECKPOINT_SNAPSHOT_CUT_SCHEDULE_H_

#include <cstdint>
#include <optional>

#include "checkpoint/ranks.h"
#include "checkpoint/resources/communicators.h"
#include "checkpoint/snapshot/coordination.h"
#include "checkpoint/snapshot/interval.h"
#include "checkpoint/snapshot/log.h"
#include "checkpoint/snapshot/options.h"
#include "checkpoint/snapshot/step_room.h"
#include "checkpoint/store/store.h"

namespace pyft::checkpoint {

class CutSchedule {
 public:
  // All must outlive this.
  CutSchedule(const Log& log, Store& store, AgentChannel& agent, CommunicatorState& communicators,
              const Coordination& coordination, const SnapshotOptions& options);

  // How much of what has to be kept there is at a cut.
  LogUse use_at(const ring::CutMark& cut, uint64_t position) const;
  // A step's cut has come, snapshotted or not.
  void keep_pace(const LogUse& now);
  bool is_due(const ring::CutMark& cut, const LogUse& now) const;
  // A cut has been left out.
  void left_out();
  // Whether the copies of the next one are made while the program goes on.
  bool late() const { return interval_.late(); }

  // A cut is whole in the store; it is committed. Whose thread the store is.
  void whole(const LogUse& use) { since_ = use; }
  void committed() {
    if (since_) step_room_.line(*since_);
  }
  // Its cost is known (Interval::snapshot_taken).
  void snapshot_taken(uint64_t cuts, uint64_t began_ns, uint64_t spent_ns);
  // To the report, and to the client, which says what is live at cuts that are snapshotted.
  void show() const;

 private:
  bool has_log_pressure() const;
  LogUse room() const;
  uint64_t cuts_that_fit(const LogUse& now) const;

  const Log log_;
  Store& store_;
  AgentChannel& agent_;
  CommunicatorState& communicators_;
  const Coordination& coordination_;
  Interval interval_;
  StepRoom step_room_;
  std::optional<LogUse> since_;  // the last cut that was snapshotted
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_CUT_SCHEDULE_H_
