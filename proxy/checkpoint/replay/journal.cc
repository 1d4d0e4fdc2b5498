#include "checkpoint/replay/journal.h"

#include <fcntl.h>

#include <algorithm>
#include <new>
#include <utility>

#include "pyft/log.h"
#include "ring/wait.h"

#include "checkpoint/replay/divergence.h"

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kAlign = 64;
constexpr uint64_t kBackingStep = uint64_t{4} << 20;
constexpr uint64_t kMaxKind = 5;
constexpr uint64_t kAgainNs = 1'000'000'000;
constexpr size_t kMostLost = 4096;

uint64_t align_up(uint64_t value) {
  return (value + kAlign - 1) / kAlign * kAlign;
}

Journal::Key key(uint64_t seq, uint64_t index, ring::JournalKind kind) {
  return {seq, index * kMaxKind + static_cast<uint64_t>(kind)};
}

}  // namespace

Journal::Journal(ring::Channel& channel) : channel_(channel) {
  if (!channel.store()) return;
  header_ = reinterpret_cast<ring::StoreHeader*>(channel.store());
  area_ = channel.store() + header_->journal_offset;
}

ring::JournalRecord* Journal::at(uint64_t position) const {
  return reinterpret_cast<ring::JournalRecord*>(area_ + position % header_->journal_bytes);
}

std::byte* Journal::data(ring::JournalRecord* record) {
  return reinterpret_cast<std::byte*>(record) + kAlign;
}

std::string Journal::adopt() {
  if (!header_) return {};
  const uint64_t begin = header_->journal_begin.load(), end = header_->journal_end.load();
  const uint64_t size = header_->journal_bytes;
  backed_ = end;
  if (const uint64_t first = header_->journal_lost.load()) lost_ = {first}, last_lost_ = first;
  if (begin > end || end - begin > size) return "the journal has no valid bounds";
  for (uint64_t position = begin; position < end;) {
    ring::JournalRecord* const record = at(position);
    const uint64_t room = std::min(size - position % size, end - position);
    if (record->size < kAlign || record->size % kAlign || record->size > room)
      return "the journal is damaged at position [" + std::to_string(position) + "]";
    if (record->kind)
      old_[key(record->seq, record->index, static_cast<ring::JournalKind>(record->kind))] = record;
    position += record->size;
  }
  return {};
}

ring::JournalRecord* Journal::find(uint64_t seq, uint64_t index, ring::JournalKind kind) const {
  if (old_.empty()) return nullptr;
  const auto found = old_.find(key(seq, index, kind));
  return found == old_.end() ? nullptr : found->second;
}

bool Journal::lost(uint64_t seq) const {
  const uint64_t first = header_ ? header_->journal_lost.load() : 0;
  return first && seq >= first;
}

// Pages are allocated before they are written: missing memory must not be a SIGBUS.
bool Journal::back(uint64_t begin, uint64_t end) {
  const uint64_t size = header_->journal_bytes;
  if (backed_ < begin) backed_ = begin;
  while (backed_ < end) {
    const uint64_t offset = backed_ % size;
    const uint64_t step = std::min(kBackingStep, size - offset);
    if (fallocate(channel_.store_fd(), 0, static_cast<off_t>(header_->journal_offset + offset),
                  static_cast<off_t>(step)))
      return false;
    backed_ += step;
  }
  return true;
}

ring::JournalRecord* Journal::add(uint64_t seq, uint64_t index, ring::JournalKind kind,
                                  uint64_t bytes, uint64_t data_bytes) {
  if (!header_) return nullptr;
  const uint64_t area = header_->journal_bytes, size = kAlign + align_up(data_bytes);
  uint64_t position = header_->journal_end.load(std::memory_order_relaxed);
  const uint64_t tail = area - position % area;
  const uint64_t pad = tail < size ? tail : 0;
  const uint64_t end = position + pad + size;
  if (size > area || end > header_->journal_begin.load() + area || !back(position, end)) {
    lose(seq);
    return nullptr;
  }
  if (pad) new (at(position)) ring::JournalRecord{pad, 0, 0, {}, 0, 0, 0, {}, 0};
  ring::JournalRecord* const record = at(position + pad);
  new (record)
      ring::JournalRecord{size, static_cast<uint16_t>(kind), 0, {}, seq, index, bytes, {}, 0};
  header_->journal_end.store(end, std::memory_order_release);
  if (used() > header_->journal_bytes / 5 * 4) watch_room();
  return record;
}

uint64_t Journal::used() const {
  if (!header_) return 0;
  return header_->journal_end.load() - header_->journal_begin.load();
}

// Behind a cut that is not decided yet entries may find no room, too, and the snapshot of that cut
// does not make up for them.
uint64_t Journal::first_lost_from(uint64_t seq) const {
  const auto first = std::ranges::lower_bound(lost_, seq);
  if (first != lost_.end()) return *first;
  return last_lost_ >= seq ? seq : 0;
}

