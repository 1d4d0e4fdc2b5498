// The part of Writer that makes cuts, and frees what is before them once they are snapshotted.
#include <time.h>

#include <algorithm>
#include <utility>

#include "pyft/fault.h"
#include "ring/align.h"
#include "ring/forced_cut.h"
#include "ring/hold.h"
#include "ring/writer.h"

namespace pyft::ring {

namespace {

uint64_t thread_ns() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
}

}  // namespace

bool Writer::takes_snapshots() const {
  return channel_.control().protect.load(std::memory_order_relaxed) ==
         static_cast<uint32_t>(Protect::kSnapshot);
}

// A cut ahead of need: the server decides about it while the program goes on.
void Writer::cut_when_needed() {
  if (ended_) return;  // goodbye is the last entry
  const uint32_t wanted = channel_.control().cuts_wanted.load(std::memory_order_relaxed);
  const bool asked = std::exchange(cuts_wanted_, wanted) != wanted;
  if (!asked && appended_ - last_cut_ring_ < channel_.ring_bytes() / 2 &&
      arena_head_ - last_cut_arena_ < channel_.arena_bytes() / 2)
    return;
  if (takes_snapshots()) append_forced_cut(kHalfFull);
}

// Room for this mark is always kept: kCutReserve.
void Writer::append_forced_cut(uint8_t forced) {
  const uint64_t ring_bytes = channel_.ring_bytes();
  const uint64_t size = align_up(sizeof(EntryHeader) + sizeof(CutMark), kEntryAlign);
  const uint64_t tail = ring_bytes - appended_ % ring_bytes;
  const uint64_t begin = appended_ + (tail < size ? tail : 0);
  if (begin + size > oldest_ + ring_bytes) retire_oldest(begin + size);
  if (tail < size) pad(tail);
  std::byte* at = channel_.ring() + begin % ring_bytes;
  auto* header = reinterpret_cast<EntryHeader*>(at);
  *header = {static_cast<uint32_t>(size),
             static_cast<uint16_t>(Mark::kCut),
             0,
             next_seq_,
             thread_index(),
             kNoSlot,
             0,
             0,
             now_ns()};
  fill_cut(at + sizeof *header, forced);
  LogHeader& log = channel_.log();
  log.forced_cuts.fetch_add(1, std::memory_order_relaxed);
  log.entries_total.fetch_add(1, std::memory_order_relaxed);
  log.next_seq.store(++next_seq_, std::memory_order_relaxed);
  appended_ = begin + size;
  open_cut(appended_);
  log.appended.store(appended_, std::memory_order_seq_cst);
  wake_server(channel_.control(), ServerSleep::kAsleep);
}

// The object log first: what leaves the ring must be there already.
void Writer::commit(const CommitPoint& point) {
  LogHeader& log = channel_.log();
  fold_pending(point.ring);
  PYFT_FAULT("ring.after_fold");
  commits_.push_back(point);
  log.arena_committed.store(point.arena, std::memory_order_release);
  log.committed.store(point.ring, std::memory_order_release);
  log.cuts.fetch_add(1, std::memory_order_relaxed);
  PYFT_FAULT("ring.after_commit");
}

void Writer::fill_cut(std::byte* body, uint8_t forced) {
  const LogHeader& log = channel_.log();
  steps_ += !forced;
  CutMark mark{};
  mark.number = ++cuts_;
  mark.arena_head = arena_head_;
  mark.object_log_used = log.object_log_used.load(std::memory_order_relaxed);
  mark.forced = forced;
  mark.step = steps_;
  channel_.control().steps.store(steps_, std::memory_order_release);
  if (!forced) {
    last_step_cut_ = mark.number;
    mark.passed_over = std::exchange(passes_over_, false);
    mark.scope_us = scope_us();
    scope_began_ns_ = 0;
  }
  std::memcpy(body, &mark, sizeof mark);
}

