// The part of Snapshotter that has to do with other ranks: cuts that wait until they are compared.
#include <unistd.h>

#include <algorithm>

#include "checkpoint/bytes_passed.h"
#include "checkpoint/snapshot/cut_comparison.h"
#include "checkpoint/snapshot/snapshotter.h"
#include "pyft/log.h"
#include "ring/forced_cut.h"
#include "ring/wait.h"

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kHoldRange = 1024;
constexpr uint64_t kLookNs = 1'000'000;

void add(std::atomic<uint64_t>& sum, uint64_t value) {
  sum.fetch_add(value, std::memory_order_relaxed);
}

}  // namespace

bool Snapshotter::is_acknowledged() {
  if (states_.is_acknowledged()) return true;
  const uint64_t now = ring::now_ns();
  if (now < next_look_ns_) return false;
  next_look_ns_ = now + kLookNs;
  if (communicators_.acknowledged(states_.last())) states_.acknowledge();
  return states_.is_acknowledged();
}

// A cut is held until other ranks' are known.
bool Snapshotter::is_undecided() const {
  return waits_ && states_.is_compared() && !is_coordinated() && !log_.recovery.replaying();
}

// The cut before this one may not be decided yet: its copies may have been made just now, the
// agent's answer or that of a rank to which something is owed may be on its way. It comes a moment
// later, unless another rank is far behind. A cut that is left out is not compared, so that what
// has changed silently before it would go to other ranks.
void Snapshotter::await_decision(std::unique_lock<std::mutex>* busy) {
  if (!is_undecided()) return;
  const uint64_t deadline = ring::now_ns() + decision_ns_;
  for (poll_locked(); waits_ && ring::now_ns() < deadline; poll_locked()) {
    if (log_.liveness.check() != ring::WaitStatus::kOk) return;
    busy->unlock();  // another rank may need what is here sooner than it can answer
    pass_turn();
    if (!device_.state.work()) usleep(50);
    busy->lock();
  }
  waited(waits_);
}

void Snapshotter::poll_locked() {
  if (!waits_) return;
  const bool replaying = log_.recovery.replaying();
  if (!replaying && !states_.is_aborted(decisions())) is_acknowledged();
  for (CutActions todo; !(todo = states_.look(decisions(), replaying)).empty();) perform(todo);
  if (!waits_ || replaying || !states_.is_acknowledged()) return;
  if (!wanted_until_ns_ || ring::now_ns() < wanted_until_ns_) return;
  // The client has no room until this is decided, and the others may need what it does next.
  wanted_until_ns_ = 0;
  waited(true);
  force_decision(true);
}

// Where all ranks have to hold the same cut another one may copy now, as long as this one has, or
// for the first time. Half as long after each wait that was in vain.
uint64_t Snapshotter::patience_ns() const {
  constexpr uint64_t kOthers = 4;
  const uint64_t whole = std::max<uint64_t>(options_.hold_ns, 1);
  const double part = static_cast<double>(decision_ns_) / static_cast<double>(whole);
  return static_cast<uint64_t>(static_cast<double>(kOthers * longest_ns_) * part);
}

void Snapshotter::waited(bool in_vain) {
  decision_ns_ = in_vain ? std::max(decision_ns_ / 2, options_.hold_ns / kHoldRange)
                         : std::min(decision_ns_ * 2, options_.hold_ns);
}

// The cut that waits is the line of all in a moment, or other ranks are still on their way to it.
// What they need of this rank for that has been dispatched before it.
void Snapshotter::await_others(std::unique_lock<std::mutex>* busy) {
  const uint64_t deadline = ring::now_ns() + decision_ns_ + patience_ns();
  for (poll_locked(); waits_ && ring::now_ns() < deadline; poll_locked()) {
    if (log_.liveness.check() != ring::WaitStatus::kOk || log_.recovery.replaying()) return;
    busy->unlock();  // another rank may need what is here sooner than it can come to its cut
    pass_turn();
    if (!device_.state.work()) usleep(50);
    busy->lock();
  }
  waited(waits_);
}

// The client has no room while a cut waits for those of other ranks. If that can be no line,
// another one may be. False: there is a line.
bool Snapshotter::await_line(std::unique_lock<std::mutex>* busy) {
  const uint64_t line = states_.last();
  await_others(busy);
  if (log_.liveness.check() != ring::WaitStatus::kOk) return false;
  if (waits_) force_decision();
  return waits_ || states_.last() != line;
}

// A step's cut is due while one waits. If that is a step's as well the others come there, and this
// cut is only left out if they do not. One for want of space fits no cut of theirs, but by chance.
void Snapshotter::make_way(std::unique_lock<std::mutex>* busy) {
  if (log_.recovery.replaying()) return;
  states_.cut().forced ? static_cast<void>(force_decision()) : await_others(busy);
}

// The program's memory is about to change, so that it must be known of which cut it is kept. An
// agent that does not answer: what is lost then is noticed at the next gate.
void Snapshotter::keep_pre_images(std::unique_lock<std::mutex>* busy) {
  if (waits_) poll_locked();
  if (waits_ && states_.is_compared() && states_.is_shared() && !log_.recovery.replaying()) {
    await_decision(busy);
    if (waits_) force_decision();
  }
  forget_lost();
}

void Snapshotter::forget_lost() {
  for (const ring::ManifestBlock& block : pre_images_->keep()) stage_.changed(block.address);
}

