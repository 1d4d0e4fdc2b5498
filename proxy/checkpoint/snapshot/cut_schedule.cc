#include "checkpoint/snapshot/cut_schedule.h"

#include <algorithm>

#include "ring/forced_cut.h"
#include "ring/hold.h"

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kMostCuts = 64;  // as in Interval

}  // namespace

CutSchedule::CutSchedule(const Log& log, Store& store, AgentChannel& agent,
                         CommunicatorState& communicators, const Coordination& coordination,
                         const SnapshotOptions& options)
    : log_(log),
      store_(store),
      agent_(agent),
      communicators_(communicators),
      coordination_(coordination),
      interval_(options.every, options.budget, options.late),
      step_room_(room(),
                 {.ring = store.has_committed() ? store.committed().manifest.position : 0}) {}

LogUse CutSchedule::use_at(const ring::CutMark& cut, uint64_t position) const {
  const ring::StoreHeader& store = store_.header();
  return {cut.step, position, cut.arena_head, store.journal_end.load(std::memory_order_relaxed)};
}

LogUse CutSchedule::room() const {
  const ring::Channel& channel = log_.channel;
  return {0, channel.ring_bytes(), channel.arena_bytes(), store_.header().journal_bytes};
}

// What is kept from one snapshot to the next fills its room, or has filled it.
bool CutSchedule::has_log_pressure() const {
  return communicators_.log_pressure() || log_.recovery.journal().lacks();
}

// A cut for want of space is not left out: the client waits for it, or will have to, unless the
// next step's cut makes room in time and is the better one (step_room.h). Of the others, multiples
// of K are snapshotted, and K is a power of two: ranks whose snapshots cost differently have cuts
// in common.
bool CutSchedule::is_due(const ring::CutMark& cut, const LogUse& now) const {
  if (cut.forced)
    return cut.forced == ring::kFull || !coordination_.is_coordinated() || !step_room_.lasts(now);
  if (cut.passed_over) return false;
  if (ring::is_hold_wanted(log_.channel.control(), cut.step)) return true;
  return cut.step % interval_.every() == 0 || !store_.has_committed();
}

void CutSchedule::left_out() {
  if (interval_.every() <= 1 || !has_log_pressure()) return;
  interval_.too_seldom();  // the client looks at K before the next cut
  show();
}

// What has come since the last snapshot tells what the cuts between two snapshots need. A third of
// the room: until the next snapshot is decided about, or has to be left out, the log goes on, and
// at half of it the client makes a cut by itself.
uint64_t CutSchedule::cuts_that_fit(const LogUse& now) const {
  constexpr double kShare = 1.0 / 3;
  const auto part = [](uint64_t from, uint64_t to, uint64_t room) {
    return room ? static_cast<double>(to - std::min(from, to)) / static_cast<double>(room) : 0;
  };
  const LogUse room = this->room();
  const double used =
      std::max({part(since_->ring, now.ring, room.ring), part(since_->arena, now.arena, room.arena),
                part(since_->journal, now.journal, room.journal)});
  const auto cuts = static_cast<double>(now.step - std::min(since_->step, now.step));
  if (cuts < 1) return kMostCuts;
  return static_cast<uint64_t>(std::min<double>(kMostCuts, kShare * cuts / used));  // or infinity
}

// K is bounded by what has to be kept, here and where other ranks have to hold the same cut.
void CutSchedule::keep_pace(const LogUse& now) {
  step_room_.step(now);
  if (!since_) since_ = now;
  const uint64_t before = interval_.every();
  if (const uint64_t most = cuts_that_fit(now); most < before) {
    interval_.at_most(most);
    agent_.tell_pace(interval_.every());
  }
  if (const uint64_t others = agent_.pace_of_others()) interval_.at_most(others);
  if (interval_.every() != before) show();  // the client looks at K before the next cut
}

void CutSchedule::snapshot_taken(uint64_t cuts, uint64_t began_ns, uint64_t spent_ns) {
  interval_.snapshot_taken(cuts, began_ns, spent_ns);
  show();
}

void CutSchedule::show() const {
  store_.header().cut_every.store(interval_.every(), std::memory_order_relaxed);
  log_.channel.control().cut_every.store(interval_.every(), std::memory_order_relaxed);
}

}  // namespace pyft::checkpoint