// The first snapshot is that from which everything else follows.
bool Writer::next_cut_counts() {
  std::lock_guard lock(mutex_);
  const ControlPage& page = channel_.control();
  const uint64_t every = page.cut_every.load(std::memory_order_relaxed);
  passes_over_ = every && page.snapshot_cut.load(std::memory_order_relaxed) &&
                 (steps_ + 1) % every != 0 && !is_hold_wanted(page, steps_ + 1);
  if (passes_over_)
    scope_began_ns_ = 0;
  else if (!overtaken_)
    scope_began_ns_ = thread_ns();
  return !passes_over_;
}

bool Writer::begin_hold() {
  std::lock_guard lock(mutex_);
  if (!takes_snapshots() || cuts_ != last_step_cut_) return false;  // a forced one came behind it
  return ring::begin_hold(channel_.control(), steps_, cuts_, last_cut_ring_);
}

uint16_t Writer::scope_us() const {
  const uint64_t now = thread_ns();  // another thread's, perhaps: then it means nothing
  if (!scope_began_ns_ || now < scope_began_ns_) return 0;
  return static_cast<uint16_t>(std::min<uint64_t>((now - scope_began_ns_) / 1000, UINT16_MAX));
}

// A cut ends before `ring_position`.
void Writer::open_cut(uint64_t ring_position) {
  last_cut_ring_ = ring_position;
  last_cut_arena_ = arena_head_;
  open_.push_back({ring_position, arena_head_, cuts_});
}

// All open cuts up to the last one in the store, in one step.
void Writer::commit_snapshots() {
  const uint64_t snapshotted = channel_.control().snapshot_cut.load(std::memory_order_acquire);
  if (open_.empty() || open_.front().cut > snapshotted) return;
  CommitPoint last{};
  for (; !open_.empty() && open_.front().cut <= snapshotted; open_.pop_front())
    last = open_.front();
  commit(last);
}

void Writer::fold_pending(uint64_t before) {
  size_t done = 0;
  for (; done < folds_.size() && folds_[done].position < before; ++done) {
    const std::byte* at = channel_.ring() + folds_[done].position % channel_.ring_bytes();
    const auto& header = *reinterpret_cast<const EntryHeader*>(at);
    const std::byte* payload = channel_.arena() + header.payload_position % channel_.arena_bytes();
    object_log_.fold(header, {at + sizeof header, header.size - sizeof header},
                     {payload, header.payload_bytes});
  }
  folds_.erase(folds_.begin(), folds_.begin() + static_cast<ptrdiff_t>(done));
}

// Payloads before a commit point are free once the server has passed its ring position.
void Writer::pass_commit_points() {
  const uint64_t consumed = channel_.control().consumed.load(std::memory_order_acquire);
  for (; !commits_.empty() && commits_.front().ring <= consumed; commits_.pop_front())
    arena_free_before_ = commits_.front().arena;
}

void Writer::forget_creation(uint64_t seq) {
  if (in_forked_child()) return;
  std::lock_guard lock(mutex_);
  for (size_t i = folds_.size(); i-- > 0;)
    if (folds_[i].seq == seq) {
      EntryHeader& header = header_at(folds_[i].position);
      const bool captured = header.flags & kStreamCaptured;
      if (!captured) header.flags |= kRefused;  // what is captured is repeated as a whole
      folds_.erase(folds_.begin() + static_cast<ptrdiff_t>(i));
      if (captured) forget_capture(i);
      return;
    }
  object_log_.forget(seq);
}

// What was captured for a graph that has not come to be; the first `before` of folds_ are looked
// at.
void Writer::forget_capture(size_t before) {
  object_log_.forget_capture();
  const auto end = folds_.begin() + static_cast<ptrdiff_t>(before);
  const auto left = std::remove_if(folds_.begin(), end, [&](const Fold& fold) {
    const uint16_t flags = header_at(fold.position).flags;
    return flags & kStreamCaptured && !(flags & kCreates);
  });
  folds_.erase(left, end);
}

EntryHeader& Writer::header_at(uint64_t position) const {
  return *reinterpret_cast<EntryHeader*>(channel_.ring() + position % channel_.ring_bytes());
}

}  // namespace pyft::ring
