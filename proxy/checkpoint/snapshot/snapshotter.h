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
// Dispatch thread, unless it says otherwise. While copies are under way the store and what is open
// here belong to the copier's thread.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_SNAPSHOTTER_H_
#define PYFT_CHECKPOINT_SNAPSHOT_SNAPSHOTTER_H_

#include <atomic>
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
#include "checkpoint/snapshot/cut_states.h"
#include "checkpoint/snapshot/interval.h"
#include "checkpoint/snapshot/log.h"
#include "checkpoint/snapshot/step_room.h"
#include "checkpoint/store/store.h"

namespace pyft::checkpoint {

struct SnapshotOptions {
  uint64_t drain_timeout_ns =
      2'000'000'000;                         // without progress: a stream may wait for another rank
  uint64_t every = 0;                        // each K-th cut; 0: as the cost allows
  double budget = 0.01;                      // of the time between two cuts
  uint64_t drain_limit_ns = 60'000'000'000;  // with progress
  Late late = Late::kAsCostSays;
  uint64_t hold_ns = 1'000'000'000;         // collectives wait so long for a comparison
  uint64_t hold_limit_ns = 60'000'000'000;  // with an agent that is busy, or ends meanwhile
  uint64_t answer_ns = 2'000'000'000;       // for an agent that has to decide about a cut
  bool defers = false;                      // cuts, while only reads follow
  bool jit = false;                         // what other ranks have as well stays on the device
  uint64_t arbitrates = 0;  // step about whose cut this server's replay decides; 0: none
  // The step of the last cut that the agent has compared with other ranks'; nullptr: it does not.
  const std::atomic<uint64_t>* agreed = nullptr;
  // The last that is to become the committed snapshot; nullptr: the same as is compared.
  const std::atomic<uint64_t>* committed = nullptr;
  // The last that can be no line of all ranks.
  const std::atomic<uint64_t>* aborted = nullptr;
};

class Snapshotter : public Snapshots, private Copier::User {
 public:
  // All must outlive this.
  Snapshotter(const Log& log, Store& store, const Device& device, AgentChannel& agent,
              CommunicatorState& communicators, const SnapshotOptions& options);

  // The entry is a cut, with this scope as its payload; `position` is the ring position after it.
  // The cut is decided about (snapshotted or cancelled), which is published and wakes who waits for
  // it: before this returns, or when it was deferred until then, its copies are made and it is
  // compared with other ranks'.
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
  // The entry that comes next: a snapshot keeps nobody waiting that the client has called for
  // later.
  void next_entry(const ring::EntryHeader& header) {
    if (open_ && open_->ended_ns && !nobody_waits_for(header)) account(header.time_ns);
  }

