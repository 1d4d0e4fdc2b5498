#include "server/recovery/capture.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "pyft/fault.h"
#include "ring/forced_cut.h"
#include "ring/wait.h"

namespace pyft::server {

namespace {

constexpr int kNotReady = 600;
constexpr uint64_t kRestNs = 1'000'000'000;

uint64_t thread_ns() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
}

// The client uses one core and the server's dispatch thread another.
bool has_cores_to_spare() {
  cpu_set_t cores;
  return sched_getaffinity(0, sizeof cores, &cores) == 0 && CPU_COUNT(&cores) > 2;
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

CaptureOptions capture_options() {
  CaptureOptions options;
  options.puts_off = true;
  if (!has_cores_to_spare()) options.late = Late::kNever;
  if (const char* every = std::getenv("PYFT_CUT_EVERY"))
    options.every = std::strtoull(every, nullptr, 10);
  const char* const late = std::getenv("PYFT_LATE_COPIES");
  if (late && !std::strcmp(late, "never")) options.late = Late::kNever;
  if (late && !std::strcmp(late, "always")) options.late = Late::kAlways;
  const char* const protect = std::getenv("PYFT_PROTECT");
  options.jit = protect && !std::strcmp(protect, "jit");
  if (const char* cut = std::getenv("PYFT_ARBITRATE"))
    options.arbitrates = std::strtoull(cut, nullptr, 10);
  return options;
}

Capture::Capture(Session& session, Store& store, RecoveryCalls calls, const CaptureOptions& options)
    : session_(session),
      store_(store),
      calls_(std::move(calls)),
      options_(options),
      stage_(store, calls_),
      pace_(options.every, options.budget, options.late),
      hold_ns_(options.hold_ns),
      decision_ns_(options.hold_ns) {
  if (store.has_point()) last_captured_ = store.point().manifest.cut;
  // A server that died right after it had made this cut the recovery point has told nobody.
  if (last_captured_ > session.channel().control().captured_cut.load())
    decided(last_captured_, true);
  show_pace();
  if (options.jit) {
    shadows_.emplace(store, calls_);
    if (store.has_point()) shadows_->expect(store.point());
    stage_.leave_what_rests(true);
    if (!shadows_->possible())
      std::fprintf(stderr,
                   "pyft-server: device [%u]: it cannot keep copies of its own, or not be read "
                   "beside its work: captures go to host memory\n",
                   session.device());
  }
  if (options.late == Late::kNever) return;
  if (calls_.peek)
    copier_.emplace(copy_by_looking(calls_.peek, store.digest_key()));
  else if (calls_.read_beside)
    copier_.emplace(copy_by_reading(calls_.read_beside, store.digest_key()), calls_.enter);
}

Status Capture::take(const ring::EntryHeader& header, std::span<const std::byte> body,
                     std::span<const std::byte> payload, uint64_t position) {
  ring::CutMark cut{};
  if (body.size() < sizeof cut) return Status::broken("a cut is too short");
  std::memcpy(&cut, body.data(), sizeof cut);
  std::unique_lock busy(busy_);
  settle();
  if (waits_) go_on_held();
  // In a replay: an earlier server has decided.
  if (cut.number <= last_captured_) return Status::good();
  std::optional<Stood> stood;
  if (!cut.forced && is_undecided()) {
    // Until then it loses nothing by waiting, and other ranks may not be there either.
    if (is_due(cut)) stood = stand_still(&busy);
    !stood || stood->problem.empty() ? await_decision(&busy) : go_on_held();
  }
  const Use use = use_at(cut, position);
  if (!cut.forced) keep_pace(use);
  const bool full = cut.forced == ring::kFull;  // the client waits
  const bool has_line = agrees() && full && waits_ && !await_line(&busy);
  if (has_line || !is_due(cut) || !gives_way(cut)) {
    if (pace_.every() > 1 && is_crowded()) {
      pace_.too_seldom();  // the client looks at K before the next cut
      show_pace();
    }
    leave_out(cut);
    return Status::good();
  }
  open_.emplace();
  open_->use = use;
  open_->name = name_of(cut);
  open_->manifest.cut = cut.number;
  open_->manifest.seq = header.seq;
  open_->manifest.position = position;
  open_->manifest.step = cut.forced ? 0 : cut.step;
  open_->cuts = cut.number - last_captured_;
  open_->forced = cut.forced;
  if (!stood) stood = stand_still(&busy);
  open_->came_ns = stood->came_ns;
  open_->join_ns = stood->join_ns;
  std::string problem = std::move(stood->problem);
  open_->scope_ns = exposed_scope_ns(cut, header);
  if (problem.empty() && options_.puts_off && !cut.forced && !session_.recovery().replaying()) {
    put_off_ = cut;
    scope_.assign(payload.begin(), payload.end());
    return Status::good();
  }
  make(cut, payload, std::move(problem));
  weigh(0);
  return Status::good();
}

void Capture::make_up_held() {
  if (!put_off_) return;
  const ring::CutMark cut = *std::exchange(put_off_, std::nullopt);
  make(cut, scope_, {});
}

Status Capture::gate() {
  std::unique_lock busy(busy_);
  settle();
  if (shadows_) keep_shadows(&busy);
  if (!stage_.learns()) return Status::good();
  busy.unlock();
  const bool rests = comes_to_rest();
  busy.lock();
  stage_.gate(rests);
  return Status::good();
}

// What the device may still do to memory that is being copied would be an error of the device.
void Capture::before_unmapping() {
  if (!calls_.read_beside) return;
  const std::lock_guard busy(busy_);
  settle();
  if (!shadows_) return;
  if (!waits_) forget_lost();
  shadows_->leave_memory();
}

// What was enqueued before the gate has been executed. Not waited for as at a cut: nothing but a
// hint depends on it. Where that waits in vain, because another rank needs what comes behind the
// gate, it is tried seldom. A stream that captures is not looked at.
bool Capture::comes_to_rest() {
  if (calls_.capturing()) return false;
  if (restless_gates_) return --restless_gates_, false;
  const bool rests = is_idle_before(ring::now_ns() + kRestNs);
  if (!rests) restless_gates_ = restless_pause_ *= 2;
  return rests;
}

bool Capture::is_idle_before(uint64_t deadline) {
  while (ring::now_ns() < deadline) {
    while (session_.work() && ring::now_ns() < deadline) continue;
    const int code = calls_.idle();
    if (code != kNotReady) return code == 0;
    usleep(50);
  }
  return false;
}

// What is kept from one snapshot to the next fills its room, or has filled it.
bool Capture::is_crowded() const {
  return (calls_.crowded && calls_.crowded()) || session_.recovery().journal().lacks();
}

// A cut for want of space is not left out: the client waits for it. Of the others, multiples of K
// are captured, and K is a power of two: ranks whose captures cost differently have cuts in common.
bool Capture::is_due(const ring::CutMark& cut) {
  if (cut.forced) return true;
  if (cut.passed_over) return false;
  return cut.step % pace_.every() == 0 || !store_.has_point();
}

// The state of the device is that after all entries before the cut.
Capture::Stood Capture::stand_still(std::unique_lock<std::mutex>* busy) {
  Stood stood;
  stood.came_ns = ring::now_ns();
  if (calls_.capturing()) {
    stood.problem = "a stream captures a graph";
    return stood;
  }
  busy->unlock();  // other ranks may need what is here sooner than the streams come to their ends
  stood.problem = join();
  stood.join_ns = ring::now_ns() - stood.came_ns;
  PYFT_FAULT("cut.after_join");
  busy->lock();
  return stood;
}

// Everything that has to be done before later commands may run.
void Capture::make(const ring::CutMark& cut, std::span<const std::byte> scope,
                   std::string problem) {
  open_->began_ns = ring::now_ns();
  const uint64_t used = thread_ns();
  open_->shared = shares();
  if (problem.empty()) problem = fill(cut, scope);
  std::vector<CopyJob> later = stage_.take_later();
  if ((compares() || open_->shared) && (!cut.forced || agrees())) tell(cut, problem.empty());
  if (problem.empty() && !later.empty()) {
    for (const CopyJob& job : later) open_->later_bytes += job.bytes;
    PYFT_FAULT("cut.after_stage");
    copier_->start(std::move(later), [this](const Copier::Outcome& outcome) { copied(outcome); });
    PYFT_FAULT("cut.after_release");
  } else {
    close(problem);
  }
  open_->ended_ns = ring::now_ns();
  open_->used_ns = calls_.view ? thread_ns() - used : open_->ended_ns - open_->began_ns;
}

std::string Capture::fill(const ring::CutMark& cut, std::span<const std::byte> scope) {
  std::vector<MemoryRange> mapped, scratch;
  calls_.mapped(&mapped);
  calls_.hidden(&open_->places);
  calls_.scratch(&scratch);
  std::string problem =
      find_live(scope, std::move(mapped), std::move(scratch), open_->places, &open_->live);
  // Somebody may wait for a forced one.
  const bool late =
      copier_ && pace_.late() && !cut.forced && (calls_.peek || calls_.ready_beside());
  if (open_->shared) plan_.update(reinterpret_cast<std::byte*>(&store_.header()), store_.header());
  if (shadows_) shadows_->enter_memory();
  const bool leaves = open_->shared && !cut.forced && (!shadows_ || shadows_->possible());
  const SharePlan* const plan = leaves ? &plan_ : nullptr;
  if (problem.empty()) problem = stage_.add(open_->live.blocks, late, plan);
  if (!problem.empty()) return problem;
  if (open_->shared && cut.forced && !store_.lend()) return store_.problem();
  if (shadows_ && cut.forced) shadows_->give_to_store();  // a next server has no copies
  compare_again(cut, open_->manifest.seq);
  if (calls_.at_cut) calls_.at_cut(cut.number);
  if (!store_.write(open_->manifest, std::move(open_->places))) return store_.problem();
  note(open_->live, !store_.has_point(), &store_.header());
  return {};
}

// The thread that dispatches may have to execute the device's work itself. A device that gets on
// with what it was given long before has all the time it needs; what cannot be waited for is an
// operation that needs another rank, which may need what comes behind this cut.
std::string Capture::join() {
  const uint64_t last = ring::now_ns() + options_.join_limit_ns;
  uint64_t deadline = ring::now_ns() + options_.join_timeout_ns, seen = session_.device_progress();
  useconds_t pause = 10;
  for (;;) {
    bool moved = false;
    while (session_.work() && ring::now_ns() < last) moved = true;
    const int code = calls_.idle();
    if (code == 0) return {};
    if (code != kNotReady)
      return "the device fails with code [" + std::to_string(code) + "] before the cut";
    const uint64_t now = ring::now_ns(), progress = session_.device_progress();
    if (moved || progress != seen) deadline = now + options_.join_timeout_ns;
    seen = progress;
    if (now > last)
      return "after [" + std::to_string(options_.join_limit_ns / 1'000'000'000) +
             "] s the device still works on what it was given before";
    if (now > deadline)
      return "for [" + std::to_string(options_.join_timeout_ns / 1'000'000) +
             "] ms a stream has stood still before its end";
    usleep(pause);
    pause = std::min<useconds_t>(pause * 2, 200);
  }
}

}  // namespace pyft::server
