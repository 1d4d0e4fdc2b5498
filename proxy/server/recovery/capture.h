// Captures: what is live at a cut goes to the store, outside the fault domain of the device.
//
// At a cut the server waits until all streams have come to their ends, so that the state is that
// after all entries before the cut (design-recovery.md, A11). Then every live block is hashed, and
// what is known to stay as it is until the next optimizer step is copied while the program goes on
// (stage.h); the cut is the recovery point when that is done. A cut that cannot be captured is
// cancelled, which is always safe: the log before it stays until a later one is captured. Where
// other ranks may have the same contents, the agent compares digests meanwhile, and the cut waits
// for that as well.
//
// A cut is put off while only reads follow it: the device stands still, so that they change nothing
// of it, and the client goes on with what it waits for, such as a loss. The capture is made when an
// entry comes that may change something, or when none comes: then the client is busy itself.
//
// Dispatch thread, unless it says otherwise. While copies are under way the store and what is open
// here belong to the copier's thread.
#ifndef PYFT_SERVER_RECOVERY_CAPTURE_H_
#define PYFT_SERVER_RECOVERY_CAPTURE_H_

#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/recovery/calls.h"
#include "server/recovery/copier.h"
#include "server/recovery/live_set.h"
#include "server/recovery/pace.h"
#include "server/recovery/shadows.h"
#include "server/recovery/stage.h"
#include "server/recovery/store.h"
#include "server/session.h"

namespace pyft::server {

struct CaptureOptions {
  uint64_t join_timeout_ns = 2'000'000'000;  // without progress: a stream may wait for another rank
  uint64_t every = 0;                        // each K-th cut; 0: as the cost allows
  double budget = 0.01;                      // of the time between two cuts
  uint64_t join_limit_ns = 60'000'000'000;   // with progress
  Late late = Late::kAsCostSays;
  uint64_t hold_ns = 1'000'000'000;         // collectives wait so long for a comparison
  uint64_t hold_limit_ns = 60'000'000'000;  // with an agent that is busy, or ends meanwhile
  uint64_t answer_ns = 2'000'000'000;       // for an agent that has to decide about a cut
  bool puts_off = false;                    // cuts, while only reads follow
  bool jit = false;                         // what other ranks have as well stays on the device
  uint64_t arbitrates = 0;  // step about whose cut this server's replay decides; 0: none
  // The step of the last cut that the agent has compared with other ranks'; nullptr: it does not.
  const std::atomic<uint64_t>* settled = nullptr;
  // The last that is to become the recovery point; nullptr: the same as is compared.
  const std::atomic<uint64_t>* committed = nullptr;
  // The last that can be no line of all ranks.
  const std::atomic<uint64_t>* dropped = nullptr;
};
// PYFT_CUT_EVERY, PYFT_LATE_COPIES, PYFT_ARBITRATE, PYFT_PROTECT
CaptureOptions capture_options();

class Capture {
 public:
  Capture(Session& session, Store& store, RecoveryCalls calls, const CaptureOptions& options);

  // The entry is a cut; `position` is the ring position after it. The cut is decided about
  // (captured or cancelled), which is published and wakes who waits for it: before this returns, or
  // when it was put off until then, its copies are made and it is compared with other ranks'.
  // Broken: the entry is no cut.
  Status take(const ring::EntryHeader& header, std::span<const std::byte> body,
              std::span<const std::byte> payload, uint64_t position);
  // The entry is a gate: what follows may change what is being copied. Returns when it is not.
  Status gate();
  // The entry that comes next takes memory away: by way of the device nothing of it may be copied.
  void before_unmapping();

  // A cut is put off: nothing but reads may be executed before make_up().
  bool is_put_off() const { return put_off_.has_value(); }
  void make_up() {
    const std::lock_guard busy(busy_);
    make_up_held();
  }
  // The entry that comes next: a capture keeps nobody waiting that the client has called for later.
  void next_entry(const ring::EntryHeader& header) {
    if (open_ && open_->ended_ns && !nobody_waits_for(header)) weigh(header.time_ns);
  }

  // A cut that others have been compared with, and need nothing from before, becomes the recovery
  // point. Often: it costs next to nothing.
  void go_on() {
    if (!waits_.load(std::memory_order_acquire)) return;
    const std::lock_guard busy(busy_);
    go_on_held();
  }
  // Before something of this rank goes to others: waits for the comparison. Not for long once the
  // agent knows of the cut, since that may wait for a rank that waits for this one; half as long
  // after each wait that was in vain. Longer when it has found a difference.
  void hold_back();

  // With `jit`, any thread: what the point of this step leaves to other ranks goes to the store,
  // for them to read. How many blocks are missing.
  uint64_t spill(uint64_t step);
  // The program needs the memory that captures take of the device's. False: they take none.
  bool make_room();

