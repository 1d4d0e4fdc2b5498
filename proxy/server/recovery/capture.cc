#include "server/recovery/capture.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "pyft/fault.h"
#include "ring/wait.h"
#include "server/recovery/cut_comparison.h"

namespace pyft::server {

namespace {

constexpr int kNotReady = 600;
constexpr uint64_t kHoldRange = 1024;

void add(std::atomic<uint64_t>& sum, uint64_t value) {
  sum.fetch_add(value, std::memory_order_relaxed);
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
  if (const char* every = std::getenv("PYFT_CUT_EVERY"))
    options.every = std::strtoull(every, nullptr, 10);
  const char* const late = std::getenv("PYFT_LATE_COPIES");
  if (late && !std::strcmp(late, "never")) options.late = Late::kNever;
  if (late && !std::strcmp(late, "always")) options.late = Late::kAlways;
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
      hold_ns_(options.hold_ns) {
  if (store.has_point()) last_captured_ = store.point().manifest.cut;
  // A server that died right after it had made this cut the recovery point has told nobody.
  if (last_captured_ > session.channel().control().captured_cut.load())
    decided(last_captured_, true);
  store.header().cut_every.store(pace_.every(), std::memory_order_relaxed);
  if (calls_.peek && options.late != Late::kNever) copier_.emplace(store.seed(), calls_.peek);
}

Status Capture::take(const ring::EntryHeader& header, std::span<const std::byte> body,
                     std::span<const std::byte> payload, uint64_t position) {
  ring::CutMark cut{};
  if (body.size() < sizeof cut) return Status::broken("a cut is too short");
  std::memcpy(&cut, body.data(), sizeof cut);
  settle();
  go_on();
  // In a replay: an earlier server has decided.
  if (cut.number <= last_captured_) return Status::good();
  if (!is_due(cut) || !gives_way(cut)) {
    leave_out(cut);
    return Status::good();
  }
  open_.emplace();
  open_->manifest.cut = cut.number;
  open_->cuts = cut.number - last_captured_;
  open_->began_ns = ring::now_ns();
  std::string problem = begin(cut, header, payload, position);
  std::vector<CopyJob> later = stage_.take_later();
  if (compares() && !cut.forced) tell(cut, problem.empty());
  if (problem.empty() && !later.empty()) {
    for (const CopyJob& job : later) open_->later_bytes += job.bytes;
    PYFT_FAULT("cut.after_stage");
    copier_->start(std::move(later), [this](const Copier::Outcome& outcome) { copied(outcome); });
    PYFT_FAULT("cut.after_release");
    return Status::good();
  }
  const uint64_t began = ring::now_ns();
  close(problem);
  open_->spent_ns += ring::now_ns() - began;
  settle();
  return Status::good();
}

Status Capture::gate() {
  settle();
  stage_.gate();
  return Status::good();
}

// A cut for want of space is not left out: the client waits for it. Of the others, multiples of K
// are captured, and K is a power of two: ranks whose captures cost differently have cuts in common.
bool Capture::is_due(const ring::CutMark& cut) {
  return cut.forced || cut.step % pace_.every() == 0 || !store_.has_point();
}

// The store has room for two points: while one waits for its comparison the next cut is left out.
bool Capture::gives_way(const ring::CutMark& cut) {
  if (!waits_) return true;
  if (!cut.forced) return false;
  if (!is_settled()) add(store_.header().unchecked_cuts, 1);
  publish_waiting();
  return true;
}

void Capture::leave_out(const ring::CutMark& cut) {
  add(store_.header().skipped, 1);
  if (compares() && !cut.forced) calls_.captured(cut.step, 0, 0);
  // A cut that waits is decided first: until then a replay must come to it again.
  if (!waits_) decided(cut.number, false);
}

// Says where the digests of the open cut are. They are all there is to compare, so that the copies
// may still be under way. Not for a forced cut: a client that waits for space does not wait for
// other ranks, which may have no such cut.
void Capture::tell(const ring::CutMark& cut, bool whole) {
  open_->compared = whole;
  if (!whole) return calls_.captured(cut.step, 0, 0);
  asked_ = cut.step;
  asked_ns_ = ring::now_ns();
  calls_.captured(cut.step, store_.waiting_offset(), open_->manifest.seq);
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
  if (held_ == asked_ || session_.recovery().replaying()) return;
  while (!is_settled() && is_patient()) {
    if (session_.liveness().check() != ring::WaitStatus::kOk) return;
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

// Everything that has to be done before later commands may run.
std::string Capture::begin(const ring::CutMark& cut, const ring::EntryHeader& header,
                           std::span<const std::byte> scope, uint64_t position) {
  if (calls_.capturing()) return "a stream captures a graph";
  if (std::string problem = join(); !problem.empty()) return problem;
  PYFT_FAULT("cut.after_join");
  const uint64_t joined = ring::now_ns();
  std::vector<MemoryRange> mapped, scratch;
  calls_.mapped(&mapped);
  calls_.hidden(&open_->places);
  calls_.scratch(&scratch);
  std::string problem =
      find_live(scope, std::move(mapped), std::move(scratch), open_->places, &open_->live);
  // Somebody may wait for a forced one.
  const bool late = copier_ && pace_.late() && !cut.forced;
  if (problem.empty()) problem = stage_.add(open_->live.blocks, late);
  if (!problem.empty()) return problem;
  compare_again(cut, header.seq);
  open_->manifest.seq = header.seq;
  open_->manifest.position = position;
  if (calls_.at_cut) calls_.at_cut(cut.number);
  if (!store_.write(open_->manifest, std::move(open_->places))) return store_.problem();
  note(open_->live, !store_.has_point(), &store_.header());
  open_->join_ns = joined - open_->began_ns;
  open_->spent_ns = ring::now_ns() - joined;
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

// In the copier's thread: all that the open cut lacks has been copied, or is not what it was.
void Capture::copied(const Copier::Outcome& outcome) {
  ring::StoreHeader& figures = store_.header();
  add(figures.copied_bytes, open_->later_bytes);
  add(figures.later_bytes, open_->later_bytes);
  add(figures.later_ns, outcome.spent_ns);
  for (const CopyJob& job : outcome.changed) stage_.changed(job);
  close(outcome.changed.empty()
            ? std::string()
            : "[" + std::to_string(outcome.changed.size()) +
                  "] blocks have changed while they were copied: their changes are announced by no "
                  "optimizer step");
}

// The cut that is whole in the store becomes the recovery point. Whose thread the store is.
void Capture::publish() {
  PYFT_FAULT("cut.before_publish");
  store_.promote();
  const ring::Manifest& manifest = store_.point().manifest;
  if (calls_.published) calls_.published(manifest.cut, manifest.seq);
  store_.header().live_bytes.store(manifest.bytes, std::memory_order_relaxed);
  decided(manifest.cut, true);
}

// Compared, or not waited for any longer.
void Capture::publish_waiting() {
  waits_ = false;
  if (is_settled()) add(store_.header().compared_cuts, 1);
  publish();
  session_.recovery().journal().release_before(store_.point().manifest.seq);
  held_ = asked_;
}

void Capture::close(const std::string& problem) {
  open_->captured = problem.empty();
  if (!open_->captured) {
    store_.drop_open();
    cancelled(problem);
    return decided(open_->manifest.cut, false);
  }
  last_captured_ = open_->manifest.cut;
  add(store_.header().captures, 1);
  if (!open_->compared) return publish();
  ring::ControlPage& page = session_.channel().control();
  waits_.store(true, std::memory_order_release);
  page.doorbell.fetch_add(1, std::memory_order_seq_cst);  // the dispatch thread may sleep
  ring::futex_wake(page.doorbell);
}

// Waits for the copies of an open cut, and does what only this thread may do about its end.
void Capture::settle() {
  if (!open_) return;
  const uint64_t began = ring::now_ns();
  if (copier_) copier_->finish();
  const uint64_t waited = ring::now_ns() - began;
  add(store_.header().gate_ns, waited);
  if (open_->captured) {
    add(store_.header().join_ns, open_->join_ns);
    add(store_.header().cut_ns, open_->join_ns + open_->spent_ns);
    if (!open_->compared) session_.recovery().journal().release_before(open_->manifest.seq);
    pace_.captured(open_->cuts, open_->began_ns, open_->spent_ns + waited);
    store_.header().cut_every.store(pace_.every(), std::memory_order_relaxed);
  }
  open_.reset();
}

// In a replay a cut may be taken that an earlier server has already decided about: numbers only
// grow.
void Capture::decided(uint64_t cut, bool captured) {
  ring::ControlPage& page = session_.channel().control();
  if (captured) page.captured_cut.store(cut, std::memory_order_seq_cst);
  if (page.decided_cut.load() < cut) page.decided_cut.store(cut, std::memory_order_seq_cst);
  if (!page.decided_waiters.load(std::memory_order_seq_cst)) return;
  page.decided_futex.fetch_add(1, std::memory_order_seq_cst);
  ring::futex_wake(page.decided_futex);
}

void Capture::cancelled(const std::string& why) {
  add(store_.header().cancelled, 1);
  if (std::exchange(said_, true)) return;
  std::fprintf(stderr, "pyft-server: device [%u]: a cut is not captured: %s\n", session_.device(),
               why.c_str());
}

}  // namespace pyft::server
