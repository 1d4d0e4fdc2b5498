// The part of Snapshotter that has to do with how a cut ends, and with what it has cost.
#include <algorithm>
#include <utility>

#include "checkpoint/snapshot/snapshotter.h"
#include "pyft/fault.h"
#include "pyft/log.h"
#include "ring/wait.h"

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kMostCuts = 64;  // as in Interval

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
void Snapshotter::copied(const Copier::Outcome& outcome) {
  ring::StoreHeader& figures = store_.header();
  add(figures.copied_bytes, open_->later_bytes);
  add(figures.later_bytes, open_->later_bytes);
  add(figures.later_ns, outcome.spent_ns);
  open_->later_ns = outcome.spent_ns;
  if (!peeks()) add(figures.fetched_bytes, open_->later_bytes);
  for (const CopyJob& job : outcome.changed) stage_.changed(job.address);
  close(outcome.changed.empty() ? std::string() : why_not(outcome));
}

// The cut that is whole in the store becomes the committed snapshot. Whose thread the store is.
void Snapshotter::promote() {
  if (waits_.exchange(false)) {
    wanted_until_ns_ = 0;
    held_ = states_.asked();
    if (states_.is_compared() && is_agreed()) add(store_.header().compared_cuts, 1);
  }
  PYFT_FAULT("cut.before_publish");
  store_.promote();
  if (since_) step_room_.line(*since_);
  const ring::Manifest& manifest = store_.committed().manifest;
  PYFT_LOG(kSnapshot, kDebug, "cut [%llu]: committed, [%llu] bytes",
           static_cast<unsigned long long>(manifest.cut),
           static_cast<unsigned long long>(manifest.bytes));
  if (pre_images_ && manifest.step) expect_pre_images();
  communicators_.published(manifest.cut, manifest.seq);
  store_.header().live_bytes.store(manifest.bytes, std::memory_order_relaxed);
}

void Snapshotter::expect_pre_images() {
  pre_images_->expect(store_.committed());
  uint64_t bytes = 0;
  for (const ring::ManifestBlock& block : store_.committed().blocks)
    if (is_remote(block)) bytes += block.bytes;
  if (!bytes || std::exchange(said_pre_images_, true)) return;
  PYFT_LOG(kSnapshot, kWarning,
           "device [%u]: of [%llu] bytes at cut [%llu], [%llu] are kept in GPUs "
           "only: they are lost when all ranks that have them fail at once",
           log_.channel.device(),
           static_cast<unsigned long long>(store_.committed().manifest.bytes),
           static_cast<unsigned long long>(store_.committed().manifest.cut),
           static_cast<unsigned long long>(bytes));
}

void Snapshotter::close(const std::string& problem) {
  const bool whole = problem.empty();
  PYFT_LOG(kSnapshot, kDebug, "cut [%llu]: %s",
           static_cast<unsigned long long>(open_->manifest.cut),
           whole ? "whole in the store" : ("none, " + problem).c_str());
  if (whole) {
    since_ = open_->use;
    add(store_.header().snapshots, 1);
  }
  const CutFacts& cut = states_.cut();
  const bool owes = whole && !cut.forced && !communicators_.acknowledged(cut.number);
  perform(states_.made(whole, !owes), problem);
}

// Nothing but the next command, or a cut, tells of the client being in need of the server.
bool Snapshotter::nobody_waits_for(const ring::EntryHeader& header) {
  const auto mark = static_cast<ring::Mark>(header.call);
  return mark == ring::Mark::kObserved || mark == ring::Mark::kAlloc || mark == ring::Mark::kFree;
}

// Entries wait from when the first of them was appended: no sooner than the snapshot begins. While
// this thread has no processor somebody else gets on with his work: on a machine that is too small
// for what it does a snapshot costs its processor time and nothing more.
void Snapshotter::account(uint64_t appended_ns) {
  if (open_->kept_ns) return;
  const uint64_t ended = open_->ended_ns;
  open_->kept_ns =
      std::min(ended - std::clamp(appended_ns, open_->began_ns, ended), open_->used_ns);
  if (!open_->later_bytes) finish_copies();
}

