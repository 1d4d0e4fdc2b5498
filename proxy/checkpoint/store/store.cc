#include "checkpoint/store/store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "checkpoint/digest/digest.h"
#include "pyft/fault.h"

namespace pyft::checkpoint {

namespace {

template <class Row>
std::byte* write_rows(std::byte* at, const std::vector<Row>& rows) {
  if (!rows.empty()) std::memcpy(at, rows.data(), rows.size() * sizeof(Row));
  return at + rows.size() * sizeof(Row);
}

}  // namespace

Store::Store(std::byte* base, int fd, const ring::StoreHeader& header)
    : base_(base),
      fd_(fd),
      header_(reinterpret_cast<ring::StoreHeader*>(base)),
      heap_base_(base + header.heap_offset),
      manifest_offset_{header.manifest_offset[0], header.manifest_offset[1], header.lent_offset},
      manifest_bytes_(manifest_room(header)),
      heap_bytes_(header.heap_bytes),
      seed_(header.seed),
      heap_(fd, header.heap_offset, header.heap_bytes) {}

std::unique_ptr<Store> Store::open(std::byte* base, uint64_t bytes, int fd, const Shape& shape,
                                   std::string* error) {
  error->clear();
  if (!base || bytes < ring::kPageBytes) {
    *error = numbered("the store is too small: bytes", bytes);
    return nullptr;
  }
  auto* header = reinterpret_cast<ring::StoreHeader*>(base);
  // A store that no server has used is sparse: looking at its first page needs that page.
  if (!back_pages(fd, 0, ring::kPageBytes))
    *error = "there is no memory for the store's first page";
  if (error->empty() && header->magic == 0) *error = format_store(base, bytes, fd, shape);
  if (!error->empty()) return nullptr;
  return read(base, bytes, fd, error);
}

std::unique_ptr<Store> Store::look_at(std::byte* base, uint64_t bytes, int fd, std::string* error) {
  if (base && bytes >= ring::kPageBytes) return read(base, bytes, fd, error);
  *error = numbered("the store is too small: bytes", bytes);
  return nullptr;
}

std::unique_ptr<Store> Store::read(std::byte* base, uint64_t bytes, int fd, std::string* error) {
  const auto* header = reinterpret_cast<const ring::StoreHeader*>(base);
  *error = check_store(*header, bytes);
  if (!error->empty()) return nullptr;
  std::unique_ptr<Store> store(new Store(base, fd, *header));
  *error = store->read_lent();
  if (!error->empty()) return nullptr;
  const uint32_t current = header->current.load(std::memory_order_acquire);
  // What is lent may be there before the first snapshot counts.
  *error = current ? store->read_snapshot(current) : store->adopt_contents();
  if (!error->empty()) return nullptr;
  store->find_unfinished();
  return store;
}

std::string Store::set_digests(ring::DigestKind kind) {
  const ring::DigestKind found = header_->digest_kind.load();
  if (found != kind && (has_committed() || unfinished_))
    return numbered("the store's digests are of kind", static_cast<uint32_t>(found)) +
           numbered(", this server's of kind", static_cast<uint32_t>(kind)) +
           ": PYFT_DEVICE_DIGEST or the kind of GPU has changed in the course of the job";
  header_->digest_kind.store(kind);
  return {};
}

std::string Store::load(uint32_t which, StoredSnapshot* snapshot) const {
  return load_snapshot(fd_, manifest_offset_[which - 1], manifest_bytes_, seed_, snapshot);
}

std::string Store::read_snapshot(uint32_t which) {
  StoredSnapshot snapshot;
  if (std::string error = load(which, &snapshot); !error.empty()) return error;
  committed_ = std::move(snapshot);
  current_ = which;
  return adopt_contents();
}

// Whatever is wrong with it: it is none.
void Store::find_unfinished() {
  StoredSnapshot snapshot;
  if (load(current_ == 1 ? 2 : 1, &snapshot).empty() &&
      snapshot.manifest.cut > committed_.manifest.cut)
    unfinished_ = std::move(snapshot);
}

std::string Store::promote_unfinished(uint64_t seq) {
  if (has_committed() && committed_.manifest.seq >= seq) return {};
  if (!unfinished_ || unfinished_->manifest.seq != seq)
    return numbered("the ranks have agreed on a committed snapshot that the store lacks: entry",
                    seq) +
           numbered(", it has that of entry", has_committed() ? committed_.manifest.seq : 0) +
           numbered(" and an unfinished one of entry", unfinished_ ? unfinished_->manifest.seq : 0);
  const uint32_t which = current_ == 1 ? 2 : 1;
  unfinished_.reset();
  heap_ = Heap(fd_, header_->heap_offset, heap_bytes_);
  contents_.clear();
  offset_of_.clear();
  if (std::string error = read_snapshot(which); !error.empty()) return error;
  header_->current.store(which, std::memory_order_release);
  if (committed_.manifest.step > lent_step_) take_back_lent();
  note_figures();  // without what was lent
  return {};
}

// The heap's parts that the current snapshot and the lent blocks name are taken, everything else is
// free.
std::string Store::adopt_contents() {
  std::vector<const ring::ManifestBlock*> order;
  for (const auto* blocks : {&committed_.blocks, &lent_})
    for (const ring::ManifestBlock& block : *blocks)
      if (!is_remote(block)) order.push_back(&block);
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
      return numbered("the committed snapshot in the store is damaged: a block of bytes",
                      block->bytes) +
             numbered(" lies at heap offset", block->heap_offset);
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
  if (is_remote(block)) return;
  const auto content = contents_.find(block.heap_offset);
  if (--content->second.references) return;
  const auto known = offset_of_.find(block.digest);
  if (known != offset_of_.end() && known->second == block.heap_offset) offset_of_.erase(known);
  heap_.give(block.heap_offset, content->second.bytes);
  contents_.erase(content);
}

void Store::release(const std::vector<ring::ManifestBlock>& blocks) {
  for (const ring::ManifestBlock& block : blocks) release(block);
}

uint64_t Store::reserve(uint64_t bytes) {
  const uint64_t offset = heap_.take(bytes);
  if (offset != Heap::kNone) return offset;
  if (errno == ENOMEM)
    problem_ = "the host, or the limit of its container, has too little memory left for it";
  else if (errno)
    problem_ = std::string("the machine has no memory for it: ") + std::strerror(errno);
  else
    problem_ = "the store is full: " + numbered("bytes", heap_bytes_) +
               numbered(" in all, used", heap_.used()) + numbered(", wanted", bytes);
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

void Store::date(std::span<const DatedRange> dated) {
  for (ring::ManifestBlock& block : open_) {
    const auto next = std::ranges::upper_bound(
        dated, block.address, {}, [](const DatedRange& one) { return one.range.address; });
    if (next == dated.begin()) continue;
    const DatedRange& around = *std::prev(next);
    if (block.address < around.range.end()) block.since = around.since;
  }
}

bool Store::write(ring::Manifest manifest, std::vector<ring::ManifestPlace> places) {
  StoredSnapshot next;
  next.manifest = manifest;
  next.blocks = std::exchange(open_, {});
  next.places = std::move(places);
  std::ranges::sort(next.blocks, {}, &ring::ManifestBlock::address);
  next.manifest.blocks = next.blocks.size();
  next.manifest.places = next.places.size();
  next.manifest.bytes = 0;
  for (const ring::ManifestBlock& block : next.blocks) next.manifest.bytes += block.bytes;
  next.manifest.checksum = checksum_of(next, seed_);
  if (!write_table(current_ == 1 ? 2 : 1, next)) {
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
  heap_.note_extent();
  std::swap(committed_, *waiting_);
  release(waiting_->blocks);
  waiting_.reset();
  if (committed_.manifest.step > lent_step_) take_back_lent();
  heap_.trim();
  note_figures();
}

bool Store::write_table(uint32_t which, const StoredSnapshot& snapshot) {
  const uint64_t table = snapshot.blocks.size() * sizeof(ring::ManifestBlock);
  const uint64_t places = snapshot.places.size() * sizeof(ring::ManifestPlace);
  const uint64_t bytes = sizeof snapshot.manifest + table + places;
  uint64_t& backed = manifest_backed_[which - 1];
  const uint64_t offset = manifest_offset_[which - 1];
  if (bytes > manifest_bytes_ || (bytes > backed && !back_pages(fd_, offset, page_up(bytes)))) {
    problem_ = numbered("there is no room for a table of blocks:", snapshot.blocks.size());
    return false;
  }
  backed = std::max(backed, page_up(bytes));
  std::byte* at = base_ + offset;
  std::memcpy(at, &snapshot.manifest, sizeof snapshot.manifest);
  write_rows(write_rows(at + sizeof snapshot.manifest, snapshot.blocks), snapshot.places);
  return true;
}

void Store::drop_open() {
  release(open_);
  open_.clear();
  if (waiting_) release(waiting_->blocks);
  waiting_.reset();
  note_figures();
}

void Store::note_figures() {
  header_->heap_used.store(heap_.used(), std::memory_order_relaxed);
  header_->heap_backed.store(heap_.backed(), std::memory_order_relaxed);
}

}  // namespace pyft::checkpoint