  // A cut that others have been compared with, and need nothing from before, becomes the
  // committed snapshot. Often: it costs next to nothing.
  void poll() {
    if (!waits_.load(std::memory_order_acquire)) return;
    const std::lock_guard busy(busy_);
    poll_locked();
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
  LogUse use_at(const ring::CutMark& cut, uint64_t position) const;
  // A cut that is neither snapshotted nor cancelled.
  struct Open {
    ring::Manifest manifest{};
    std::vector<ring::ManifestPlace> places;
    LiveSet live;
    uint64_t cuts = 0;  // since the last one that was snapshotted
    uint64_t later_bytes = 0, later_ns = 0;
    uint64_t came_ns = 0, drain_ns = 0;   // as in Quiesced
    uint64_t began_ns = 0, ended_ns = 0;  // the work in this thread, without waiting
    uint64_t used_ns = 0;                 // processor time of that, where it is the processor's
    std::optional<uint64_t> kept_ns;      // how long entries waited for it
    uint64_t scope_ns = 0;  // the client has found out what is live, with no work for the server
    LogUse use;
  };
  bool peeks() const { return device_.background && device_.background->peeks(); }
  void run_deferred_locked();
  void poll_locked();
  void keep_pre_images(std::unique_lock<std::mutex>* busy);
  void forget_lost();
  void expect_pre_images();
  // The streams have come to their ends, or `problem` says why not.
  struct Quiesced {
    uint64_t came_ns = 0, drain_ns = 0;  // when the cut was taken; until then
    std::string problem;
  };
  bool is_due(const ring::CutMark& cut, const LogUse& now);
  bool has_log_pressure() const;
  LogUse room() const;
  void keep_pace(const LogUse& now);
  uint64_t cuts_that_fit(const LogUse& now) const;
  bool await_line(std::unique_lock<std::mutex>* busy);
  void await_others(std::unique_lock<std::mutex>* busy);
  void make_way(std::unique_lock<std::mutex>* busy);
  uint64_t patience_ns() const;
  void waited(bool in_vain);
  // What the agent and this rank call a cut. Of those for want of space there are several in a
  // step.
  uint64_t name_of(const ring::CutMark& cut) const {
    return is_coordinated() ? cut.number : cut.step;
  }
  Quiesced quiesce(std::unique_lock<std::mutex>* busy);
  bool is_quiescent();
  bool is_idle_before(uint64_t deadline);
  void make(const ring::CutMark& cut, std::span<const std::byte> scope, std::string problem);
  std::string fill(const ring::CutMark& cut, std::span<const std::byte> scope, bool shared);
  static bool nobody_waits_for(const ring::EntryHeader& header);
  void account(uint64_t appended_ns);
  void compare_again(const ring::CutMark& cut, uint64_t seq);
  std::string drain();
  bool compares() const { return options_.agreed && store_.header().compares.load(); }
  bool is_agreed() const {
    return options_.agreed && options_.agreed->load(std::memory_order_acquire) >= states_.asked();
  }
  // What the agent has said so far.
  CutDecisions decisions() const {
    const auto last = [](const std::atomic<uint64_t>* of) {
      return of ? of->load(std::memory_order_acquire) : 0;
    };
    return {last(options_.committed ? options_.committed : options_.agreed),
            last(options_.aborted)};
  }
  bool is_acknowledged();
  // Snapshots of this rank and of others name each other.
  bool shares() const { return compares() && !is_coordinated() && store_.header().shares.load(); }
  bool force_decision(bool for_room = false);
  bool is_undecided() const;
  void await_decision(std::unique_lock<std::mutex>* busy);
  // All ranks that go back together have to hold a cut: there is no other way to a committed
  // snapshot.
  bool is_coordinated() const { return options_.agreed && store_.header().compares.load() == 2; }
  CutRules rules() const { return {compares(), shares(), is_coordinated()}; }
  CutFacts facts(const ring::CutMark& cut, uint64_t seq = 0) const {
    return {cut.number, seq, name_of(cut), cut.forced != 0};
  }
  // Does what the machine says. `why`: for a cut that could not be snapshotted.
  void perform(const CutActions& todo, const std::string& why = {});
  // False: it is none of those.
  bool tell(const CutAction& action);
  bool change_store(const CutAction& action);
  void tell_users(const CutAction& action, const std::string& why);
  void stage(uint64_t name);
  void promote();
  void wait_for_others();
  bool may_wait() const;
  bool admit(const ring::CutMark& cut);
  void copied(const Copier::Outcome& outcome) override;
  void close(const std::string& problem);
  void finish_copies();
  void show_interval();
  void decided(uint64_t cut, bool snapshotted);
  void cancelled(const std::string& why);

  const Log log_;
  Store& store_;
  const Device device_;
  AgentChannel& agent_;
  CommunicatorState& communicators_;
  SnapshotOptions options_;
  Stage stage_;
  Interval interval_;
  std::optional<PreImages> pre_images_;
  // The store, the stage and the pre-images are in use; of threads other than the copier's.
  std::mutex busy_;
  // Like the store the copier's thread's while that copies.
  CutStates states_;
  std::optional<Open> open_;
  std::optional<ring::CutMark> deferred_;  // the open cut
  std::optional<LogUse> since_;            // the last cut that was snapshotted
  StepRoom step_room_;
  uint64_t longest_ns_ = 0;       // that a snapshot has taken
  uint64_t wanted_until_ns_ = 0;  // the client waits so long for the cut that waits for other ranks
  std::vector<std::byte> scope_;  // its payload
  bool full_ = false;             // the client waits for the open cut
  uint64_t asked_ns_ = 0;         // since when the agent compares the last cut
  uint64_t held_ = 0;             // the last one that something was held back for
  uint64_t hold_ns_, decision_ns_;  // at most so long; and a cut for the one before
  // The machine says so, and store and machine belong to the dispatch thread.
  std::atomic<bool> waits_{false};
  uint64_t next_look_ns_ = 0;  // whether other ranks lack something
  SharePlan plan_;
  uint64_t restless_gates_ = 0, restless_pause_ = 4;  // at so many more nothing is learned
  bool said_ = false, said_pre_images_ = false;
  std::optional<Copier> copier_;  // last: its thread ends first
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_SNAPSHOTTER_H_