// Waits for the copies of an open cut, and does what only this thread may do about its end.
void Snapshotter::finish_copies() {
  if (!open_) return;
  run_deferred_locked();
  const uint64_t began = ring::now_ns();
  if (copier_) copier_->finish();
  const uint64_t waited = ring::now_ns() - began;
  longest_ns_ = std::max({longest_ns_, open_->ended_ns - open_->began_ns, open_->later_ns});
  ring::StoreHeader& figures = store_.header();
  add(figures.gate_ns, waited);
  if (states_.has_snapshotted()) {
    const uint64_t kept = open_->kept_ns.value_or(open_->used_ns) + open_->scope_ns;
    add(figures.drain_ns, open_->drain_ns);
    add(figures.cut_ns, open_->drain_ns + open_->ended_ns - open_->began_ns);
    add(figures.kept_ns, kept + waited);
    perform(states_.finish());
    interval_.snapshot_taken(open_->cuts, open_->came_ns, kept + waited);
    show_interval();
  }
  open_.reset();
}

LogUse Snapshotter::use_at(const ring::CutMark& cut, uint64_t position) const {
  const ring::StoreHeader& store = store_.header();
  return {cut.step, position, cut.arena_head, store.journal_end.load(std::memory_order_relaxed)};
}

LogUse Snapshotter::room() const {
  const ring::Channel& channel = log_.channel;
  return {0, channel.ring_bytes(), channel.arena_bytes(), store_.header().journal_bytes};
}

// What has come since the last snapshot tells what the cuts between two snapshots need. A third of
// the room: until the next snapshot is decided about, or has to be left out, the log goes on, and
// at half of it the client makes a cut by itself.
uint64_t Snapshotter::cuts_that_fit(const LogUse& now) const {
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
  return used * kMostCuts > kShare * cuts ? static_cast<uint64_t>(kShare * cuts / used) : kMostCuts;
}

// K is bounded by what has to be kept, here and where other ranks have to hold the same cut.
void Snapshotter::keep_pace(const LogUse& now) {
  step_room_.step(now);
  if (!since_) since_ = now;
  const uint64_t before = interval_.every();
  if (const uint64_t most = cuts_that_fit(now); most < before) {
    interval_.at_most(most);
    agent_.tell_pace(interval_.every());
  }
  if (const uint64_t others = agent_.pace_of_others()) interval_.at_most(others);
  if (interval_.every() != before) show_interval();  // the client looks at K before the next cut
}

// To the report, and to the client, which says what is live at cuts that are snapshotted.
void Snapshotter::show_interval() {
  store_.header().cut_every.store(interval_.every(), std::memory_order_relaxed);
  log_.channel.control().cut_every.store(interval_.every(), std::memory_order_relaxed);
}

// In a replay a cut may be taken that an earlier server has already decided about: numbers only
// grow.
void Snapshotter::decided(uint64_t cut, bool snapshotted) {
  ring::ControlPage& page = log_.channel.control();
  if (snapshotted) page.snapshot_cut.store(cut, std::memory_order_seq_cst);
  if (page.decided_cut.load() < cut) page.decided_cut.store(cut, std::memory_order_seq_cst);
  if (!page.decided_waiters.load(std::memory_order_seq_cst)) return;
  page.decided_futex.fetch_add(1, std::memory_order_seq_cst);
  ring::futex_wake(page.decided_futex);
}

void Snapshotter::cancelled(const std::string& why) {
  add(store_.header().cancelled, 1);
  if (std::exchange(said_, true)) return;
  PYFT_LOG(kSnapshot, kWarning, "device [%u]: a cut is not snapshotted: %s", log_.channel.device(),
           why.c_str());
}

}  // namespace pyft::checkpoint
