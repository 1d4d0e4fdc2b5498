// Snapshots: what is live at a cut goes to the store, outside the fault domain of the device.
//
// At a cut the server waits until all streams have come to their ends, so that the state is that
// after all entries before the cut (A11). Then every live block is hashed, and
// what is known to stay as it is until the next optimizer step is copied while the program goes on
// (stage.h); the cut is the committed snapshot when that is done. A cut that cannot be snapshotted
// is cancelled, which is always safe: the log before it stays until a later one is snapshotted.
// Where other ranks may have the same contents, the agent compares digests meanwhile, and the cut
// waits for that as well.
//
// A cut is deferred while only reads follow it: the device stands still, so that they change
// nothing of it, and the client goes on with what it waits for, such as a loss. The snapshot is
// made when an entry comes that may change something, or when none comes: then the client is busy
// itself.
//
// This is how a snapshot is made. Beside it are, each for one question:
//   cut_schedule.h   which cuts are snapshotted
//   quiescence.h     has the device come to rest
//   cut_states.h     what becomes of a cut, and what is to be done then: pure
//   participant.h    does that
//   coordination.h   what has the agent to say, and has said
//   commit_waits.h   where is that waited for, and for how long
//   cut_cost.h       what has the snapshot cost
//
// Dispatch thread, unless it says otherwise. While copies are under way the store and what is open
// here belong to the copier's thread.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_SNAPSHOTTER_H_
#define PYFT_CHECKPOINT_SNAPSHOT_SNAPSHOTTER_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/device.h"
#include "checkpoint/memory/copier.h"
#include "checkpoint/memory/live_set.h"
#include "checkpoint/memory/pre_images.h"
#include "checkpoint/memory/stage.h"
#include "checkpoint/ranks.h"
#include "checkpoint/resources/communicators.h"
#include "checkpoint/snapshot/backoff.h"
#include "checkpoint/snapshot/commit_waits.h"
#include "checkpoint/snapshot/coordination.h"
#include "checkpoint/snapshot/cut_cost.h"
#include "checkpoint/snapshot/cut_schedule.h"
#include "checkpoint/snapshot/log.h"
#include "checkpoint/snapshot/options.h"
#include "checkpoint/snapshot/participant.h"
#include "checkpoint/snapshot/quiescence.h"
#include "checkpoint/store/store.h"

namespace pyft::checkpoint {

class Snapshotter : public Snapshots, private Copier::User {
 public:
  // All must outlive this.
  Snapshotter(const Log& log, Store& store, const Device& device, AgentChannel& agent,
              CommunicatorState& communicators, const SnapshotOptions& options);

  // The entry is a cut, with this scope as its payload; `position` is the ring position after it.
  // The cut is decided about (snapshotted or cancelled), which is published and wakes the thread
  // that waits for it: before this returns, or when it was deferred until then, its copies are made
  // and it is compared with other ranks'.
  void take(const ring::EntryHeader& header, const ring::CutMark& cut,
            std::span<const std::byte> scope, uint64_t position);
  // The entry is a gate: what follows may change what is being copied. Returns when it is not.
  void gate();
  // The entry that comes next takes memory away: by way of the device nothing of it may be copied.
  void before_unmapping();

  // A cut is deferred: nothing but reads may be executed before run_deferred().
  bool is_deferred() const { return deferred_.has_value(); }
  void run_deferred() {
    const std::lock_guard busy(busy_);
    run_deferred_locked();
  }
  // The entry that comes next: if the client does not wait for it the snapshot has not kept it
  // waiting.
  void next_entry(const ring::EntryHeader& header) {
    if (open_ && open_->cost.has_ended() && !nobody_waits_for(header)) account(header.time_ns);
  }

  // A cut that others have been compared with, and need nothing from before, becomes the
  // committed snapshot. Often: it costs next to nothing.
  void poll() {
    if (!participant_.waits()) return;
    const std::lock_guard busy(busy_);
    waits_.poll();
  }
  // Before something of this rank goes to others: waits for the comparison. Not for long once the
  // agent knows of the cut, since that may wait for a rank that waits for this one; half as long
  // after each wait that was in vain. Longer when it has found a difference.
  void commit_output() override;

  // With `jit`, any thread: what the snapshot of this step leaves to other ranks goes to the store,
  // for them to read. How many blocks are missing.
  uint64_t spill(uint64_t step);
  // The program needs the memory that snapshots take of the device's. False: they take none.
  bool make_room() override;

 private:
  // A cut that is neither snapshotted nor cancelled.
  struct Open {
    ring::Manifest manifest{};
    std::vector<ring::ManifestPlace> places;
    LiveSet live;
    uint64_t cuts = 0;  // since the last one that was snapshotted
    CutCost cost;
    LogUse use;
  };
  // The streams have come to their ends, or `problem` says why not.
  struct Quiesced {
    uint64_t came_ns = 0, drain_ns = 0;  // when the cut was taken; until then
    std::string problem;
  };
  bool peeks() const { return device_.background && device_.background->peeks(); }
  Quiesced quiesce(std::unique_lock<std::mutex>* busy);
  std::optional<Quiesced> give_way(const ring::CutMark& cut, const LogUse& use,
                                   std::unique_lock<std::mutex>* busy);
  bool is_snapshotted(const ring::CutMark& cut, const LogUse& use,
                      std::unique_lock<std::mutex>* busy);
  void open(const ring::EntryHeader& header, const ring::CutMark& cut, uint64_t position,
            const LogUse& use);
  void run_deferred_locked();
  void make(const ring::CutMark& cut, std::span<const std::byte> scope, std::string problem);
  std::string fill(const ring::CutMark& cut, std::span<const std::byte> scope, bool shared);
  void compare_again(const ring::CutMark& cut, uint64_t seq);
  static bool nobody_waits_for(const ring::EntryHeader& header);
  void account(uint64_t appended_ns);
  void copied(const Copier::Outcome& outcome) override;
  void close(const std::string& problem);
  void finish_copies();
  void keep_pre_images(std::unique_lock<std::mutex>* busy);
  void forget_lost();

  const Log log_;
  Store& store_;
  const Device device_;
  CommunicatorState& communicators_;
  const SnapshotOptions options_;
  Stage stage_;
  std::optional<PreImages> pre_images_;
  // The store, the stage and the pre-images are in use; of threads other than the copier's.
  std::mutex busy_;
  // Like the store the copier's thread's while that copies: what is open, and the participant.
  const Coordination coordination_;
  CommitBackoff backoff_;
  CutSchedule schedule_;
  Quiescence quiescence_;
  Participant participant_;
  CommitWaits waits_;
  std::optional<Open> open_;
  std::optional<ring::CutMark> deferred_;  // the open cut
  std::vector<std::byte> scope_;           // its payload
  SharePlan plan_;
  std::optional<Copier> copier_;  // last: its thread ends first
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_SNAPSHOTTER_H_
