// The part of Writer that finds room in ring and arena, and waits for it.
#include <cstdlib>

#include "pyft/fault.h"
#include "pyft/log.h"
#include "ring/align.h"
#include "ring/forced_cut.h"
#include "ring/writer.h"

namespace pyft::ring {

namespace {

constexpr uint64_t kPayloadAlign = 64;
// Ring bytes kept free for the cuts that free the others: the marks and a pad before them.
constexpr uint64_t kCutReserve = 512;
constexpr int kForcedCuts = 3;  // at most so many of these, one after the other

[[noreturn]] void damaged(uint64_t position, uint32_t size) {
  PYFT_LOG(kRing, kError,
           "the command ring is damaged: entry at position [%llu] has size [%u]; this "
           "process wrote over it",
           static_cast<unsigned long long>(position), size);
  std::abort();
}

}  // namespace

uint64_t Writer::ring_free_limit() const {
  const uint64_t committed = channel_.log().committed.load(std::memory_order_relaxed);
  const uint64_t consumed = channel_.control().consumed.load(std::memory_order_acquire);
  return committed < consumed ? committed : consumed;
}

// Waits until the server has decided about a cut at the end, then frees what is before it, or
// before an earlier one that other ranks had to come to. What is freed although nothing was
// snapshotted is lost: only if there is no other way to go on.
template <class Fits>
WaitStatus Writer::free_space(Fits&& fits) {
  LogHeader& log = channel_.log();
  log.space_waits.fetch_add(1, std::memory_order_relaxed);
  if (!takes_snapshots()) {
    if (const WaitStatus status = wait_consumed(appended_); status != WaitStatus::kOk)
      return status;
    log.forced_cuts.fetch_add(1, std::memory_order_relaxed);
    commit({appended_, arena_head_, cuts_});
    pass_commit_points();
    return WaitStatus::kOk;
  }
  const std::atomic<uint64_t>& snapshotted = channel_.control().snapshot_cut;
  bool goes_on = true;
  for (int cut = 0; goes_on && cut < kForcedCuts && !fits(); ++cut) {
    const uint64_t before = snapshotted.load(std::memory_order_acquire);
    append_forced_cut(kFull);
    WaitStatus status = wait_decided(cuts_);
    if (status == WaitStatus::kOk) status = wait_consumed(appended_);  // it is decided before that
    if (status != WaitStatus::kOk) return status;
    goes_on = snapshotted.load(std::memory_order_acquire) > before;
    commit_snapshots();
    pass_commit_points();
  }
  // Not snapshotted: nothing is lost unless the device fails before the next cut.
  if (!fits() && !open_.empty()) {
    if (channel_.control().unprotected.fetch_add(1) == 0)
      PYFT_LOG(kRing, kWarning,
               "the log of device [%u] is full and the state of the device could not be "
               "snapshotted: the job goes on unprotected until the next cut",
               channel_.device());
    const CommitPoint last = open_.back();
    open_.clear();
    commit(last);
  }
  pass_commit_points();
  return WaitStatus::kOk;
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
    if (*end + kCutReserve > ring_free_limit() + ring_bytes) commit_snapshots();
    if (*end + kCutReserve > ring_free_limit() + ring_bytes) {
      const auto fits = [&] {
        place();  // a cut may have been appended
        return *end + kCutReserve <= ring_free_limit() + ring_bytes;
      };
      if (const WaitStatus status = free_space(fits); status != WaitStatus::kOk) return status;
      place();
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
  commit_snapshots();
  pass_commit_points();
  return fits() ? WaitStatus::kOk : free_space(fits);
}

uint64_t Writer::take_arena(uint64_t bytes) {
  const uint64_t position = arena_place(bytes);
  arena_head_ = position + align_up(bytes, kPayloadAlign);
  // Before the bytes: a reader knows by it which older payloads may be overwritten.
  channel_.log().arena_head.exchange(arena_head_, std::memory_order_acq_rel);
  return position;
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

}  // namespace pyft::ring
