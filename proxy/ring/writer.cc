#include "ring/writer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "pyft/fault.h"

namespace pyft::ring {

namespace {

constexpr uint64_t kPayloadAlign = 64;
// Ring bytes kept free for the cut that frees the others: the mark and a pad before it.
constexpr uint64_t kCutReserve = 256;

uint64_t align_up(uint64_t value, uint64_t to) {
  return (value + to - 1) / to * to;
}

[[noreturn]] void damaged(uint64_t position, uint32_t size) {
  std::fprintf(stderr,
               "pyft: the command ring is damaged: entry at position [%llu] has size [%u]; this "
               "process wrote over it\n",
               static_cast<unsigned long long>(position), size);
  std::abort();
}

// Memory for what is about to be written, and for a pad or a mark behind it.
WaitStatus back(Channel& channel, uint64_t ring_end, uint64_t arena_end) {
  const uint64_t ring = std::min(ring_end + kPageBytes, channel.ring_bytes());
  return channel.back_ring(ring) || channel.back_arena(arena_end) ? WaitStatus::kNoMemory
                                                                  : WaitStatus::kOk;
}

}  // namespace

uint32_t thread_index() {
  static std::atomic<uint32_t> next{0};
  thread_local const uint32_t index = next.fetch_add(1, std::memory_order_relaxed);
  return index;
}

Writer::Writer(Channel& channel, const Liveness& liveness)
    : channel_(channel), liveness_(liveness), object_log_(channel) {
  arm_fork_guard();
  const LogHeader& log = channel.log();
  appended_ = log.appended;
  arena_head_ = arena_free_before_ = log.arena_head;
  next_seq_ = log.next_seq;
  oldest_ = log.oldest;
}

Entry Writer::begin(uint16_t call, uint32_t body_bytes, uint16_t flags, uint64_t payload_bytes) {
  Entry entry;
  if (in_forked_child()) return entry;  // before the mutex: its owner may not exist here
  entry.lock_ = std::unique_lock(mutex_);
  const uint64_t size = align_up(sizeof(EntryHeader) + body_bytes, kEntryAlign);
  uint64_t begin = 0, payload_position = 0;
  entry.status_ = WaitStatus::kOk;
  if (body_bytes > max_body_bytes() || payload_bytes > max_payload_bytes())
    entry.status_ = WaitStatus::kTooLarge;
  else if (payload_bytes)
    entry.status_ = make_arena_room(payload_bytes);
  if (entry.ok()) entry.status_ = reserve_ring(size, &begin, &entry.end_);
  const uint64_t payload_end =
      payload_bytes ? arena_place(payload_bytes) % channel_.arena_bytes() + payload_bytes : 0;
  if (entry.ok()) entry.status_ = back(channel_, begin % channel_.ring_bytes() + size, payload_end);
  // Last: a cut that made room on the way does not free this payload.
  if (entry.ok() && payload_bytes) payload_position = take_arena(payload_bytes);
  if (!entry.ok()) {
    entry.lock_.unlock();
    return entry;
  }
  std::byte* at = channel_.ring() + begin % channel_.ring_bytes();
  entry.header_ = reinterpret_cast<EntryHeader*>(at);
  const uint16_t all_flags = flags | (payload_bytes ? kHasPayload : 0);
  *entry.header_ = {static_cast<uint32_t>(size),
                    call,
                    all_flags,
                    next_seq_,
                    thread_index(),
                    kNoSlot,
                    payload_position,
                    payload_bytes,
                    0};
  std::memset(at + size - kEntryAlign, 0, size > sizeof(EntryHeader) ? kEntryAlign : 0);
  entry.body_ = {at + sizeof(EntryHeader), body_bytes};
  if (payload_bytes)
    entry.payload_ = {channel_.arena() + payload_position % channel_.arena_bytes(), payload_bytes};
  PYFT_FAULT("ring.after_begin");
  return entry;
}

uint64_t Writer::publish(Entry entry) {
  LogHeader& log = channel_.log();
  EntryHeader& header = *entry.header_;
  header.time_ns = now_ns();
  const uint64_t seq = header.seq;
  if (header.flags & (kCreates | kDestroys | kCaptured))
    folds_.push_back({entry.end_ - header.size, seq});
  next_seq_ = seq + 1;
  appended_ = entry.end_;
  log.next_seq.store(next_seq_, std::memory_order_relaxed);
  log.entries_total.store(log.entries_total.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
  PYFT_FAULT("ring.before_publish");
  // Everything above becomes visible with this store. Sequentially consistent, because the load
  // of server_sleeping in wake_server() must not pass it: the server could sleep for ever.
  log.appended.store(appended_, std::memory_order_seq_cst);
  PYFT_FAULT("ring.after_publish");
  cut_when_half_full();
  entry.lock_.unlock();
  wake_server(channel_.control(), ServerSleep::kAsleep);
  return seq;
}

uint64_t Writer::ring_free_limit() const {
  const uint64_t committed = channel_.log().committed.load(std::memory_order_relaxed);
  const uint64_t consumed = channel_.control().consumed.load(std::memory_order_acquire);
  return committed < consumed ? committed : consumed;
}

WaitStatus Writer::reserve_ring(uint64_t bytes, uint64_t* begin, uint64_t* end) {
  const uint64_t ring_bytes = channel_.ring_bytes();
  const auto place = [&] {
    const uint64_t tail = ring_bytes - appended_ % ring_bytes;
    *begin = appended_ + (tail < bytes ? tail : 0);
    *end = *begin + bytes;
  };
  place();
  // `oldest` is never behind committed work, so room below it needs no look at the cursors.
  if (*end + kCutReserve > oldest_ + ring_bytes) {
    if (*end + kCutReserve > ring_free_limit() + ring_bytes) commit_captured();
    if (*end + kCutReserve > ring_free_limit() + ring_bytes) {
      if (const WaitStatus status = free_space(); status != WaitStatus::kOk) return status;
      place();  // a cut may have been appended
    }
    retire_oldest(*end);
  }
  if (*begin != appended_) pad(*begin - appended_);
  return WaitStatus::kOk;
}

// Fills the ring's end, which is too short for the next entry.
void Writer::pad(uint64_t bytes) {
  auto* header =
      reinterpret_cast<EntryHeader*>(channel_.ring() + appended_ % channel_.ring_bytes());
  header->size = static_cast<uint32_t>(bytes);
  header->call = static_cast<uint16_t>(Mark::kPad);
  header->flags = 0;
  header->seq = 0;
}

// Gives up whole entries until [.., new_end) fits, and some more so that this is rare.
void Writer::retire_oldest(uint64_t new_end) {
  const uint64_t ring_bytes = channel_.ring_bytes();
  const uint64_t spare = ring_bytes / 64 < 65536 ? ring_bytes / 64 : 65536;
  const uint64_t limit = ring_free_limit();
  while (oldest_ + ring_bytes < new_end + spare && oldest_ < limit) {
    const auto* header =
        reinterpret_cast<const EntryHeader*>(channel_.ring() + oldest_ % ring_bytes);
    if (header->size < kEntryAlign || header->size % kEntryAlign) damaged(oldest_, header->size);
    oldest_ += header->size;
  }
  // An exchange and not a store: the bytes written next must not become visible before it.
  channel_.log().oldest.exchange(oldest_, std::memory_order_acq_rel);
  PYFT_FAULT("ring.after_retire");
}

// Position for `bytes` in one piece.
uint64_t Writer::arena_place(uint64_t bytes) const {
  const uint64_t tail = channel_.arena_bytes() - arena_head_ % channel_.arena_bytes();
  return arena_head_ + (tail < bytes ? tail : 0);
}

WaitStatus Writer::make_arena_room(uint64_t bytes) {
  const auto fits = [&] {
    return arena_place(bytes) + align_up(bytes, kPayloadAlign) <=
           arena_free_before_ + channel_.arena_bytes();
  };
  if (fits()) return WaitStatus::kOk;
  commit_captured();
  pass_commit_points();
  return fits() ? WaitStatus::kOk : free_space();
}

uint64_t Writer::take_arena(uint64_t bytes) {
  const uint64_t position = arena_place(bytes);
  arena_head_ = position + align_up(bytes, kPayloadAlign);
  // Before the bytes: a reader knows by it which older payloads may be overwritten.
  channel_.log().arena_head.exchange(arena_head_, std::memory_order_acq_rel);
  return position;
}

bool Writer::captures() const {
  return channel_.control().protect.load(std::memory_order_relaxed) ==
         static_cast<uint32_t>(Protect::kCapture);
}

// A cut ahead of need: the server decides about it while the program goes on.
void Writer::cut_when_half_full() {
  if (appended_ - last_cut_ring_ < channel_.ring_bytes() / 2 &&
      arena_head_ - last_cut_arena_ < channel_.arena_bytes() / 2)
    return;
  if (captures()) append_forced_cut();
}

// Room for this mark is always kept: kCutReserve.
void Writer::append_forced_cut() {
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
  fill_cut(at + sizeof *header, true);
  LogHeader& log = channel_.log();
  log.forced_cuts.fetch_add(1, std::memory_order_relaxed);
  log.entries_total.fetch_add(1, std::memory_order_relaxed);
  log.next_seq.store(++next_seq_, std::memory_order_relaxed);
  appended_ = begin + size;
  open_cut(appended_);
  log.appended.store(appended_, std::memory_order_seq_cst);
  wake_server(channel_.control(), ServerSleep::kAsleep);
}

// Waits until the server has decided about a cut at the end, then frees what is before it.
WaitStatus Writer::free_space() {
  LogHeader& log = channel_.log();
  log.space_waits.fetch_add(1, std::memory_order_relaxed);
  if (!captures()) {
    if (const WaitStatus status = wait_consumed(appended_); status != WaitStatus::kOk)
      return status;
    log.forced_cuts.fetch_add(1, std::memory_order_relaxed);
    commit({appended_, arena_head_, cuts_});
    pass_commit_points();
    return WaitStatus::kOk;
  }
  append_forced_cut();
  if (const WaitStatus status = wait_decided(cuts_); status != WaitStatus::kOk) return status;
  commit_captured();
  // Not captured: nothing is lost unless the device fails before the next cut.
  if (!open_.empty()) {
    if (channel_.control().unprotected.fetch_add(1) == 0)
      std::fprintf(stderr,
                   "pyft: the log of device [%u] is full and the state of the device could not be "
                   "captured: the job goes on unprotected until the next cut\n",
                   channel_.device());
    const CommitPoint last = open_.back();
    open_.clear();
    commit(last);
  }
  pass_commit_points();
  return WaitStatus::kOk;
}

WaitStatus Writer::wait_decided(uint64_t cut) {
  ControlPage& page = channel_.control();
  return wait_until(page.decided_futex, &page.decided_waiters, liveness_,
                    [&] { return page.decided_cut.load(std::memory_order_seq_cst) >= cut; });
}

WaitStatus Writer::wait_consumed(uint64_t position) {
  ControlPage& page = channel_.control();
  return wait_until(page.consumed_futex, &page.consumed_waiters, liveness_,
                    [&] { return page.consumed.load(std::memory_order_seq_cst) >= position; });
}

WaitStatus Writer::wait_consumed_all() {
  if (in_forked_child()) return WaitStatus::kForked;
  return wait_consumed(channel_.log().appended.load(std::memory_order_acquire));
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

void Writer::fill_cut(std::byte* body, bool forced) {
  const LogHeader& log = channel_.log();
  const CutMark mark{++cuts_, arena_head_, log.object_log_used.load(std::memory_order_relaxed),
                     forced ? 1u : 0u, 0};
  std::memcpy(body, &mark, sizeof mark);
}

// A cut ends before `ring_position`.
void Writer::open_cut(uint64_t ring_position) {
  last_cut_ring_ = ring_position;
  last_cut_arena_ = arena_head_;
  open_.push_back({ring_position, arena_head_, cuts_});
}

// All open cuts up to the last one in the store, in one step.
void Writer::commit_captured() {
  const uint64_t captured = channel_.control().captured_cut.load(std::memory_order_acquire);
  if (open_.empty() || open_.front().cut > captured) return;
  CommitPoint last{};
  for (; !open_.empty() && open_.front().cut <= captured; open_.pop_front()) last = open_.front();
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

bool Writer::unreplayable() {
  LogHeader& log = channel_.log();
  uint64_t none = 0;
  return log.unreplayable_from.compare_exchange_strong(none, log.next_seq.load());
}

template <class Body>
Appended Writer::mark(Mark kind, const Body& body) {
  return append(static_cast<uint16_t>(kind), body);
}

Appended Writer::alloc_mark(uint64_t address, uint64_t requested_bytes) {
  return mark(Mark::kAlloc, AllocMark{address, requested_bytes});
}

Appended Writer::free_mark(uint64_t address, uint64_t requested_bytes) {
  return mark(Mark::kFree, AllocMark{address, requested_bytes});
}

Appended Writer::observed(uint32_t word, uint32_t kind, uint64_t value) {
  return mark(Mark::kObserved, ObservedMark{word, kind, value});
}

Appended Writer::fence(uint64_t stream, uint32_t word, uint64_t value) {
  return mark(Mark::kFence, FenceMark{stream, word, 0, value});
}

Appended Writer::gate() {
  return mark(Mark::kGate,
              GateMark{channel_.control().decided_cut.load(std::memory_order_relaxed)});
}

Appended Writer::goodbye() {
  return mark(Mark::kGoodbye, GateMark{0});
}

Appended Writer::cut(std::span<const std::byte> scope, uint64_t expected_seq) {
  Entry entry = begin(static_cast<uint16_t>(Mark::kCut), sizeof(CutMark), 0, scope.size());
  if (!entry.ok()) return {entry.status(), 0};
  const uint64_t seq = entry.seq();
  if (expected_seq && seq != expected_seq) return {WaitStatus::kOk, 0};
  if (!scope.empty()) std::memcpy(entry.payload().data(), scope.data(), scope.size());
  fill_cut(entry.body().data(), false);
  if (captures()) {
    open_cut(entry.end_);
    commit_captured();
  } else {
    // Committed before the mark is visible: both only ever claim what is already true of the
    // entries before it, and the mutex is held only once.
    commit({entry.end_ - entry.header_->size, arena_head_, cuts_});
    last_cut_ring_ = entry.end_;
    last_cut_arena_ = arena_head_;
  }
  pass_commit_points();
  publish(std::move(entry));
  return {WaitStatus::kOk, seq};
}

uint64_t Writer::next_seq() {
  std::lock_guard lock(mutex_);
  return next_seq_;
}

uint64_t Writer::reserve_bounce(const Entry& entry, uint64_t bytes) {
  (void)entry;  // holds mutex_, which guards bounce_head_
  const uint64_t position = bounce_head_;
  bounce_head_ += bytes;
  return position;
}

void Writer::forget_creation(uint64_t seq) {
  if (in_forked_child()) return;
  std::lock_guard lock(mutex_);
  for (size_t i = folds_.size(); i-- > 0;)
    if (folds_[i].seq == seq) {
      const bool captured = header_at(folds_[i].position).flags & kCaptured;
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
    return flags & kCaptured && !(flags & kCreates);
  });
  folds_.erase(left, end);
}

const EntryHeader& Writer::header_at(uint64_t position) const {
  return *reinterpret_cast<const EntryHeader*>(channel_.ring() + position % channel_.ring_bytes());
}

void Writer::count_local_calls(uint64_t calls) {
  channel_.log().local_calls.fetch_add(calls, std::memory_order_relaxed);
}

}  // namespace pyft::ring
