// Contents of recovery points that stay in this GPU's memory (--protect jit, docs/recovery.md).
//
// A block in which other ranks have the same contents is not copied to the store: each of them
// could restore the others. From a cut to the next optimizer step the program's own memory has its
// content; at the GATE before that step it is copied within the device. When another rank has lost
// its GPU, what is wanted is written into the store of this rank, just in time, for the other's new
// server to read. Whatever is copied is hashed, and must be what was published at the cut.
//
// Dispatch thread, or nobody else meanwhile.
#ifndef PYFT_SERVER_RECOVERY_SHADOWS_H_
#define PYFT_SERVER_RECOVERY_SHADOWS_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "server/recovery/calls.h"
#include "server/recovery/digest.h"
#include "server/recovery/store.h"

namespace pyft::server {

class Shadows {
 public:
  // `calls` must outlive this.
  Shadows(Store& store, const RecoveryCalls& calls);
  Shadows(const Shadows&) = delete;
  // Gives no memory back: it goes with the device's context.
  ~Shadows() = default;

  // Whether blocks may be kept here at all: the device lends memory, and can be read beside its
  // work.
  bool possible() const {
    return !closed_ && calls_.allocate &&
           (calls_.peek || (calls_.read_beside && calls_.ready_beside()));
  }
  bool closed() const { return closed_; }
  // Where reading what is not mapped is an error of the device: some of the program's memory is
  // about to be unmapped, so that only copies are read until the next cut.
  void leave_memory() { left_ = !calls_.peek; }
  void enter_memory() { left_ = false; }

  // The point of this step counts: the program's memory has what it names as elsewhere, until
  // keep().
  void expect(const RecoveryPoint& point);
  // What follows may change the program's memory. Those that are not what they were at the cut are
  // lost: returned, for the next cut, and said once.
  std::vector<ring::ManifestBlock> keep();
  // Writes what the point of this step names as elsewhere into the store, lent to other ranks:
  // `waiting`, should it be the one, else what is expected. How many blocks are missing.
  uint64_t spill(uint64_t step, const RecoveryPoint* waiting);
  // What is expected, for a point of another rank: this one makes a cut of its own.
  void give_to_store() { spill(step_, nullptr); }
  // The device is short of memory: all goes to the store, and from now on cuts do as well.
  void give_up();

 private:
  struct Copy {
    uint64_t at = 0, bytes = 0;
    ring::Digest digest{};  // of what is there
    bool whole = false;
  };
  void drop_unwanted();
  bool has(const ring::ManifestBlock& block) const;
  bool make_room(const ring::ManifestBlock& block, Copy* copy);
  bool duplicate(std::vector<const ring::ManifestBlock*>* begun);
  std::vector<ring::Digest> digests_of(const std::vector<const ring::ManifestBlock*>& blocks);
  bool fetch(const ring::ManifestBlock& block, std::byte* to) const;
  bool look(uint64_t address, std::byte* to, uint64_t bytes) const;
  void note_bytes(int64_t more);

  Store& store_;
  const RecoveryCalls& calls_;
  uint64_t step_ = 0;
  std::vector<ring::ManifestBlock> wanted_;    // by the point of that step
  std::unordered_map<uint64_t, Copy> copies_;  // by the block's address
  bool fresh_ = false;                         // wanted, and not copied yet
  bool closed_ = false, left_ = false, said_ = false;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_SHADOWS_H_
