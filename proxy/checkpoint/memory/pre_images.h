// Contents of committed snapshots that stay in this GPU's memory: --protect jit,
// docs/concepts/jit.md.
//
// A block in which other ranks have the same contents is not copied to the store: each of them
// could restore the others. From a cut to the next optimizer step the program's own memory has its
// content; at the GATE before that step it is copied within the device. When another rank has lost
// its GPU, what is wanted is written into the store of this rank, just in time, for the other's new
// server to read. Whatever is copied is hashed, and must be what was published at the cut.
//
// Dispatch thread, or no other one meanwhile.
#ifndef PYFT_CHECKPOINT_MEMORY_PRE_IMAGES_H_
#define PYFT_CHECKPOINT_MEMORY_PRE_IMAGES_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "checkpoint/device.h"
#include "checkpoint/digest/digest.h"
#include "checkpoint/store/store.h"

namespace pyft::checkpoint {

class PreImages {
 public:
  // The store must outlive this.
  PreImages(Store& store, const Device& device);
  PreImages(const PreImages&) = delete;
  // Gives no memory back: it goes with the device's context.
  ~PreImages() = default;

  // Whether blocks may be kept here at all: the device lends memory, and can be read beside its
  // work.
  bool possible() const {
    return !closed_ && device_.own && device_.background &&
           (peeks() || device_.background->ready());
  }
  bool closed() const { return closed_; }
  // Where reading what is not mapped is an error of the device: some of the program's memory is
  // about to be unmapped, so that only copies are read until the next cut.
  void leave_memory() { left_ = !peeks(); }
  void enter_memory() { left_ = false; }

  // The snapshot of this step counts: the program's memory has what it names as elsewhere, until
  // keep().
  void expect(const StoredSnapshot& snapshot);
  // What follows may change the program's memory. Those that are not what they were at the cut are
  // lost: returned, for the next cut, and said once.
  std::vector<ring::ManifestBlock> keep();
  // Writes what the snapshot of this step names as elsewhere into the store, lent to other ranks:
  // `waiting`, should it be the one, else what is expected. How many blocks are missing.
  uint64_t spill(uint64_t step, const StoredSnapshot* waiting);
  // What is expected, for a snapshot of another rank: this one makes a cut of its own.
  void give_to_store() { spill(step_, nullptr); }
  // The device is short of memory: all goes to the store, and from now on cuts do as well.
  void give_up();

 private:
  struct Copy {
    uint64_t at = 0, bytes = 0;
    ring::Digest digest{};  // of what is there
    bool whole = false;
  };
  bool peeks() const { return device_.background && device_.background->peeks(); }
  void drop_unwanted();
  bool has(const ring::ManifestBlock& block) const;
  bool make_room(const ring::ManifestBlock& block, Copy* copy);
  bool duplicate(std::vector<const ring::ManifestBlock*>* begun);
  std::vector<ring::Digest> digests_of(const std::vector<const ring::ManifestBlock*>& blocks);
  bool fetch(const ring::ManifestBlock& block, std::byte* to) const;
  bool look(uint64_t address, std::byte* to, uint64_t bytes) const;
  void note_bytes(int64_t more);

  Store& store_;
  const Device device_;
  uint64_t step_ = 0;
  std::vector<ring::ManifestBlock> wanted_;    // by the snapshot of that step
  std::unordered_map<uint64_t, Copy> copies_;  // by the block's address
  bool fresh_ = false;                         // wanted, and not copied yet
  bool closed_ = false, left_ = false, said_ = false;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_MEMORY_PRE_IMAGES_H_
