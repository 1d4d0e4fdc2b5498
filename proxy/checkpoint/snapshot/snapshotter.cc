#include "checkpoint/snapshot/snapshotter.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/resources/device_memory.h"
#include "checkpoint/resources/kernel_heap.h"
#include "checkpoint/resources/objects.h"
#include "checkpoint/resources/variables.h"
#include "pyft/fault.h"
#include "pyft/log.h"
#include "ring/forced_cut.h"
#include "ring/hold.h"
#include "ring/wait.h"

namespace pyft::checkpoint {

namespace {

constexpr int kNotReady = 600;
constexpr uint64_t kRestNs = 1'000'000'000;

uint64_t thread_ns() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
}

// The device stands still now. What the client did while the server was as far behind with its work
// has kept nobody waiting.
uint64_t exposed_scope_ns(const ring::CutMark& cut, const ring::EntryHeader& header) {
  const uint64_t now = ring::now_ns(), behind = now - std::min(now, header.time_ns);
  const uint64_t scope_ns = uint64_t{cut.scope_us} * 1000;
  return scope_ns - std::min(scope_ns, behind);
}

void note(const LiveSet& live, bool first, ring::StoreHeader* figures) {
  figures->live_blocks.store(live.blocks.size(), std::memory_order_relaxed);
  if (!first) return;
  figures->block_bytes.store(live.block_bytes, std::memory_order_relaxed);
  figures->mapped_bytes.store(live.mapped_bytes, std::memory_order_relaxed);
  figures->hidden_bytes.store(live.hidden_bytes, std::memory_order_relaxed);
  figures->scratch_bytes.store(live.scratch_bytes, std::memory_order_relaxed);
}

}  // namespace

Snapshotter::Snapshotter(const Log& log, Store& store, const Device& device, AgentChannel& agent,
                         CommunicatorState& communicators, const SnapshotOptions& options)
    : log_(log),
      store_(store),
      device_(device),
      agent_(agent),
      communicators_(communicators),
      options_(options),
      stage_(store, device.memory),
      interval_(options.every, options.budget, options.late),
      states_(store.has_committed() ? store.committed().manifest.cut : 0),
      step_room_(room(), {.ring = store.has_committed() ? store.committed().manifest.position : 0}),
      hold_ns_(options.hold_ns),
      decision_ns_(options.hold_ns) {
  // A server that died right after it had made this cut the committed snapshot has told nobody.
  if (states_.last() > log.channel.control().snapshot_cut.load()) decided(states_.last(), true);
  show_interval();
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
  if (waits_) poll_locked();
  // In a replay: an earlier server has decided.
  if (states_.is_known(cut.number)) return;
  std::optional<Quiesced> quiesced;
  const LogUse use = use_at(cut, position);
  if (!cut.forced) {
    if (is_undecided()) {
      // Until then it loses nothing by waiting, and other ranks may not be there either.
      if (is_due(cut, use)) quiesced = quiesce(&busy);
      !quiesced || quiesced->problem.empty() ? await_decision(&busy) : poll_locked();
    }
    keep_pace(use);
    if (waits_ && is_coordinated() && is_due(cut, use)) make_way(&busy);
  }
  const bool full = cut.forced == ring::kFull;  // the client waits
  const bool has_line = is_coordinated() && full && waits_ && !await_line(&busy);
  if (has_line || !is_due(cut, use) || !admit(cut)) {
    if (interval_.every() > 1 && has_log_pressure()) {
      interval_.too_seldom();  // the client looks at K before the next cut
      show_interval();
    }
    return perform(states_.skip(facts(cut), rules()));
  }
  open_.emplace();
  open_->use = use;
  open_->manifest.cut = cut.number;
  save_objects(header, position, &open_->manifest);
  open_->manifest.step = cut.forced ? 0 : cut.step;
  open_->cuts = cut.number - states_.last();
  states_.begin(facts(cut, header.seq));
  full_ = full;
  if (!quiesced) quiesced = quiesce(&busy);
  open_->came_ns = quiesced->came_ns;
  open_->drain_ns = quiesced->drain_ns;
  std::string problem = std::move(quiesced->problem);
  open_->scope_ns = exposed_scope_ns(cut, header);
  if (problem.empty() && options_.defers && !cut.forced && !log_.recovery.replaying()) {
    deferred_ = cut;
    scope_.assign(scope.begin(), scope.end());
    return;
  }
  make(cut, scope, std::move(problem));
  account(0);
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
  const bool rests = is_quiescent();
  busy.lock();
  stage_.gate(rests);
}

// What the device may still do to memory that is being copied would be an error of the device.
void Snapshotter::before_unmapping() {
  if (!device_.background || peeks()) return;
  const std::lock_guard busy(busy_);
  finish_copies();
  if (!pre_images_) return;
  if (!waits_) forget_lost();
  pre_images_->leave_memory();
}

