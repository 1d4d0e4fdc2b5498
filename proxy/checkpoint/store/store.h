// The contents of device memory that a channel's store holds, and the committed snapshots that name
// them (ring/store_layout.h). A content is kept once however many blocks have it.
//
// Two committed snapshots exist at most: the current one, which a next server would start from, and
// the open one, which a cut is filling. Memory of the heap is free when neither names it; nothing
// else says so, hence a new server finds out by reading the current one. Dispatch thread only.
//
// Ranks with equal contents may share the work (docs/concepts/sharing.md): then a snapshot names
// blocks that are *elsewhere*, in another member's store, and a store may have *lent* blocks, of a
// snapshot before the current one, to snapshots of other members.
#ifndef PYFT_CHECKPOINT_STORE_STORE_H_
#define PYFT_CHECKPOINT_STORE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/digest/digest.h"
#include "checkpoint/memory_range.h"
#include "checkpoint/store/heap.h"
#include "checkpoint/store/store_areas.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

class Store {
 public:
  using Shape = StoreShape;

  // Lays the areas out in a store that no server has used; what an earlier server has left is
  // checked, number by number. nullptr and a sentence when it cannot be used.
  static std::unique_ptr<Store> open(std::byte* base, uint64_t bytes, int fd, const Shape& shape,
                                     std::string* error);
  static std::unique_ptr<Store> open(std::byte* base, uint64_t bytes, int fd, std::string* error) {
    return open(base, bytes, fd, Shape(), error);
  }

  // The store of a server that goes on working with it, mapped privately: it is only looked at.
  static std::unique_ptr<Store> look_at(std::byte* base, uint64_t bytes, int fd,
                                        std::string* error);

  ring::StoreHeader& header() const { return *header_; }
  uint64_t seed() const { return seed_; }
  // Of the blocks' digests.
  DigestKey digest_key() const { return {seed_, header_->digest_kind.load()}; }
  // Before anything is snapshotted or restored. Empty, or why not: the store has others.
  std::string set_digests(ring::DigestKind kind);
  bool has_committed() const { return current_ != 0; }
  const StoredSnapshot& committed() const { return committed_; }
  // A later snapshot that an earlier server had written down whole when it died, before it became
  // the current one. Its contents are gone, its digests are not.
  const std::optional<StoredSnapshot>& unfinished() const { return unfinished_; }
  // It was whole, and has been decided to be the committed snapshot, but its server has died before
  // it could say so; `seq` is the cut's entry. Before anything is reserved: only then its contents
  // are there. What is in the way, or nothing, also when it or a later one is the current one
  // already.
  std::string promote_unfinished(uint64_t seq);
  std::byte* at(uint64_t heap_offset) const { return heap_base_ + heap_offset; }

  // ---- the open committed snapshot ----
  // Room for a content, Heap::kNone when there is none (problem() says why).
  uint64_t reserve(uint64_t bytes);
  // A block whose content lies in reserved room. If the same content is stored already, the room is
  // free again; true then.
  bool add_stored(uint64_t address, uint64_t bytes, ring::Digest digest, uint64_t offset);
  // A block whose content is stored already; false if it is not.
  bool add_known(uint64_t address, uint64_t bytes, ring::Digest digest);
  void give_back(uint64_t offset, uint64_t bytes) { heap_.give(offset, bytes); }
  // A block whose content the store of another member has, or will have.
  void add_elsewhere(uint64_t address, uint64_t bytes, ring::Digest digest, uint64_t owner) {
    open_.push_back({address, bytes, digest, ring::kElsewhere + owner});
  }
  // Notes since when the open snapshot's blocks, or pieces of blocks, hold what they hold.
  void date(std::span<const DatedRange> dated);
  // Blocks with room reserved and filled, for snapshots of this step of other members: kept like
  // what is lent. False: there is no room for the table, and they are dropped.
  bool lend_more(uint64_t step, std::vector<ring::ManifestBlock> blocks);
  // Whether a content is lent, for snapshots of this step.
  bool lends(uint64_t step, ring::Digest digest) const;
  // The content of a block, wherever the store has it; nullptr if it has not.
  const std::byte* find(const ring::ManifestBlock& block) const;
  // Before a cut of this rank alone: what snapshots of other members may name stays until they have
  // another snapshot, which they have when this one has one of theirs. False: there is no room.
  bool lend();
  // The open snapshot is whole: its table is written down. Numbers of blocks are filled in here.
  // False: there is no room for its table, and it is dropped instead. It waits for promote().
  bool write(ring::Manifest manifest, std::vector<ring::ManifestPlace> places);
  // The one that waits becomes the current one, which is dropped.
  void promote();
  const std::optional<StoredSnapshot>& waiting() const { return waiting_; }
  uint64_t waiting_offset() const { return manifest_offset_[current_ == 1 ? 1 : 0]; }
  const std::vector<ring::ManifestBlock>& open_blocks() const { return open_; }
  // Both at once.
  bool publish(ring::Manifest manifest, std::vector<ring::ManifestPlace> places) {
    if (!write(manifest, std::move(places))) return false;
    promote();
    return true;
  }
  // The open snapshot, and one that waits.
  void drop_open();
  const std::string& problem() const { return problem_; }

 private:
  struct Content {
    uint64_t bytes;
    uint64_t references;
    ring::Digest digest;
  };
  struct DigestHash {
    size_t operator()(const ring::Digest& digest) const { return digest.low ^ digest.high; }
  };

  Store(std::byte* base, int fd, const ring::StoreHeader& header);
  static std::unique_ptr<Store> read(std::byte* base, uint64_t bytes, int fd, std::string* error);
  bool write_table(uint32_t which, const StoredSnapshot& snapshot);
  std::string load(uint32_t which, StoredSnapshot* snapshot) const;
  std::string read_snapshot(uint32_t which);
  std::string read_lent();
  void find_unfinished();
  std::string adopt_contents();
  bool write_lent(StoredSnapshot lent);
  void take_back_lent();
  void reference(uint64_t offset, uint64_t bytes, ring::Digest digest);
  void release(const ring::ManifestBlock& block);
  void release(const std::vector<ring::ManifestBlock>& blocks);
  void note_figures();

  std::byte* base_;
  int fd_;
  ring::StoreHeader* header_;
  std::byte* heap_base_;
  uint64_t manifest_offset_[3], manifest_bytes_, heap_bytes_, seed_;  // the last: of what is lent
  uint64_t manifest_backed_[3] = {0, 0, 0};
  Heap heap_;
  uint32_t current_ = 0;
  StoredSnapshot committed_;
  std::optional<StoredSnapshot> unfinished_, waiting_;
  std::vector<ring::ManifestBlock> lent_;
  uint64_t lent_step_ = 0;  // of the snapshots that name them
  std::vector<ring::ManifestBlock> open_;
  std::unordered_map<uint64_t, Content> contents_;                    // by offset
  std::unordered_map<ring::Digest, uint64_t, DigestHash> offset_of_;  // of a content
  std::string problem_;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_STORE_STORE_H_
