// The part of ObjectLog that finds room, and says when there is none.
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "pyft/fault.h"
#include "pyft/log.h"
#include "ring/object_log.h"

namespace pyft::ring {

namespace {

constexpr uint64_t kBackingStep = uint64_t{1} << 20;

}  // namespace

void ObjectLog::miss(uint64_t key, uint64_t seq) {
  missing_[key] = seq;
  show_missing();
  if (std::exchange(said_missing_, true)) return;
  PYFT_LOG(kRing, kWarning,
           "the object log of device [%u] is full, [%llu] KB: the job is not protected, "
           "and a fault ends it, for as long as the object of entry [%llu] lives; "
           "PYFT_OBJECT_LOG_MB makes the log larger",
           channel_.device(), static_cast<unsigned long long>(channel_.object_log_bytes() >> 10),
           static_cast<unsigned long long>(seq));
}

void ObjectLog::miss_no_more(uint64_t key) {
  if (!missing_.erase(key)) return;
  show_missing();
  if (!missing_.empty()) return;
  said_missing_ = false;
  PYFT_LOG(kRing, kInfo,
           "all objects of device [%u] are in the object log again: the job is protected "
           "as before",
           channel_.device());
}

void ObjectLog::show_missing() {
  channel_.log().objects_missing.store(missing_.size(), std::memory_order_release);
}

// At four fifths of what is sure to be enough: to be compacted the log needs as much room as lives.
void ObjectLog::watch_room() {
  if (said_high_ || live_bytes_ < channel_.object_log_bytes() / 5 * 2) return;
  said_high_ = true;
  PYFT_LOG(kRing, kWarning,
           "the objects of device [%u] take [%llu] of the [%llu] KB of the object log, of "
           "which half is sure to be of use; when it is full the job is no longer protected: "
           "PYFT_OBJECT_LOG_MB makes it larger",
           channel_.device(), static_cast<unsigned long long>(live_bytes_ >> 10),
           static_cast<unsigned long long>(channel_.object_log_bytes() >> 10));
}

// When much is dead; and when it would be too late later, because what lives needs as much room
// once more.
bool ObjectLog::is_to_be_compacted(uint64_t bytes) const {
  const uint64_t capacity = channel_.object_log_bytes();
  if (dead_bytes_ > live_bytes_ && dead_bytes_ > capacity / 8) return true;
  const LogHeader& log = channel_.log();
  const uint64_t taken = log.object_log_used.load(std::memory_order_relaxed) -
                         log.object_log_begin.load(std::memory_order_relaxed);
  return dead_bytes_ > capacity / 16 && taken + live_bytes_ <= capacity &&
         taken + live_bytes_ + 2 * bytes > capacity;
}

// What is dead at the beginning is in the way of nothing.
void ObjectLog::skip_dead() {
  LogHeader& log = channel_.log();
  uint64_t begin = log.object_log_begin.load(std::memory_order_relaxed);
  const uint64_t used = log.object_log_used.load(std::memory_order_relaxed);
  while (begin < used && at(begin)->flags & kFoldedDead) {
    const EntryHeader& header = *at(begin);
    if (header.call != static_cast<uint16_t>(Mark::kPad)) dead_bytes_ -= header.size;
    begin += header.size;
  }
  log.object_log_begin.store(begin, std::memory_order_release);
}

// Room for `bytes` at the end, with a pad before it if the area's end is in the way.
bool ObjectLog::reserve(uint64_t bytes, uint64_t* position) {
  LogHeader& log = channel_.log();
  const uint64_t capacity = channel_.object_log_bytes();
  const uint64_t used = log.object_log_used.load(std::memory_order_relaxed);
  const uint64_t tail = capacity - used % capacity;
  const uint64_t pad = tail < bytes ? tail : 0;
  if (bytes > capacity || used + pad + bytes > log.object_log_begin.load() + capacity ||
      !back(used, used + pad + bytes))
    return false;
  if (pad) {
    EntryHeader* header = at(used);
    header->size = static_cast<uint32_t>(pad);
    header->call = static_cast<uint16_t>(Mark::kPad);
    header->flags = kFoldedDead;
    header->seq = 0;
    log.object_log_used.store(used + pad, std::memory_order_release);
  }
  *position = used + pad;
  return true;
}

// The object log is sparse: pages are allocated before they are written, so that missing memory is
// an answer and not a SIGBUS.
bool ObjectLog::back(uint64_t begin, uint64_t end) {
  const uint64_t capacity = channel_.object_log_bytes();
  const uint64_t file_offset =
      static_cast<uint64_t>(channel_.log_view().object_log -
                            reinterpret_cast<const std::byte*>(channel_.log_view().header));
  if (backed_ < begin) backed_ = begin;
  while (backed_ < end) {
    const uint64_t offset = backed_ % capacity;
    const uint64_t page_begin = offset / kPageBytes * kPageBytes;
    const uint64_t step = std::min(kBackingStep, capacity - page_begin);
    if (fallocate(channel_.log_fd(), 0, static_cast<off_t>(file_offset + page_begin),
                  static_cast<off_t>(step)))
      return false;
    backed_ += step - (offset - page_begin);
  }
  return true;
}

// Copies what lives behind the end, then moves the beginning there. A crash in between leaves
// entries twice (same sequence number), never half.
void ObjectLog::compact() {
  LogHeader& log = channel_.log();
  const uint64_t begin = log.object_log_used.load(std::memory_order_relaxed);
  const uint64_t old_begin = log.object_log_begin.load(std::memory_order_relaxed);
  std::vector<std::pair<uint64_t, Live*>> order;
  for (auto& [key, entries] : live_)
    for (Live& live : entries) order.push_back({live.position, &live});
  std::sort(order.begin(), order.end());
  std::vector<uint64_t> moved;
  for (const auto& [from, live] : order) {
    uint64_t to = 0;
    const uint64_t size = at(from)->size;
    if (!reserve(size, &to)) break;
    std::memcpy(at(to), at(from), size);
    log.object_log_used.store(to + size, std::memory_order_release);
    moved.push_back(to);
  }
  PYFT_FAULT("objects.before_compacted");
  if (moved.size() < order.size()) {
    // No room for the copies: what was copied is marked dead again and nothing is gained.
    for (const uint64_t position : moved) {
      at(position)->flags |= kFoldedDead;
      dead_bytes_ += at(position)->size;
    }
    return;
  }
  for (size_t i = 0; i < moved.size(); ++i) order[i].second->position = moved[i];
  log.object_log_begin.store(begin, std::memory_order_release);
  dead_bytes_ = 0;
  ++compactions_;
  (void)old_begin;
}

}  // namespace pyft::ring
