// The part of Capture that has to do with other ranks: cuts that wait until they are compared.
#include <unistd.h>

#include <algorithm>

#include "ring/forced_cut.h"
#include "ring/wait.h"
#include "server/recovery/bytes_passed.h"
#include "server/recovery/capture.h"
#include "server/recovery/cut_comparison.h"

namespace pyft::server {

namespace {

constexpr uint64_t kHoldRange = 1024;
constexpr uint64_t kLookNs = 1'000'000;

void add(std::atomic<uint64_t>& sum, uint64_t value) {
  sum.fetch_add(value, std::memory_order_relaxed);
}

}  // namespace

bool Capture::is_delivered() {
  if (delivered_ || !calls_.delivered) return true;
  const uint64_t now = ring::now_ns();
  if (now < look_again_ns_) return false;
  look_again_ns_ = now + kLookNs;
  return delivered_ = calls_.delivered(store_.waiting()->manifest.cut);
}

void Capture::tell_held() {
  if (!waits_compared_ || told_held_ == asked_) return;
  told_held_ = asked_;
  if (calls_.held) calls_.held(asked_, store_.waiting()->manifest.seq);
}

// A cut is held until other ranks' are known.
bool Capture::is_undecided() const {
  return waits_ && waits_compared_ && !agrees() && !session_.recovery().replaying();
}

// The cut before this one may not be decided yet: its copies may have been made just now, the
// agent's answer or that of a rank to which something is owed may be on its way. It comes a moment
// later, unless another rank is far behind. A cut that is left out is not compared, so that what
// has changed silently before it would go to other ranks.
void Capture::await_decision(std::unique_lock<std::mutex>* busy) {
  if (!is_undecided()) return;
  const uint64_t deadline = ring::now_ns() + decision_ns_;
  for (go_on_held(); waits_ && ring::now_ns() < deadline; go_on_held()) {
    if (session_.liveness().check() != ring::WaitStatus::kOk) return;
    busy->unlock();  // another rank may need what is here sooner than it can answer
    pass_turn();
    if (!session_.work()) usleep(50);
    busy->lock();
  }
  decision_ns_ = waits_ ? std::max(decision_ns_ / 2, options_.hold_ns / kHoldRange)
                        : std::min(decision_ns_ * 2, options_.hold_ns);
}

void Capture::go_on_held() {
  if (!waits_) return;
  if (is_dropped()) return drop_waiting();
  if (session_.recovery().replaying() || !is_delivered()) return;
  tell_held();
  if (is_checked()) return publish_waiting();
  if (!wanted_until_ns_ || ring::now_ns() < wanted_until_ns_) return;
  // The client has no room until this is decided, and the others may need what it does next.
  wanted_until_ns_ = 0;
  decision_ns_ = std::max(decision_ns_ / 2, options_.hold_ns / kHoldRange);
  const uint64_t cut = store_.waiting()->manifest.cut;
  if (!withdraw()) decided(cut, false);
}

// The client has no room, or soon will have none, while a cut waits for those of other ranks. It is
// the line of all in a moment, or there is none: then another one may be. False: there is a line.
bool Capture::await_line(std::unique_lock<std::mutex>* busy) {
  const uint64_t line = last_captured_;
  const uint64_t deadline = ring::now_ns() + decision_ns_;
  for (go_on_held(); waits_ && ring::now_ns() < deadline; go_on_held()) {
    if (session_.liveness().check() != ring::WaitStatus::kOk) return false;
    if (session_.recovery().replaying()) break;
    busy->unlock();  // another rank may need what is here sooner than it can come to its cut
    if (!session_.work()) usleep(50);
    busy->lock();
  }
  if (waits_) withdraw();
  return waits_ || last_captured_ != line;
}

// The program's memory is about to change, so that it must be known of which cut it is kept. An
// agent that does not answer: what is lost then is noticed at the next gate.
void Capture::keep_shadows(std::unique_lock<std::mutex>* busy) {
  if (waits_) go_on_held();
  if (waits_ && waits_compared_ && waits_shared_ && !session_.recovery().replaying()) {
    await_decision(busy);
    if (waits_) withdraw();
  }
  forget_lost();
}

void Capture::forget_lost() {
  for (const ring::ManifestBlock& block : shadows_->keep()) stage_.changed(block.address);
}

uint64_t Capture::spill(uint64_t step) {
  const std::lock_guard busy(busy_);
  if (!shadows_) return 0;
  if (copier_) copier_->finish();
  if (calls_.enter) calls_.enter();
  return shadows_->spill(step, store_.waiting() ? &*store_.waiting() : nullptr);
}

bool Capture::make_room() {
  const std::lock_guard busy(busy_);
  if (!shadows_ || shadows_->closed()) return false;
  settle();
  shadows_->give_up();
  return true;
}

// A cut of which other ranks' depend becomes the recovery point when the agent says so, or never.
// It waits for nobody but the agent here.
bool Capture::withdraw() {
  const uint64_t deadline = ring::now_ns() + options_.answer_ns;
  calls_.withdraw(asked_);
  while (!is_checked() && !is_dropped()) {
    if (ring::now_ns() > deadline) {
      cancelled("the agent does not say what becomes of the one before it");
      return false;
    }
    pass_turn();
    if (!session_.work()) usleep(50);
  }
  is_dropped() ? drop_waiting() : publish_waiting();
  return true;
}

// The store has room for two points: while one waits for its comparison the next cut is left out.
bool Capture::gives_way(const ring::CutMark& cut) {
  if (!waits_) return true;
  if (!cut.forced || agrees()) return false;
  if (waits_compared_ && waits_shared_) return withdraw();
  if (!is_checked()) add(store_.header().unchecked_cuts, 1);
  publish_waiting();
  return true;
}

void Capture::leave_out(const ring::CutMark& cut) {
  add(store_.header().skipped, 1);
  if (compares() && !cut.forced) calls_.captured(name_of(cut), 0, 0);
  // A cut that waits is decided first: until then a replay must come to it again.
  if (!waits_ || agrees() || cut.forced) decided(cut.number, false);
}

// Says where the digests of the open cut are. They are all there is to compare, so that the copies
// may still be under way. Not for a forced cut: a client that waits for space does not wait for
// other ranks, which may have no such cut. Where all have to hold the same one it does, for a
// while: nothing else makes room.
void Capture::tell(const ring::CutMark& cut, bool whole) {
  open_->compared = whole;
  if (!whole) return calls_.captured(open_->name, 0, 0);
  asked_ = open_->name;
  asked_ns_ = ring::now_ns();
  wanted_until_ns_ = cut.forced == ring::kFull ? asked_ns_ + decision_ns_ : 0;
  calls_.captured(asked_, store_.waiting_offset(), open_->manifest.seq);
}

bool Capture::is_patient() const {
  const ring::StoreHeader& agent = store_.header();
  const uint64_t now = ring::now_ns();
  if (now >= asked_ns_ + options_.hold_limit_ns) return false;
  if (agent.disputed_step.load() == asked_ || agent.taken_step.load() < asked_) return true;
  return now < std::max(asked_ns_, agent.taken_ns.load()) + hold_ns_;
}

// A replay gives nothing away; what it finishes with others was begun before the fault.
void Capture::hold_back() {
  if (held_ == asked_ || session_.recovery().replaying() || agrees()) return;
  while (!is_settled() && is_patient()) {
    if (session_.liveness().check() != ring::WaitStatus::kOk) return;
    pass_turn();
    if (!session_.work()) usleep(50);
  }
  held_ = asked_;
  hold_ns_ = is_settled() ? std::min(hold_ns_ * 2, options_.hold_ns)
                          : std::max(hold_ns_ / 2, options_.hold_ns / kHoldRange);
  go_on();
}

// An earlier server had come to this cut as well. If it is the one about which ranks disagree, the
// agent compares.
void Capture::compare_again(const ring::CutMark& cut, uint64_t seq) {
  if (!store_.unfinished() || store_.unfinished()->manifest.cut != cut.number) return;
  if (options_.arbitrates && options_.arbitrates == cut.step && !cut.forced) return;
  judge_cut(session_.recovery(), seq,
            compare_cut(store_.point(), *store_.unfinished(), store_.open_blocks()));
}

// It fits no cut of the other ranks.
void Capture::drop_waiting() {
  waits_ = false;
  wanted_until_ns_ = 0;
  const uint64_t cut = store_.waiting()->manifest.cut;
  store_.drop_open();
  last_captured_ = store_.has_point() ? store_.point().manifest.cut : 0;
  store_.header().skipped.fetch_add(1, std::memory_order_relaxed);
  decided(cut, false);
}

// Compared, or not waited for any longer.
void Capture::publish_waiting() {
  waits_ = false;
  wanted_until_ns_ = 0;
  if (waits_compared_ && is_settled()) add(store_.header().compared_cuts, 1);
  publish();
  session_.recovery().journal().release_before(store_.point().manifest.seq);
  held_ = asked_;
}

}  // namespace pyft::server