uint64_t Snapshotter::spill(uint64_t step) {
  const std::lock_guard busy(busy_);
  if (!pre_images_) return 0;
  if (copier_) copier_->finish();
  if (device_.background) device_.background->enter();
  return pre_images_->spill(step, store_.waiting() ? &*store_.waiting() : nullptr);
}

bool Snapshotter::make_room() {
  const std::lock_guard busy(busy_);
  if (!pre_images_ || pre_images_->closed()) return false;
  finish_copies();
  pre_images_->give_up();
  return true;
}

// A cut of which other ranks' depend becomes the committed snapshot when the agent says so, or
// never. It waits for nobody but the agent here.
bool Snapshotter::force_decision(bool for_room) {
  const uint64_t deadline = ring::now_ns() + options_.answer_ns;
  perform(states_.ask());
  for (;;) {
    perform(states_.answered(decisions()));
    if (!waits_) return true;
    if (ring::now_ns() > deadline) {
      perform(states_.unanswered(for_room),
              "the agent does not say what becomes of the one before it");
      return false;
    }
    pass_turn();
    if (!device_.state.work()) usleep(50);
  }
}

// False: it is left out.
bool Snapshotter::admit(const ring::CutMark& cut) {
  switch (states_.admit(facts(cut), rules())) {
    case CutStates::Admission::kTake:
      return true;
    case CutStates::Admission::kSkip:
      return false;
    case CutStates::Admission::kAskFirst:
      return force_decision();
    case CutStates::Admission::kPromoteFirst:
      if (!states_.is_committed(decisions())) add(store_.header().unchecked_cuts, 1);
      perform(states_.promote());
      return true;
  }
  return false;
}

void Snapshotter::perform(const CutActions& todo, const std::string& why) {
  for (const CutAction& action : todo)
    if (!tell(action) && !change_store(action)) tell_users(action, why);
}

// Who has to know of the cut: the agent, the client, and whoever looks whether it waits.
bool Snapshotter::tell(const CutAction& action) {
  using Do = CutAction::Do;
  switch (action.what) {
    case Do::kStage:
      return stage(action.about), true;
    case Do::kPass:
      return agent_.staged(action.about, 0, 0), true;
    case Do::kPrepare:
      return agent_.prepared(action.about, store_.waiting()->manifest.seq), true;
    case Do::kAsk:
      return agent_.request_decision(action.about), true;
    case Do::kDecide:
      return decided(action.about, action.snapshotted), true;
    case Do::kWait:
      return wait_for_others(), true;
    default:
      return false;
  }
}

bool Snapshotter::change_store(const CutAction& action) {
  using Do = CutAction::Do;
  switch (action.what) {
    case Do::kPromote:
      return promote(), true;
    case Do::kDrop:
      if (waits_.exchange(false)) wanted_until_ns_ = 0;
      return store_.drop_open(), true;
    case Do::kRelease:
      return log_.recovery.journal().release_before(action.about), true;
    default:
      return false;
  }
}

// That there is none, and why.
void Snapshotter::tell_users(const CutAction& action, const std::string& why) {
  if (action.what == CutAction::Do::kCancel) return cancelled(why);
  PYFT_LOG(kSnapshot, kDebug, "cut [%llu]: skipped", static_cast<unsigned long long>(action.about));
  add(store_.header().skipped, 1);
}

// Says where the digests of the open cut are.
void Snapshotter::stage(uint64_t name) {
  asked_ns_ = ring::now_ns();
  wanted_until_ns_ = full_ ? asked_ns_ + decision_ns_ + patience_ns() : 0;
  agent_.staged(name, store_.waiting_offset(), open_->manifest.seq);
}

bool Snapshotter::may_wait() const {
  const ring::StoreHeader& agent = store_.header();
  const uint64_t now = ring::now_ns();
  const uint64_t asked = states_.asked();
  if (now >= asked_ns_ + options_.hold_limit_ns) return false;
  if (agent.disputed_step.load() == asked || agent.taken_step.load() < asked) return true;
  return now < std::max(asked_ns_, agent.taken_ns.load()) + hold_ns_;
}

// A replay gives nothing away; what it finishes with others was begun before the fault.
void Snapshotter::commit_output() {
  if (held_ == states_.asked() || log_.recovery.replaying() || is_coordinated()) return;
  while (!is_agreed() && may_wait()) {
    if (log_.liveness.check() != ring::WaitStatus::kOk) return;
    pass_turn();
    if (!device_.state.work()) usleep(50);
  }
  held_ = states_.asked();
  hold_ns_ = is_agreed() ? std::min(hold_ns_ * 2, options_.hold_ns)
                         : std::max(hold_ns_ / 2, options_.hold_ns / kHoldRange);
  poll();
}

// An earlier server had come to this cut as well. If it is the one about which ranks disagree, the
// agent compares.
void Snapshotter::compare_again(const ring::CutMark& cut, uint64_t seq) {
  if (!store_.unfinished() || store_.unfinished()->manifest.cut != cut.number) return;
  if (options_.arbitrates && options_.arbitrates == cut.step && !cut.forced) return;
  judge_cut(log_.recovery, seq,
            compare_cut(store_.committed(), *store_.unfinished(), store_.open_blocks()));
}

// The store and the machine are the dispatch thread's from here on, which may sleep.
void Snapshotter::wait_for_others() {
  next_look_ns_ = 0;
  ring::ControlPage& page = log_.channel.control();
  waits_.store(true, std::memory_order_release);
  page.doorbell.fetch_add(1, std::memory_order_seq_cst);
  ring::futex_wake(page.doorbell);
}

}  // namespace pyft::checkpoint
