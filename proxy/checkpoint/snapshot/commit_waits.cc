#include "checkpoint/snapshot/commit_waits.h"

#include <unistd.h>

#include <algorithm>

#include "checkpoint/bytes_passed.h"
#include "ring/wait.h"

namespace pyft::checkpoint {

CommitWaits::CommitWaits(const Log& log, Store& store, DeviceState& device,
                         const Coordination& coordination, const SnapshotOptions& options,
                         Participant& participant, CommitBackoff& backoff)
    : log_(log),
      store_(store),
      device_(device),
      coordination_(coordination),
      options_(options),
      participant_(participant),
      backoff_(backoff),
      hold_(options.hold_ns) {}

void CommitWaits::poll() {
  if (!participant_.waits()) return;
  CutStates& states = participant_.states();
  const bool replaying = log_.recovery.replaying();
  if (!replaying && !states.is_aborted(coordination_.decisions())) participant_.is_acknowledged();
  for (CutActions todo; !(todo = states.look(coordination_.decisions(), replaying)).empty();)
    participant_.perform(todo);
  if (!participant_.waits() || replaying || !states.is_acknowledged()) return;
  if (!participant_.is_wanted()) return;
  // The client has no room until this is decided, and the others may need what it does next.
  backoff_.waited(true);
  force_decision(true);
}

bool CommitWaits::is_undecided() const {
  return participant_.waits() && participant_.states().is_compared() &&
         !coordination_.is_coordinated() && !log_.recovery.replaying();
}

// Another thread may need this core, and the device this one.
void CommitWaits::pass() {
  pass_turn();
  if (!device_.work()) usleep(50);
}

bool CommitWaits::await_until(uint64_t deadline, bool replays, std::unique_lock<std::mutex>* busy) {
  for (poll(); participant_.waits() && ring::now_ns() < deadline; poll()) {
    if (is_alone() || (!replays && log_.recovery.replaying())) return false;
    busy->unlock();
    pass();
    busy->lock();
  }
  return true;
}

// The cut before this one may not be decided yet: its copies may have been made just now, the
// agent's answer or a rank's acknowledgement may be on its way. It comes a moment later, unless
// another rank is far behind. A cut that is left out is not compared, so that what has changed
// silently before it would go to other ranks.
void CommitWaits::await_decision(std::unique_lock<std::mutex>* busy) {
  if (is_undecided() && await_until(ring::now_ns() + backoff_.decision_ns(), true, busy))
    backoff_.waited(participant_.waits());
}

// The cut that waits is the line of all in a moment, or other ranks are still on their way to it.
// What they need of this rank for that has been dispatched before it.
void CommitWaits::await_others(uint64_t most_ns, std::unique_lock<std::mutex>* busy) {
  if (await_until(ring::now_ns() + most_ns, false, busy)) backoff_.waited(participant_.waits());
}

bool CommitWaits::await_line(std::unique_lock<std::mutex>* busy) {
  const uint64_t line = participant_.states().last();
  await_others(backoff_.line_ns(), busy);
  if (is_alone()) return false;
  if (participant_.waits()) force_decision();
  return participant_.waits() || participant_.states().last() != line;
}

// If the one that waits is a step's as well the others come there, and this cut is only left out if
// they do not. One for want of space fits no cut of theirs, but by chance. Where the one before is
// being audited this one is left out, too.
void CommitWaits::make_way(std::unique_lock<std::mutex>* busy) {
  if (log_.recovery.replaying()) return;
  if (options_.audits)
    static_cast<void>(await_until(ring::now_ns() + options_.audit_wait_ns, false, busy));
  else if (participant_.states().cut().forced)
    static_cast<void>(force_decision());
  else
    await_others(backoff_.decision_ns() + backoff_.others_ns(), busy);
}

bool CommitWaits::force_decision(bool for_room) {
  const uint64_t deadline = ring::now_ns() + options_.answer_ns;
  CutStates& states = participant_.states();
  participant_.perform(states.ask());
  for (;;) {
    participant_.perform(states.answered(coordination_.decisions()));
    if (!participant_.waits()) return true;
    if (ring::now_ns() > deadline) {
      participant_.perform(states.unanswered(for_room),
                           "the agent does not say what becomes of the one before it");
      return false;
    }
    pass();
  }
}

bool CommitWaits::admit(const ring::CutMark& cut) {
  CutStates& states = participant_.states();
  switch (states.admit(coordination_.facts(cut), coordination_.rules())) {
    case CutStates::Admission::kTake:
      return true;
    case CutStates::Admission::kSkip:
      return false;
    case CutStates::Admission::kAskFirst:
      return force_decision();
    case CutStates::Admission::kPromoteFirst:
      break;
  }
  if (!states.is_committed(coordination_.decisions()))
    store_.header().unchecked_cuts.fetch_add(1, std::memory_order_relaxed);
  participant_.perform(states.promote());
  return true;
}

bool CommitWaits::may_hold_output() const {
  const ring::StoreHeader& agent = store_.header();
  const uint64_t now = ring::now_ns(), since = participant_.asked_ns();
  const uint64_t asked = participant_.states().asked();
  if (now >= since + options_.hold_limit_ns) return false;
  if (agent.disputed_step.load() == asked || agent.taken_step.load() < asked) return true;
  return now < std::max(since, agent.taken_ns.load()) + hold_.ns();
}

// A replay gives nothing away; what it finishes with others was begun before the fault.
bool CommitWaits::commit_output() {
  if (!participant_.holds_output() || log_.recovery.replaying() || coordination_.is_coordinated())
    return false;
  const auto is_agreed = [this] { return coordination_.is_agreed(participant_.states().asked()); };
  while (!is_agreed() && may_hold_output()) {
    if (is_alone()) return false;
    pass();
  }
  participant_.release_output();
  hold_.waited(!is_agreed());
  return true;
}

}  // namespace pyft::checkpoint