void Journal::lose(uint64_t seq) {
  uint64_t none = 0;
  const auto place = std::ranges::lower_bound(lost_, seq);
  if (lost_.size() < kMostLost && (place == lost_.end() || *place != seq)) lost_.insert(place, seq);
  last_lost_ = std::max(last_lost_, seq);
  if (header_->journal_lost.compare_exchange_strong(none, seq)) {
    header_->journal_losses.fetch_add(1);
    channel_.control().journal_lost.store(seq);
    if (!std::exchange(said_lost_, true))
      PYFT_LOG(kRecovery, kWarning,
               "device [%u]: the journal of [%llu] MB is full, of what copies read "
               "from page-locked memory since the last snapshot: the job is not protected from "
               "entry [%llu] on until the next one, which is asked for at once; PYFT_JOURNAL_MB "
               "makes the journal larger",
               channel_.device(), static_cast<unsigned long long>(header_->journal_bytes >> 20),
               static_cast<unsigned long long>(seq));
  }
  wanted_ = false;  // what was asked for has not come in time, or was not snapshotted
  want_snapshot();
}

void Journal::watch_room() {
  if (!std::exchange(said_high_, true))
    PYFT_LOG(kRecovery, kWarning,
             "device [%u]: what copies have read from page-locked memory since the "
             "last snapshot fills [%llu] of the [%llu] MB of the journal: snapshots are made "
             "more often; PYFT_JOURNAL_MB makes the journal larger",
             channel_.device(), static_cast<unsigned long long>(used() >> 20),
             static_cast<unsigned long long>(header_->journal_bytes >> 20));
  want_snapshot();
}

// Once for each snapshot, and once a second while none can be made.
void Journal::want_snapshot() {
  const uint64_t now = ring::now_ns();
  if (wanted_ || (wanted_ns_ && now < wanted_ns_ + kAgainNs)) return;
  wanted_ = true;
  wanted_ns_ = now;
  channel_.control().cuts_wanted.fetch_add(1);
}

bool Journal::has_room(uint64_t data_bytes) const {
  const uint64_t area = header_->journal_bytes,
                 used = header_->journal_end.load() - header_->journal_begin.load();
  return 2 * (kAlign + align_up(data_bytes)) <= area - std::min(area, used);  // there may be a pad
}

ring::JournalRecord* Journal::keep(uint64_t seq, uint64_t bytes) {
  if (!header_) return nullptr;
  ring::JournalRecord* const old = find(seq, 0, ring::JournalKind::kCollective);
  if (old && old->bytes == bytes) {
    old->filled.store(0);
    return old;
  }
  const uint64_t area = header_->journal_bytes, room = 2 * (kAlign + align_up(bytes));
  if (bytes > area || used() + room > area / 2) return nullptr;  // there may be a pad
  const uint64_t position = header_->journal_end.load(std::memory_order_relaxed);
  if (!back(position, position + room)) return nullptr;  // add() would count it as lost
  return add(seq, 0, ring::JournalKind::kCollective, bytes, bytes);
}

ring::JournalRecord* Journal::add_result(uint64_t seq, uint64_t index, uint64_t bytes) {
  if (!header_) return nullptr;
  const uint64_t data_bytes = ring::kJournalResultBytes + 2 * sample_bytes(bytes);
  ring::JournalRecord* const record =
      add(seq, index, ring::JournalKind::kResult, bytes, has_room(data_bytes) ? data_bytes : 0);
  if (ring::JournalResult* const result = record ? Journal::result(record) : nullptr)
    new (result) ring::JournalResult{{}, 0};
  return record;
}

ring::JournalResult* Journal::result(ring::JournalRecord* record) {
  const uint64_t needed = kAlign + ring::kJournalResultBytes + 2 * sample_bytes(record->bytes);
  if (record->size < needed) return nullptr;
  return reinterpret_cast<ring::JournalResult*>(data(record));
}

std::byte* Journal::told(ring::JournalRecord* record) {
  return data(record) + ring::kJournalResultBytes;
}

void Journal::release_before(uint64_t seq) {
  if (!header_) return;
  uint64_t begin = header_->journal_begin.load(std::memory_order_relaxed);
  const uint64_t end = header_->journal_end.load(std::memory_order_relaxed);
  while (begin < end) {
    const ring::JournalRecord* record = at(begin);
    if (record->kind && record->seq >= seq) break;
    begin += record->size;
  }
  header_->journal_begin.store(begin, std::memory_order_release);
  wanted_ = false;
  wanted_ns_ = 0;
  // A cut is snapshotted some time after it was made: what found no room since is still lost.
  std::erase_if(lost_, [seq](uint64_t one) { return one < seq; });
  if (lacks() && header_->journal_lost.load() < seq) {
    const uint64_t first = first_lost_from(seq);
    header_->journal_lost.store(first);
    channel_.control().journal_lost.store(first);
    if (first) want_snapshot();
    if (!first && header_->journal_losses.load() == 1)
      PYFT_LOG(kRecovery, kInfo,
               "device [%u]: a snapshot has been made: the job is protected again; "
               "how often the journal was full is counted in the report (journal_losses)",
               channel_.device());
  }
  header_->journal_used.store(used(), std::memory_order_relaxed);
  std::erase_if(old_, [seq](const auto& one) { return one.second->seq < seq; });
}

}  // namespace pyft::checkpoint
