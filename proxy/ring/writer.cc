#include "ring/writer.h"

#include <algorithm>

#include "pyft/fault.h"
#include "ring/align.h"

namespace pyft::ring {

namespace {

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
  if (ended_)
    entry.status_ = WaitStatus::kEnding;
  else if (body_bytes > max_body_bytes() || payload_bytes > max_payload_bytes())
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
  if (header.flags & (kCreates | kDestroys | kStreamCaptured))
    folds_.push_back({entry.end_ - header.size, seq});
  next_seq_ = seq + 1;
  if (header.call != static_cast<uint16_t>(Mark::kObserved)) last_effect_ = seq;
  appended_ = entry.end_;
  log.next_seq.store(next_seq_, std::memory_order_relaxed);
  log.entries_total.store(log.entries_total.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
  PYFT_FAULT("ring.before_publish");
  // Everything above becomes visible with this store. Sequentially consistent, because the load
  // of server_sleeping in wake_server() must not pass it: the server could sleep for ever.
  log.appended.store(appended_, std::memory_order_seq_cst);
  PYFT_FAULT("ring.after_publish");
  cut_when_needed();
  entry.lock_.unlock();
  wake_server(channel_.control(), ServerSleep::kAsleep);
  return seq;
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
  Entry entry = begin(static_cast<uint16_t>(Mark::kGoodbye), sizeof(GateMark));
  if (!entry.ok()) return {entry.status(), 0};
  const GateMark body{0};
  std::memcpy(entry.body().data(), &body, sizeof body);
  ended_ = true;
  return {WaitStatus::kOk, publish(std::move(entry))};
}

Appended Writer::cut(std::span<const std::byte> scope, uint64_t expected_seq) {
  Entry entry = begin(static_cast<uint16_t>(Mark::kCut), sizeof(CutMark), 0, scope.size());
  if (!entry.ok()) return {entry.status(), 0};
  const uint64_t seq = entry.seq();
  const bool overtaken = expected_seq && last_effect_ >= expected_seq;
  if (overtaken && ++overtaken_ < kCutTries) return {WaitStatus::kOk, 0};
  overtaken_ = 0;
  passes_over_ |= overtaken;  // and counts: other ranks have this cut as well
  if (!scope.empty()) std::memcpy(entry.payload().data(), scope.data(), scope.size());
  fill_cut(entry.body().data(), false);
  if (takes_snapshots()) {
    open_cut(entry.end_);
    commit_snapshots();
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

void Writer::count_local_calls(uint64_t calls) {
  channel_.log().local_calls.fetch_add(calls, std::memory_order_relaxed);
}

}  // namespace pyft::ring
