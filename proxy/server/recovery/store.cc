#include "server/recovery/store.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "pyft/fault.h"
#include "server/recovery/digest.h"

namespace pyft::server {

namespace {

uint64_t page_up(uint64_t value) {
  return (value + ring::kPageBytes - 1) / ring::kPageBytes * ring::kPageBytes;
}

std::string number(const char* text, uint64_t value) {
  return std::string(text) + " [" + std::to_string(value) + "]";
}

bool back(int fd, uint64_t offset, uint64_t bytes) {
  return fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
}

// Lays the areas out one after the other. `magic` comes last: a store counts once it is whole.
std::string format(std::byte* base, uint64_t bytes, int fd, const Store::Shape& shape) {
  const uint64_t communicators =
      page_up(ring::kMaxCommunicators * sizeof(ring::StoredCommunicator));
  const uint64_t manifests = ring::kPageBytes + communicators;
  const uint64_t manifest_bytes = page_up(shape.manifest_bytes);
  const uint64_t journal = manifests + 2 * manifest_bytes;
  const uint64_t records = journal + page_up(shape.journal_bytes);
  const uint64_t records_bytes =
      std::min(page_up(shape.records_bytes), bytes / 2 / ring::kPageBytes * ring::kPageBytes);
  const uint64_t heap = records + records_bytes;
  if (heap >= bytes) return number("the store is too small: bytes", bytes);
  if (!back(fd, 0, manifests)) return "there is no memory for the store's first pages";
  auto* header = reinterpret_cast<ring::StoreHeader*>(base);
  header->bytes = bytes;
  header->communicators_offset = ring::kPageBytes;
  header->manifest_offset[0] = manifests;
  header->manifest_offset[1] = manifests + manifest_bytes;
  header->journal_offset = journal;
  header->journal_bytes = page_up(shape.journal_bytes);
  header->records_offset = records;
  header->records_bytes = records_bytes;
  header->heap_offset = heap;
  header->heap_bytes = bytes - heap;
  header->version = ring::kStoreVersion;
  if (!header->seed && getrandom(&header->seed, sizeof header->seed, 0) != sizeof header->seed)
    return "the kernel gives no random number for the store's digests";
  std::atomic_thread_fence(std::memory_order_release);
  std::atomic_ref(header->magic).store(ring::kStoreMagic, std::memory_order_release);
  return {};
}

template <class Row>
std::byte* write_rows(std::byte* at, const std::vector<Row>& rows) {
  if (!rows.empty()) std::memcpy(at, rows.data(), rows.size() * sizeof(Row));
  return at + rows.size() * sizeof(Row);
}

bool fits(uint64_t offset, uint64_t area, uint64_t bytes) {
  return offset % ring::kPageBytes == 0 && offset >= ring::kPageBytes && offset <= bytes &&
         area <= bytes - offset;
}

// Every number an earlier server has written, before one is used.
std::string check(const ring::StoreHeader& header, uint64_t bytes) {
  if (header.magic != ring::kStoreMagic) return number("the store has magic number", header.magic);
  if (header.version != ring::kStoreVersion)
    return number("the store has layout version", header.version);
  if (header.bytes != bytes) return number("the store says that its size is", header.bytes);
  const uint64_t first = header.manifest_offset[0], second = header.manifest_offset[1];
  if (second <= first || !fits(first, 2 * (second - first), bytes) ||
      second - first < sizeof(ring::Manifest))
    return number("the store's second table does not fit: offset", second);
  if (!fits(header.communicators_offset, ring::kMaxCommunicators * sizeof(ring::StoredCommunicator),
            bytes))
    return number("the store's communicators do not fit: offset", header.communicators_offset);
  if (!fits(header.journal_offset, header.journal_bytes, bytes))
    return number("the store's journal does not fit: offset", header.journal_offset);
  if (!fits(header.records_offset, header.records_bytes, bytes))
    return number("the store's records do not fit: offset", header.records_offset);
  if (!fits(header.heap_offset, header.heap_bytes, bytes))
    return number("the store's heap does not fit: offset", header.heap_offset);
  if (header.current > 2) return number("the store names recovery point", header.current);
  return {};
}

}  // namespace

Store::Store(std::byte* base, int fd, const ring::StoreHeader& header)
    : base_(base),
      fd_(fd),
      header_(reinterpret_cast<ring::StoreHeader*>(base)),
      heap_base_(base + header.heap_offset),
      manifest_offset_{header.manifest_offset[0], header.manifest_offset[1]},
      manifest_bytes_(header.manifest_offset[1] - header.manifest_offset[0]),
      heap_bytes_(header.heap_bytes),
      seed_(header.seed),
      heap_(fd, header.heap_offset, header.heap_bytes) {}

std::unique_ptr<Store> Store::open(std::byte* base, uint64_t bytes, int fd, const Shape& shape,
                                   std::string* error) {
  error->clear();
  if (!base || bytes < ring::kPageBytes) {
    *error = number("the store is too small: bytes", bytes);
    return nullptr;
  }
  auto* header = reinterpret_cast<ring::StoreHeader*>(base);
  // A store nobody has used is sparse: looking at its first page needs that page.
  if (!back(fd, 0, ring::kPageBytes)) *error = "there is no memory for the store's first page";
  if (error->empty() && header->magic == 0) *error = format(base, bytes, fd, shape);
  if (error->empty()) *error = check(*header, bytes);
  if (!error->empty()) return nullptr;
  std::unique_ptr<Store> store(new Store(base, fd, *header));
  if (const uint32_t current = header->current.load(std::memory_order_acquire))
    *error = store->read_point(current);
  if (!error->empty()) return nullptr;
  store->find_unfinished();
  return store;
}

std::string Store::set_digests(ring::DigestKind kind) {
  const ring::DigestKind found = header_->digest_kind.load();
  if (found != kind && (has_point() || unfinished_))
    return number("the store's digests are of kind", static_cast<uint32_t>(found)) +
           number(", this server's of kind", static_cast<uint32_t>(kind)) +
           ": PYFT_DEVICE_DIGEST or the kind of GPU has changed in the course of the job";
  header_->digest_kind.store(kind);
  return {};
}

ring::Digest Store::checksum(const RecoveryPoint& point) const {
  const ring::Manifest& m = point.manifest;
  const uint64_t numbers[] = {m.cut, m.seq, m.position, m.blocks, m.places, m.bytes};
  Hasher hasher(seed_);
  hasher.add(numbers, sizeof numbers);
  hasher.add(point.blocks.data(), point.blocks.size() * sizeof(ring::ManifestBlock));
  hasher.add(point.places.data(), point.places.size() * sizeof(ring::ManifestPlace));
  return hasher.digest();
}

// By pread: a table that nobody has written may have no memory, and must not get any.
std::string Store::load(uint32_t which, RecoveryPoint* point) const {
  uint64_t at = manifest_offset_[which - 1];
  const auto get = [&](void* to, uint64_t bytes) {
    const ssize_t got = bytes ? pread(fd_, to, bytes, static_cast<off_t>(at)) : 0;
    at += bytes;
    return got == static_cast<ssize_t>(bytes);
  };
  ring::Manifest& m = point->manifest;
  if (!get(&m, sizeof m)) return "the recovery point in the store cannot be read";
  const uint64_t room = manifest_bytes_ - sizeof m;
  if (m.blocks > room / sizeof(ring::ManifestBlock) ||
      m.places > (room - m.blocks * sizeof(ring::ManifestBlock)) / sizeof(ring::ManifestPlace))
    return number("the recovery point in the store is damaged: blocks", m.blocks);
  point->blocks.resize(m.blocks);
  point->places.resize(m.places);
  if (!get(point->blocks.data(), m.blocks * sizeof(ring::ManifestBlock)) ||
      !get(point->places.data(), m.places * sizeof(ring::ManifestPlace)))
    return "the recovery point in the store cannot be read";
  if (checksum(*point) != m.checksum)
    return number("the recovery point in the store is damaged: its table has another checksum, cut",
                  m.cut);
  return {};
}

std::string Store::read_point(uint32_t which) {
  RecoveryPoint point;
  if (std::string error = load(which, &point); !error.empty()) return error;
  point_ = std::move(point);
  current_ = which;
  return adopt_contents();
}

// Whatever is wrong with it: it is none.
void Store::find_unfinished() {
  RecoveryPoint point;
  if (load(current_ == 1 ? 2 : 1, &point).empty() && point.manifest.cut > point_.manifest.cut)
    unfinished_ = std::move(point);
}

std::string Store::promote_unfinished(uint64_t seq) {
  if (has_point() && point_.manifest.seq == seq) return {};
  if (!unfinished_ || unfinished_->manifest.seq != seq)
    return number("the ranks have agreed on a recovery point that the store lacks: entry", seq);
  const uint32_t which = current_ == 1 ? 2 : 1;
  unfinished_.reset();
  heap_ = Heap(fd_, header_->heap_offset, heap_bytes_);
  contents_.clear();
  offset_of_.clear();
  if (std::string error = read_point(which); !error.empty()) return error;
  header_->current.store(which, std::memory_order_release);
  return {};
}

// The heap's parts that the current point names are taken, everything else is free.
std::string Store::adopt_contents() {
  std::vector<const ring::ManifestBlock*> order;
  for (const ring::ManifestBlock& block : point_.blocks) order.push_back(&block);
  std::ranges::sort(order, {}, &ring::ManifestBlock::heap_offset);
  uint64_t free_from = 0;
  const ring::ManifestBlock* last = nullptr;
  for (const ring::ManifestBlock* block : order) {
    const bool same = last && last->heap_offset == block->heap_offset;
    const bool sound = block->bytes && block->heap_offset % Heap::kAlign == 0 &&
                       block->heap_offset <= heap_bytes_ &&
                       block->bytes <= heap_bytes_ - block->heap_offset &&
                       (same ? last->bytes == block->bytes && last->digest == block->digest
                             : block->heap_offset >= free_from);
    if (!sound)
      return number("the recovery point in the store is damaged: a block of bytes", block->bytes) +
             number(" lies at heap offset", block->heap_offset);
    if (!same) heap_.take_at(block->heap_offset, block->bytes);
    reference(block->heap_offset, block->bytes, block->digest);
    free_from = block->heap_offset + Heap::rounded(block->bytes);
    last = block;
  }
  note_figures();
  return {};
}

void Store::reference(uint64_t offset, uint64_t bytes, ring::Digest digest) {
  const auto [content, fresh] = contents_.try_emplace(offset, Content{bytes, 0, digest});
  ++content->second.references;
  if (fresh) offset_of_[digest] = offset;
}

void Store::release(const ring::ManifestBlock& block) {
  const auto content = contents_.find(block.heap_offset);
  if (--content->second.references) return;
  const auto known = offset_of_.find(block.digest);
  if (known != offset_of_.end() && known->second == block.heap_offset) offset_of_.erase(known);
  heap_.give(block.heap_offset, content->second.bytes);
  contents_.erase(content);
}

uint64_t Store::reserve(uint64_t bytes) {
  const uint64_t offset = heap_.take(bytes);
  if (offset == Heap::kNone)
    problem_ = errno ? std::string("the machine has no memory for it: ") + std::strerror(errno)
                     : "the store is full: " + number("bytes", heap_bytes_) +
                           number(" in all, used", heap_.used()) + number(", wanted", bytes);
  return offset;
}

bool Store::add_known(uint64_t address, uint64_t bytes, ring::Digest digest) {
  const auto known = offset_of_.find(digest);
  if (known == offset_of_.end()) return false;
  const Content& content = contents_.at(known->second);
  if (content.bytes != bytes) return false;
  open_.push_back({address, bytes, digest, known->second});
  reference(known->second, bytes, digest);
  return true;
}

bool Store::add_stored(uint64_t address, uint64_t bytes, ring::Digest digest, uint64_t offset) {
  if (add_known(address, bytes, digest)) {
    heap_.give(offset, bytes);
    return true;
  }
  open_.push_back({address, bytes, digest, offset});
  reference(offset, bytes, digest);
  return false;
}

bool Store::write(ring::Manifest manifest, std::vector<ring::ManifestPlace> places) {
  RecoveryPoint next;
  next.manifest = manifest;
  next.blocks = std::move(open_);
  next.places = std::move(places);
  open_.clear();
  std::ranges::sort(next.blocks, {}, &ring::ManifestBlock::address);
  next.manifest.blocks = next.blocks.size();
  next.manifest.places = next.places.size();
  next.manifest.bytes = 0;
  for (const ring::ManifestBlock& block : next.blocks) next.manifest.bytes += block.bytes;
  next.manifest.checksum = checksum(next);
  if (!write_point(current_ == 1 ? 2 : 1, next)) {
    open_ = std::move(next.blocks);
    drop_open();
    return false;
  }
  waiting_ = std::move(next);
  return true;
}

void Store::promote() {
  const uint32_t which = current_ == 1 ? 2 : 1;
  PYFT_FAULT("store.before_publish");
  header_->current.store(which, std::memory_order_release);
  PYFT_FAULT("store.after_publish");
  current_ = which;
  std::swap(point_, *waiting_);
  for (const ring::ManifestBlock& block : waiting_->blocks) release(block);
  waiting_.reset();
  heap_.trim();
  note_figures();
}

bool Store::write_point(uint32_t which, const RecoveryPoint& point) {
  const uint64_t table = point.blocks.size() * sizeof(ring::ManifestBlock);
  const uint64_t places = point.places.size() * sizeof(ring::ManifestPlace);
  const uint64_t bytes = sizeof point.manifest + table + places;
  uint64_t& backed = manifest_backed_[which - 1];
  const uint64_t offset = manifest_offset_[which - 1];
  if (bytes > manifest_bytes_ || (bytes > backed && !back(fd_, offset, page_up(bytes)))) {
    problem_ = number("there is no room for a table of blocks:", point.blocks.size());
    return false;
  }
  backed = std::max(backed, page_up(bytes));
  std::byte* at = base_ + offset;
  std::memcpy(at, &point.manifest, sizeof point.manifest);
  write_rows(write_rows(at + sizeof point.manifest, point.blocks), point.places);
  return true;
}

void Store::drop_open() {
  for (const ring::ManifestBlock& block : open_) release(block);
  open_.clear();
  if (waiting_)
    for (const ring::ManifestBlock& block : waiting_->blocks) release(block);
  waiting_.reset();
  note_figures();
}

void Store::note_figures() {
  header_->heap_used.store(heap_.used(), std::memory_order_relaxed);
  header_->heap_backed.store(heap_.backed(), std::memory_order_relaxed);
}

}  // namespace pyft::server
