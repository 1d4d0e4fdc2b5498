// The part of Capture that has to do with how a cut ends, and with what it has cost.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "pyft/fault.h"
#include "ring/wait.h"
#include "server/recovery/capture.h"

namespace pyft::server {

namespace {

constexpr uint64_t kMostCuts = 64;  // as in Pace

void add(std::atomic<uint64_t>& sum, uint64_t value) {
  sum.fetch_add(value, std::memory_order_relaxed);
}

std::string why_not(const Copier::Outcome& outcome) {
  const CopyJob& first = outcome.changed[0];
  const std::string blocks = "[" + std::to_string(outcome.changed.size()) + "] blocks ";
  const std::string where = ", the first of [" + std::to_string(first.bytes) + "] bytes at [" +
                            std::to_string(first.address) + "]: ";
  if (!outcome.code)
    return blocks + "have changed while they were copied" + where +
           "their changes are announced by no optimizer step";
  return blocks + "could not be copied behind it, or have changed" + where + "code [" +
         std::to_string(outcome.code) + "]";
}

}  // namespace

// In the copier's thread: all that the open cut lacks has been copied, or is not what it was.
void Capture::copied(const Copier::Outcome& outcome) {
  ring::StoreHeader& figures = store_.header();
  add(figures.copied_bytes, open_->later_bytes);
  add(figures.later_bytes, open_->later_bytes);
  add(figures.later_ns, outcome.spent_ns);
  if (!calls_.peek) add(figures.fetched_bytes, open_->later_bytes);
  for (const CopyJob& job : outcome.changed) stage_.changed(job.address);
  close(outcome.changed.empty() ? std::string() : why_not(outcome));
}

// The cut that is whole in the store becomes the recovery point. Whose thread the store is.
void Capture::publish() {
  PYFT_FAULT("cut.before_publish");
  store_.promote();
  const ring::Manifest& manifest = store_.point().manifest;
  if (shadows_ && manifest.step) expect_shadows();
  if (calls_.published) calls_.published(manifest.cut, manifest.seq);
  store_.header().live_bytes.store(manifest.bytes, std::memory_order_relaxed);
  decided(manifest.cut, true);
}

void Capture::expect_shadows() {
  shadows_->expect(store_.point());
  uint64_t bytes = 0;
  for (const ring::ManifestBlock& block : store_.point().blocks)
    if (is_elsewhere(block)) bytes += block.bytes;
  if (!bytes || std::exchange(said_shadows_, true)) return;
  std::fprintf(stderr,
               "pyft-server: device [%u]: of [%llu] bytes at cut [%llu], [%llu] are kept in GPUs "
               "only: they are lost when all ranks that have them fail at once\n",
               session_.device(), static_cast<unsigned long long>(store_.point().manifest.bytes),
               static_cast<unsigned long long>(store_.point().manifest.cut),
               static_cast<unsigned long long>(bytes));
}

void Capture::close(const std::string& problem) {
  open_->captured = problem.empty();
  if (!open_->captured) {
    store_.drop_open();
    cancelled(problem);
    if (open_->compared) calls_.captured(open_->name, 0, 0);  // it is none after all
    return decided(open_->manifest.cut, false);
  }
  last_captured_ = open_->manifest.cut;
  since_ = open_->use;
  add(store_.header().captures, 1);
  // A client that waits for space does not wait for other ranks.
  const uint64_t cut = open_->manifest.cut;
  const bool owes = !open_->forced && calls_.delivered && !calls_.delivered(cut);
  if (!open_->compared && !owes) return publish();
  open_->waits = true;
  waits_compared_ = open_->compared;
  waits_shared_ = open_->shared;
  delivered_ = !owes;
  look_again_ns_ = 0;
  ring::ControlPage& page = session_.channel().control();
  waits_.store(true, std::memory_order_release);
  page.doorbell.fetch_add(1, std::memory_order_seq_cst);  // the dispatch thread may sleep
  ring::futex_wake(page.doorbell);
}

// Nothing but the next command, or a cut, tells of the client being in need of the server.
bool Capture::nobody_waits_for(const ring::EntryHeader& header) {
  const auto mark = static_cast<ring::Mark>(header.call);
  return mark == ring::Mark::kObserved || mark == ring::Mark::kAlloc || mark == ring::Mark::kFree;
}

// Entries wait from when the first of them was appended: no sooner than the capture begins. While
// this thread has no processor somebody else gets on with his work: on a machine that is too small
// for what it does a capture costs its processor time and nothing more.
void Capture::weigh(uint64_t appended_ns) {
  if (open_->kept_ns) return;
  const uint64_t ended = open_->ended_ns;
  open_->kept_ns =
      std::min(ended - std::clamp(appended_ns, open_->began_ns, ended), open_->used_ns);
  if (!open_->later_bytes) settle();
}

// Waits for the copies of an open cut, and does what only this thread may do about its end.
void Capture::settle() {
  if (!open_) return;
  make_up_held();
  const uint64_t began = ring::now_ns();
  if (copier_) copier_->finish();
  const uint64_t waited = ring::now_ns() - began;
  ring::StoreHeader& figures = store_.header();
  add(figures.gate_ns, waited);
  if (open_->captured) {
    const uint64_t kept = open_->kept_ns.value_or(open_->used_ns) + open_->scope_ns;
    add(figures.join_ns, open_->join_ns);
    add(figures.cut_ns, open_->join_ns + open_->ended_ns - open_->began_ns);
    add(figures.kept_ns, kept + waited);
    if (!open_->waits) session_.recovery().journal().release_before(open_->manifest.seq);
    pace_.captured(open_->cuts, open_->came_ns, kept + waited);
    show_pace();
  }
  open_.reset();
}

Capture::Use Capture::use_at(const ring::CutMark& cut, uint64_t position) const {
  const ring::StoreHeader& store = store_.header();
  return {cut.step, position, cut.arena_head, store.journal_end.load(std::memory_order_relaxed)};
}

// What has come since the last capture tells what the cuts between two captures need. A third of
// the room: until the next capture is decided about, or has to be left out, the log goes on, and at
// half of it the client makes a cut by itself.
uint64_t Capture::cuts_that_fit(const Use& now) const {
  constexpr double kShare = 1.0 / 3;
  const auto part = [](uint64_t from, uint64_t to, uint64_t room) {
    return room ? static_cast<double>(to - std::min(from, to)) / static_cast<double>(room) : 0;
  };
  const ring::Channel& channel = session_.channel();
  const double used = std::max({part(since_->ring, now.ring, channel.ring_bytes()),
                                part(since_->arena, now.arena, channel.arena_bytes()),
                                part(since_->journal, now.journal, store_.header().journal_bytes)});
  const auto cuts = static_cast<double>(now.step - std::min(since_->step, now.step));
  if (cuts < 1) return kMostCuts;
  return used * kMostCuts > kShare * cuts ? static_cast<uint64_t>(kShare * cuts / used) : kMostCuts;
}

// K is bounded by what has to be kept, here and where other ranks have to hold the same cut.
void Capture::keep_pace(const Use& now) {
  if (!since_) since_ = now;
  const uint64_t before = pace_.every();
  if (const uint64_t most = cuts_that_fit(now); most < before) {
    pace_.at_most(most);
    if (calls_.tell_pace) calls_.tell_pace(pace_.every());
  }
  if (const uint64_t others = calls_.pace_of_others ? calls_.pace_of_others() : 0)
    pace_.at_most(others);
  if (pace_.every() != before) show_pace();  // the client looks at K before the next cut
}

// To the report, and to the client, which says what is live at cuts that are captured.
void Capture::show_pace() {
  store_.header().cut_every.store(pace_.every(), std::memory_order_relaxed);
  session_.channel().control().cut_every.store(pace_.every(), std::memory_order_relaxed);
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
