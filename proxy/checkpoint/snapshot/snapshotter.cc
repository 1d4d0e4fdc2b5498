#include "checkpoint/snapshot/snapshotter.h"

#include <algorithm>
#include <utility>

#include "checkpoint/resources/device_memory.h"
#include "checkpoint/resources/kernel_heap.h"
#include "checkpoint/resources/objects.h"
#include "checkpoint/resources/variables.h"
#include "checkpoint/snapshot/cut_comparison.h"
#include "pyft/fault.h"
#include "pyft/log.h"
#include "ring/forced_cut.h"
#include "ring/wait.h"

namespace pyft::checkpoint {

namespace {

void add(std::atomic<uint64_t>& sum, uint64_t value) {
  sum.fetch_add(value, std::memory_order_relaxed);
}

}  // namespace

Snapshotter::Snapshotter(const Log& log, Store& store, const Device& device, AgentChannel& agent,
                         CommunicatorState& communicators, const SnapshotOptions& options)
    : log_(log),
      store_(store),
      device_(device),
      communicators_(communicators),
      options_(options),
      stage_(store, device.memory),
      coordination_(options_, store.header()),
      backoff_(options.hold_ns, options.audit_wait_ns),
      schedule_(log, store, agent, communicators, coordination_, options_),
      quiescence_(device.state, options_),
      participant_(log, store, agent, communicators, coordination_,
                   {schedule_, backoff_, pre_images_}),
      waits_(log, store, device.state, coordination_, options_, participant_, backoff_) {
  participant_.tell_last();
  schedule_.show();
  if (options.jit) {
    pre_images_.emplace(store, device_);
    if (store.has_committed()) pre_images_->expect(store.committed());
    stage_.leave_what_rests(true);
    if (!pre_images_->possible())
      PYFT_LOG(kSnapshot, kWarning,
               "device [%u]: it cannot keep copies of its own, or not be read "
               "beside its work: snapshots go to host memory",
               log.channel.device());
  }
  if (options.late == Late::kNever) return;
  BackgroundReads* const background = device_.background;
  Copier::User& user = *this;
  if (background) copier_.emplace(*background, store.digest_key(), user);
}

void Snapshotter::take(const ring::EntryHeader& header, const ring::CutMark& cut,
                       std::span<const std::byte> scope, uint64_t position) {
  std::unique_lock busy(busy_);
  finish_copies();
  waits_.poll();
  // In a replay: an earlier server has decided.
  if (participant_.states().is_known(cut.number)) return;
  const LogUse use = schedule_.use_at(cut, position);
  std::optional<Quiesced> quiesced = give_way(cut, use, &busy);
  if (!is_snapshotted(cut, use, &busy)) {
    schedule_.left_out();
    const CutFacts facts = coordination_.facts(cut);
    return participant_.perform(participant_.states().skip(facts, coordination_.rules()));
  }
  open(header, cut, position, use);
  if (!quiesced) quiesced = quiesce(&busy);
  std::string problem = std::move(quiesced->problem);
  open_->cost.quiesced(quiesced->came_ns, quiesced->drain_ns, cut, header);
  if (problem.empty() && options_.defers && !cut.forced && !log_.recovery.replaying()) {
    deferred_ = cut;
    scope_.assign(scope.begin(), scope.end());
    return;
  }
  make(cut, scope, std::move(problem));
  account(0);
}

// The cut before this one is decided first, if it can be. What the streams had to be waited for is
// returned.
std::optional<Snapshotter::Quiesced> Snapshotter::give_way(const ring::CutMark& cut,
                                                           const LogUse& use,
                                                           std::unique_lock<std::mutex>* busy) {
  std::optional<Quiesced> quiesced;
  if (cut.forced) return quiesced;
  if (waits_.is_undecided()) {
    // Until then it loses nothing by waiting, and other ranks may not be there either.
    if (schedule_.is_due(cut, use)) quiesced = quiesce(busy);
    !quiesced || quiesced->problem.empty() ? waits_.await_decision(busy) : waits_.poll();
  }
  schedule_.keep_pace(use);
  const bool waits = participant_.waits() && coordination_.is_coordinated();
  if (waits && schedule_.is_due(cut, use)) waits_.make_way(busy);
  return quiesced;
}

// False: it is left out.
bool Snapshotter::is_snapshotted(const ring::CutMark& cut, const LogUse& use,
                                 std::unique_lock<std::mutex>* busy) {
  const bool full = cut.forced == ring::kFull;  // the client waits
  const bool waits = full && coordination_.is_coordinated() && participant_.waits();
  if (waits && !waits_.await_line(busy)) return false;
  return schedule_.is_due(cut, use) && waits_.admit(cut);
}

void Snapshotter::open(const ring::EntryHeader& header, const ring::CutMark& cut, uint64_t position,
                       const LogUse& use) {
  open_.emplace();
  open_->use = use;
  open_->manifest.cut = cut.number;
  save_objects(header, position, &open_->manifest);
  open_->manifest.step = cut.forced ? 0 : cut.step;
  open_->cuts = cut.number - participant_.states().last();
  participant_.begin(coordination_.facts(cut, header.seq), cut.forced == ring::kFull);
}

void Snapshotter::run_deferred_locked() {
  if (!deferred_) return;
  const ring::CutMark cut = *std::exchange(deferred_, std::nullopt);
  make(cut, scope_, {});
}

void Snapshotter::gate() {
  std::unique_lock busy(busy_);
  finish_copies();
  if (pre_images_) keep_pre_images(&busy);
  if (!stage_.learns()) return;
  busy.unlock();
  const bool rests = quiescence_.rests_at_gate();
  busy.lock();
  stage_.gate(rests);
}

// What the device may still do to memory that is being copied would be an error of the device.
void Snapshotter::before_unmapping() {
  if (!device_.background || peeks()) return;
  const std::lock_guard busy(busy_);
  finish_copies();
  if (!pre_images_) return;
  if (!participant_.waits()) forget_lost();
  pre_images_->leave_memory();
}

// The state of the device is that after all entries before the cut.
Snapshotter::Quiesced Snapshotter::quiesce(std::unique_lock<std::mutex>* busy) {
  Quiesced quiesced;
  quiesced.came_ns = ring::now_ns();
  if (device_.state.capturing()) {
    quiesced.problem = "a stream captures a graph";
    return quiesced;
  }
  busy->unlock();  // other ranks may need what is here sooner than the streams come to their ends
  const bool coordinated = coordination_.is_coordinated();
  Quiescence::Drained drained = quiescence_.drain(coordinated ? backoff_.others_ns() : 0);
  if (drained.stood_still && coordination_.is_coordinated()) backoff_.waited(true);
  quiesced.problem = std::move(drained.problem);
  quiesced.drain_ns = ring::now_ns() - quiesced.came_ns;
  PYFT_FAULT("cut.after_drain");
  busy->lock();
  return quiesced;
}

// Everything that has to be done before later commands may run.
void Snapshotter::make(const ring::CutMark& cut, std::span<const std::byte> scope,
                       std::string problem) {
  PYFT_LOG(kSnapshot, kDebug, "cut [%llu]: a snapshot begins",
           static_cast<unsigned long long>(cut.number));
  open_->cost.begin();
  const CutRules rules = coordination_.rules();
  if (problem.empty()) problem = fill(cut, scope, rules.shares);
  std::vector<CopyJob> later = stage_.take_later();
  participant_.perform(participant_.states().hashed(problem.empty(), rules));
  if (problem.empty() && !later.empty()) {
    open_->cost.leave(later);
    PYFT_FAULT("cut.after_stage");
    copier_->start(std::move(later));
    PYFT_FAULT("cut.after_release");
  } else {
    close(problem);
  }
  open_->cost.end(device_.memory.views());
}

std::string Snapshotter::fill(const ring::CutMark& cut, std::span<const std::byte> scope,
                              bool shared) {
  save_variables(device_.state, &open_->places);
  save_kernel_heap(device_.state, &open_->places);
  // The client may wait for a forced one.
  const bool late =
      copier_ && schedule_.late() && !cut.forced && (peeks() || device_.background->ready());
  if (shared) plan_.update(reinterpret_cast<std::byte*>(&store_.header()), store_.header());
  if (pre_images_) pre_images_->enter_memory();
  const bool leaves = shared && !cut.forced && (!pre_images_ || pre_images_->possible());
  const SharePlan* const plan = leaves ? &plan_ : nullptr;
  std::string problem =
      save_memory({scope, open_->places, late, plan}, device_.state, &stage_, &open_->live);
  if (!problem.empty()) return problem;
  store_.date(open_->live.dated);
  if (shared && cut.forced && !store_.lend()) return store_.problem();
  if (pre_images_ && cut.forced) pre_images_->give_to_store();  // a next server has no copies
  compare_again(cut, open_->manifest.seq);
  device_.state.saved(open_->manifest.seq);
  communicators_.at_cut(cut.number);
  if (!store_.write(open_->manifest, std::move(open_->places))) return store_.problem();
  open_->live.note(!store_.has_committed(), &store_.header());
  return {};
}

// An earlier server had come to this cut as well. If it is the one about which ranks disagree, the
// agent compares.
void Snapshotter::compare_again(const ring::CutMark& cut, uint64_t seq) {
  if (!store_.unfinished() || store_.unfinished()->manifest.cut != cut.number) return;
  if (options_.arbitrates && options_.arbitrates == cut.step && !cut.forced) return;
  judge_cut(log_.recovery, seq,
            compare_cut(store_.committed(), *store_.unfinished(), store_.open_blocks()));
}

// In the copier's thread: all that the open cut lacks has been copied, or is not what it was.
void Snapshotter::copied(const Copier::Outcome& outcome) {
  ring::StoreHeader& figures = store_.header();
  const uint64_t bytes = open_->cost.later_bytes();
  add(figures.copied_bytes, bytes);
  add(figures.later_bytes, bytes);
  add(figures.later_ns, outcome.spent_ns);
  open_->cost.copied(outcome.spent_ns);
  if (!peeks()) add(figures.fetched_bytes, bytes);
  for (const CopyJob& job : outcome.changed) stage_.changed(job.address);
  close(outcome.problem());
}

void Snapshotter::close(const std::string& problem) {
  const bool whole = problem.empty();
  PYFT_LOG(kSnapshot, kDebug, "cut [%llu]: %s",
           static_cast<unsigned long long>(open_->manifest.cut),
           whole ? "whole in the store" : ("none, " + problem).c_str());
  if (whole) {
    schedule_.whole(open_->use);
    add(store_.header().snapshots, 1);
  }
  CutStates& states = participant_.states();
  const bool owes =
      whole && !states.cut().forced && !communicators_.acknowledged(states.cut().number);
  participant_.perform(states.made(whole, !owes), problem);
}

// Nothing but the next command, or a cut, tells of the client being in need of the server.
bool Snapshotter::nobody_waits_for(const ring::EntryHeader& header) {
  const auto mark = static_cast<ring::Mark>(header.call);
  return mark == ring::Mark::kObserved || mark == ring::Mark::kAlloc || mark == ring::Mark::kFree;
}

void Snapshotter::account(uint64_t appended_ns) {
  if (open_->cost.is_accounted()) return;
  open_->cost.next_entry(appended_ns);
  if (!open_->cost.later_bytes()) finish_copies();
}

// Waits for the copies of an open cut, and does what only this thread may do about its end.
void Snapshotter::finish_copies() {
  if (!open_) return;
  run_deferred_locked();
  const uint64_t began = ring::now_ns();
  if (copier_) copier_->finish();
  const uint64_t waited = ring::now_ns() - began;
  backoff_.snapshot_took(open_->cost.longest_ns());
  add(store_.header().gate_ns, waited);
  if (participant_.states().has_snapshotted()) {
    const uint64_t kept = open_->cost.add_to(store_.header(), waited);
    participant_.perform(participant_.states().finish());
    schedule_.snapshot_taken(open_->cuts, open_->cost.came_ns(), kept);
  }
  open_.reset();
}

// The program's memory is about to change, so that it must be known of which cut it is kept. An
// agent that does not answer: what is lost then is noticed at the next gate.
void Snapshotter::keep_pre_images(std::unique_lock<std::mutex>* busy) {
  waits_.poll();
  const CutStates& states = participant_.states();
  if (participant_.waits() && states.is_compared() && states.is_shared() &&
      !log_.recovery.replaying()) {
    waits_.await_decision(busy);
    if (participant_.waits()) waits_.force_decision();
  }
  forget_lost();
}

void Snapshotter::forget_lost() {
  for (const ring::ManifestBlock& block : pre_images_->keep()) stage_.changed(block.address);
}

void Snapshotter::commit_output() {
  if (waits_.commit_output()) poll();
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

}  // namespace pyft::checkpoint
