#include "oplog/content_store.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace flexccl {
namespace {

constexpr std::uint64_t kStoreMagic = 0x31736e74636c6663;  // "cflctns1"
constexpr std::uint64_t kUnit = 64;
constexpr std::uint64_t kBytesPerEntry = 32 << 10, kMaxEntries = 1 << 14;
constexpr std::uint64_t kPieces = 64, kLeastPiece = 256 << 10;
constexpr time_t kLockSeconds = 2;

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

// Lies in memory of several processes.
struct ContentStore::Entry {
  ContentKey key;
  std::uint64_t offset;
  std::uint64_t claimed, written;  // pieces, one bit each
  std::uint64_t holders;           // 0: the entry is free. Written last
};

struct ContentStore::Header {
  std::uint64_t magic, bytes, entry_count, data_offset, data_bytes;
  std::uint64_t hint;  // where the next content is tried first
  pthread_mutex_t mutex;
};

// A process that ends with it leaves nothing half done: an entry is used from one store on.
class ContentStore::Lock {
 public:
  explicit Lock(pthread_mutex_t* mutex) : mutex_(mutex) {
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += kLockSeconds;
    const int code = pthread_mutex_timedlock(mutex_, &until);
    if (code == EOWNERDEAD) pthread_mutex_consistent(mutex_);
    held_ = code == 0 || code == EOWNERDEAD;
  }
  ~Lock() {
    if (held_) pthread_mutex_unlock(mutex_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  explicit operator bool() const { return held_; }

 private:
  pthread_mutex_t* mutex_;
  bool held_ = false;
};

ContentStore& ContentStore::process() {
  static ContentStore* const all = std::unique_ptr<ContentStore>(new ContentStore).release();
  return *all;
}

std::span<ContentStore::Entry> ContentStore::entries() const {
  auto* first = reinterpret_cast<std::byte*>(header_) + padded(sizeof(Header));
  return {reinterpret_cast<Entry*>(first), header_->entry_count};
}

void ContentStore::attach(std::span<std::byte> memory, int holder) {
  const std::scoped_lock own(mutex_);
  const std::uint64_t count = std::min(kMaxEntries, memory.size() / kBytesPerEntry);
  const std::uint64_t front = padded(sizeof(Header)) + padded(count * sizeof(Entry));
  if (!memory.data() || reinterpret_cast<std::uintptr_t>(memory.data()) % kUnit || count < 2 ||
      holder < 0 || holder >= kHolders)
    fail(ncclInvalidArgument, "flexccl: [", memory.size(), "] bytes at [",
         static_cast<const void*>(memory.data()), "] for holder [", holder,
         "] cannot be a content store: [", 2 * kBytesPerEntry,
         "] bytes at least, aligned to [64], and a holder below [64]");
  auto* header = reinterpret_cast<Header*>(memory.data());
  // Processes race here: the first one makes the store, and the others wait for it or, when it has
  // died, are told.
  std::uint64_t expected = 0;
  const std::atomic_ref magic(header->magic);
  if (magic.compare_exchange_strong(expected, 1)) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&header->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    header->bytes = memory.size(), header->entry_count = count;
    header->data_offset = front, header->data_bytes = (memory.size() - front) / kUnit * kUnit;
    magic.store(kStoreMagic, std::memory_order_release);
  }
  constexpr int kLooks = 2000;
  for (int i = 0; i < kLooks && magic.load(std::memory_order_acquire) == 1; ++i) {
    const timespec pause{0, 1000000};
    nanosleep(&pause, nullptr);
  }
  if (magic.load(std::memory_order_acquire) != kStoreMagic || header->bytes != memory.size())
    fail(ncclInvalidArgument, "flexccl: the [", memory.size(), "] bytes at [",
         static_cast<const void*>(memory.data()),
         "] are no content store; a new one has to be zeros");
  header_ = header, data_ = memory.data() + front, bit_ = std::uint64_t{1} << holder;
}

// Precondition: the lock is held. After the content that came last, if it fits there.
std::optional<std::uint64_t> ContentStore::place_for(std::uint64_t bytes) const {
  std::uint64_t at = header_->hint, turned = 0;
  for (;;) {
    if (bytes > header_->data_bytes || turned > 1) return std::nullopt;
    if (at + bytes > header_->data_bytes) {
      at = 0, ++turned;
      continue;
    }
    const auto all = entries();
    const auto other = std::find_if(all.begin(), all.end(), [&](const Entry& entry) {
      return entry.holders && entry.offset < at + bytes &&
             at < entry.offset + std::max(kUnit, padded(entry.key.bytes));
    });
    if (other == all.end()) return at;
    at = other->offset + std::max(kUnit, padded(other->key.bytes));
  }
}

// The entry of the content, held from now on; null: there is no room.
ContentStore::Entry* ContentStore::claim(const ContentKey& key) {
  const Lock lock(&header_->mutex);
  if (!lock) return nullptr;
  Entry* empty = nullptr;
  for (Entry& entry : entries()) {
    const std::atomic_ref holders(entry.holders);
    if (!holders.load(std::memory_order_acquire)) {
      if (!empty) empty = &entry;
    } else if (entry.key == key) {
      holders.fetch_or(bit_);
      return &entry;
    }
  }
  const auto place = place_for(std::max(kUnit, padded(key.bytes)));
  if (!empty || !place) return nullptr;
  empty->key = key, empty->offset = *place, empty->claimed = 0, empty->written = 0;
  header_->hint = *place + std::max(kUnit, padded(key.bytes));
  std::atomic_ref(empty->holders).store(bit_, std::memory_order_release);
  return empty;
}

// All ranks that hold it write, each a part. What one of them has claimed and not written yet when
// nothing else is left is written once more: the same bytes, and none waits for another.
void ContentStore::write(Entry& entry, std::span<const std::byte> content) const {
  const std::uint64_t piece = padded(std::max(kLeastPiece, content.size() / kPieces + 1));
  const std::uint64_t count = (content.size() + piece - 1) / piece;
  const std::atomic_ref claimed(entry.claimed), written(entry.written);
  const auto put = [&](std::uint64_t i) {
    const auto part = content.subspan(i * piece, std::min(piece, content.size() - i * piece));
    std::memcpy(data_ + entry.offset + i * piece, part.data(), part.size());
    written.fetch_or(std::uint64_t{1} << i, std::memory_order_acq_rel);
  };
  for (std::uint64_t i = 0; i < count; ++i)
    if (!(claimed.fetch_or(std::uint64_t{1} << i) >> i & 1)) put(i);
  for (std::uint64_t i = 0; i < count; ++i)
    if (!(written.load(std::memory_order_acquire) >> i & 1)) put(i);
}

std::optional<std::uint64_t> ContentStore::hold(const ContentKey& key,
                                                std::span<const std::byte> content) {
  const std::scoped_lock own(mutex_);
  if (!header_) return std::nullopt;
  Entry* entry = claim(key);
  if (!entry) return std::nullopt;
  write(*entry, content);
  const auto place = static_cast<std::uint64_t>(entry - entries().data());
  ++uses_[place];
  return place;
}

void ContentStore::hold_again(std::uint64_t place) {
  const std::scoped_lock own(mutex_);
  ++uses_[place];
}

void ContentStore::abandon(std::uint64_t place) {
  const std::scoped_lock own(mutex_);
  const auto uses = uses_.find(place);
  if (uses != uses_.end() && --uses->second == 0) uses_.erase(uses);
}

void ContentStore::release(std::uint64_t place, const ContentKey& key) {
  const std::scoped_lock own(mutex_);
  const auto uses = uses_.find(place);
  if (uses == uses_.end() || --uses->second > 0) return;
  uses_.erase(uses);
  if (!header_ || place >= header_->entry_count) return;
  Entry& entry = entries()[place];
  const std::atomic_ref holders(entry.holders);
  if (holders.load(std::memory_order_acquire) & bit_ && entry.key == key)
    holders.fetch_and(~bit_, std::memory_order_acq_rel);
}

std::span<const std::byte> ContentStore::find(std::uint64_t place, const ContentKey& key) const {
  const std::scoped_lock own(mutex_);
  if (!header_ || place >= header_->entry_count) return {};
  const Entry& entry = entries()[place];
  if (!(entry.holders & bit_) || entry.key != key || entry.offset + key.bytes > header_->data_bytes)
    return {};
  return {data_ + entry.offset, key.bytes};
}

std::uint64_t ContentStore::room() const {
  const std::scoped_lock own(mutex_);
  return header_ ? header_->data_bytes : 0;
}

std::uint64_t ContentStore::used() const {
  const std::scoped_lock own(mutex_);
  std::uint64_t sum = 0;
  if (header_)
    for (const Entry& entry : entries())
      if (entry.holders) sum += padded(entry.key.bytes);
  return sum;
}

}  // namespace flexccl