 private:
  // How much of what has to be kept there was at a cut: positions, which only grow.
  struct Use {
    uint64_t step = 0, ring = 0, arena = 0, journal = 0;
  };
  Use use_at(const ring::CutMark& cut, uint64_t position) const;
  // A cut that is neither captured nor cancelled.
  struct Open {
    ring::Manifest manifest{};
    std::vector<ring::ManifestPlace> places;
    LiveSet live;
    uint64_t cuts = 0;  // since the last one that was captured
    uint64_t later_bytes = 0;
    uint64_t came_ns = 0, join_ns = 0;    // as in Stood
    uint64_t began_ns = 0, ended_ns = 0;  // the work in this thread, without waiting
    uint64_t used_ns = 0;                 // processor time of that, where it is the processor's
    std::optional<uint64_t> kept_ns;      // how long entries waited for it
    uint64_t scope_ns = 0;  // the client has found out what is live, with no work for the server
    bool captured = false;
    bool compared = false;  // by the agent, and not the recovery point before it is
    bool waits = false;     // for that, or for other ranks that lack something from before it
    bool forced = false;
    uint64_t name = 0;
    Use use;
    bool shared = false;  // it may name what other ranks keep
  };
  void make_up_held();
  void go_on_held();
  void keep_shadows(std::unique_lock<std::mutex>* busy);
  void forget_lost();
  void expect_shadows();
  // The streams have come to their ends, or `problem` says why not.
  struct Stood {
    uint64_t came_ns = 0, join_ns = 0;  // when the cut was taken; until then
    std::string problem;
  };
  bool is_due(const ring::CutMark& cut);
  bool is_crowded() const;
  void keep_pace(const Use& now);
  uint64_t cuts_that_fit(const Use& now) const;
  bool await_line(std::unique_lock<std::mutex>* busy);
  // What the agent and this rank call a cut. Of those for want of space there are several in a
  // step.
  uint64_t name_of(const ring::CutMark& cut) const { return agrees() ? cut.number : cut.step; }
  Stood stand_still(std::unique_lock<std::mutex>* busy);
  bool comes_to_rest();
  bool is_idle_before(uint64_t deadline);
  void make(const ring::CutMark& cut, std::span<const std::byte> scope, std::string problem);
  std::string fill(const ring::CutMark& cut, std::span<const std::byte> scope);
  static bool nobody_waits_for(const ring::EntryHeader& header);
  void weigh(uint64_t appended_ns);
  void compare_again(const ring::CutMark& cut, uint64_t seq);
  std::string join();
  bool compares() const { return options_.settled && store_.header().compares.load(); }
  bool is_settled() const {
    return options_.settled && options_.settled->load(std::memory_order_acquire) >= asked_;
  }
  // Of a cut that waits: as far as the agent has to do with it, it may be the recovery point.
  bool is_checked() const {
    const auto* const committed = options_.committed ? options_.committed : options_.settled;
    return !waits_compared_ || (committed && committed->load(std::memory_order_acquire) >= asked_);
  }
  bool is_delivered();
  void tell_held();
  // Points of this rank and of others name each other.
  bool shares() const { return compares() && !agrees() && store_.header().shares.load(); }
  bool withdraw();
  bool is_undecided() const;
  void await_decision(std::unique_lock<std::mutex>* busy);
  // All ranks that go back together have to hold a cut: there is no other way to a recovery point.
  bool agrees() const { return options_.settled && store_.header().compares.load() == 2; }
  bool is_dropped() const {
    return waits_compared_ && options_.dropped &&
           options_.dropped->load(std::memory_order_acquire) >= asked_ && !is_checked();
  }
  void drop_waiting();
  void tell(const ring::CutMark& cut, bool whole);
  bool is_patient() const;
  bool gives_way(const ring::CutMark& cut);
  void leave_out(const ring::CutMark& cut);
  void copied(const Copier::Outcome& outcome);
  void publish();
  void publish_waiting();
  void close(const std::string& problem);
  void settle();
  void show_pace();
  void decided(uint64_t cut, bool captured);
  void cancelled(const std::string& why);

  Session& session_;
  Store& store_;
  RecoveryCalls calls_;
  CaptureOptions options_;
  Stage stage_;
  Pace pace_;
  std::optional<Shadows> shadows_;
  // The store, the stage and the shadows are in use; of threads other than the copier's.
  std::mutex busy_;
  uint64_t last_captured_ = 0;  // cut; it may wait in the store
  std::optional<Open> open_;
  std::optional<ring::CutMark> put_off_;  // the open cut
  std::optional<Use> since_;              // the last cut that was captured
  uint64_t wanted_until_ns_ = 0;  // the client waits so long for the cut that waits for other ranks
  std::vector<std::byte> scope_;  // its payload
  uint64_t asked_ = 0, asked_ns_ = 0;  // the step whose cut the agent compares, and since when
  uint64_t held_ = 0;                  // the last one that something was held back for
  uint64_t hold_ns_, decision_ns_;     // at most so long; and a cut for the one before
  // The last cut is whole in the store, which belongs to the dispatch thread, and not compared yet,
  // or something from before it not delivered.
  std::atomic<bool> waits_{false};
  bool waits_compared_ = false;  // whether it is compared at all,
  bool waits_shared_ = false;    // and depends on other ranks'
  bool delivered_ = false;       // what came before it
  uint64_t look_again_ns_ = 0;   // whether that is so
  uint64_t told_held_ = 0;       // the last step of which the agent knows it
  SharePlan plan_;
  uint64_t restless_gates_ = 0, restless_pause_ = 4;  // at so many more nothing is learned
  bool said_ = false, said_shadows_ = false;
  std::optional<Copier> copier_;  // last: its thread ends first
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_CAPTURE_H_