// What was enqueued before the gate has been executed. Not waited for as at a cut: nothing but a
// hint depends on it. Where that waits in vain, because another rank needs what comes behind the
// gate, it is tried seldom. A stream that captures is not looked at.
bool Snapshotter::is_quiescent() {
  if (device_.state.capturing()) return false;
  if (restless_gates_) return --restless_gates_, false;
  const bool rests = is_idle_before(ring::now_ns() + kRestNs);
  if (!rests) restless_gates_ = restless_pause_ *= 2;
  return rests;
}

bool Snapshotter::is_idle_before(uint64_t deadline) {
  while (ring::now_ns() < deadline) {
    while (device_.state.work() && ring::now_ns() < deadline) continue;
    const int code = device_.state.idle();
    if (code != kNotReady) return code == 0;
    usleep(50);
  }
  return false;
}

// What is kept from one snapshot to the next fills its room, or has filled it.
bool Snapshotter::has_log_pressure() const {
  return communicators_.log_pressure() || log_.recovery.journal().lacks();
}

// A cut for want of space is not left out: the client waits for it, or will have to, unless the
// next step's cut makes room in time and is the better one (step_room.h). Of the others, multiples
// of K are snapshotted, and K is a power of two: ranks whose snapshots cost differently have cuts
// in common.
bool Snapshotter::is_due(const ring::CutMark& cut, const LogUse& now) {
  if (cut.forced) return cut.forced == ring::kFull || !is_coordinated() || !step_room_.lasts(now);
  if (cut.passed_over) return false;
  if (ring::is_hold_wanted(log_.channel.control(), cut.step)) return true;
  return cut.step % interval_.every() == 0 || !store_.has_committed();
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
  quiesced.problem = drain();
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
  open_->began_ns = ring::now_ns();
  const uint64_t used = thread_ns();
  const CutRules rules = this->rules();
  if (problem.empty()) problem = fill(cut, scope, rules.shares);
  std::vector<CopyJob> later = stage_.take_later();
  perform(states_.hashed(problem.empty(), rules));
  if (problem.empty() && !later.empty()) {
    for (const CopyJob& job : later) open_->later_bytes += job.bytes;
    PYFT_FAULT("cut.after_stage");
    copier_->start(std::move(later));
    PYFT_FAULT("cut.after_release");
  } else {
    close(problem);
  }
  open_->ended_ns = ring::now_ns();
  open_->used_ns = device_.memory.views() ? thread_ns() - used : open_->ended_ns - open_->began_ns;
}

std::string Snapshotter::fill(const ring::CutMark& cut, std::span<const std::byte> scope,
                              bool shared) {
  save_variables(device_.state, &open_->places);
  save_kernel_heap(device_.state, &open_->places);
  // Somebody may wait for a forced one.
  const bool late =
      copier_ && interval_.late() && !cut.forced && (peeks() || device_.background->ready());
  if (shared) plan_.update(reinterpret_cast<std::byte*>(&store_.header()), store_.header());
  if (pre_images_) pre_images_->enter_memory();
  const bool leaves = shared && !cut.forced && (!pre_images_ || pre_images_->possible());
  const SharePlan* const plan = leaves ? &plan_ : nullptr;
  std::string problem =
      save_memory({scope, open_->places, late, plan}, device_.state, &stage_, &open_->live);
  if (!problem.empty()) return problem;
  if (shared && cut.forced && !store_.lend()) return store_.problem();
  if (pre_images_ && cut.forced) pre_images_->give_to_store();  // a next server has no copies
  compare_again(cut, open_->manifest.seq);
  device_.state.saved();
  communicators_.at_cut(cut.number);
  if (!store_.write(open_->manifest, std::move(open_->places))) return store_.problem();
  note(open_->live, !store_.has_committed(), &store_.header());
  return {};
}

// The thread that dispatches may have to execute the device's work itself. A device that gets on
// with what it was given long before has all the time it needs; what cannot be waited for is an
// operation that needs another rank, which may need what comes behind this cut.
std::string Snapshotter::drain() {
  const uint64_t last = ring::now_ns() + options_.drain_limit_ns;
  const uint64_t still = options_.drain_timeout_ns + (is_coordinated() ? patience_ns() : 0);
  uint64_t deadline = ring::now_ns() + still, seen = device_.state.progress();
  useconds_t pause = 10;
  for (;;) {
    bool moved = false;
    while (device_.state.work() && ring::now_ns() < last) moved = true;
    const int code = device_.state.idle();
    if (code == 0) return {};
    if (code != kNotReady)
      return "the device fails with code [" + std::to_string(code) + "] before the cut";
    const uint64_t now = ring::now_ns(), progress = device_.state.progress();
    if (moved || progress != seen) deadline = now + still;
    seen = progress;
    if (now > last)
      return "after [" + std::to_string(options_.drain_limit_ns / 1'000'000'000) +
             "] s the device still works on what it was given before";
    if (now <= deadline) {
      usleep(pause);
      pause = std::min<useconds_t>(pause * 2, 200);
      continue;
    }
    if (is_coordinated()) waited(true);
    return "for [" + std::to_string(still / 1'000'000) +
           "] ms a stream has stood still before its end";
  }
}

}  // namespace pyft::checkpoint
