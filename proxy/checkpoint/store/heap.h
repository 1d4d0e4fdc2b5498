// Which parts of the store's heap are free. Smallest part that fits, so that contents which change
// at every cut go round between the same places, whose pages are there already.
#ifndef PYFT_CHECKPOINT_STORE_HEAP_H_
#define PYFT_CHECKPOINT_STORE_HEAP_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace pyft::checkpoint {

class Heap {
 public:
  static constexpr uint64_t kAlign = 64;
  static constexpr uint64_t kNone = ~uint64_t{0};
  static constexpr uint64_t kRemembered = 8;

  // `fd` holds the heap at file_offset; no page of it needs to be there yet. `spare` says how much
  // memory it may still take.
  Heap(int fd, uint64_t file_offset, uint64_t bytes, std::function<uint64_t()> spare);
  Heap(int fd, uint64_t file_offset, uint64_t bytes);

  // Room whose pages are there, kNone when there is none: no part is large enough, or the machine
  // has no memory (then `errno` says so, else it is 0).
  uint64_t take(uint64_t bytes);
  // Precondition: this part is free.
  void take_at(uint64_t offset, uint64_t bytes);
  void give(uint64_t offset, uint64_t bytes);
  // Both snapshots are here now: as far as this the heap is used, now and then.
  void note_extent();
  // Gives memory back to the machine when much of it is free at the end, and none of the last
  // kRemembered extents went so far. One snapshot's worth stays in any case: touching pages for the
  // first time takes longer than copying into them.
  void trim();

  uint64_t used() const { return used_; }
  uint64_t backed() const { return backed_; }
  static uint64_t rounded(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

 private:
  void add_free(uint64_t offset, uint64_t bytes);
  void drop_free(std::map<uint64_t, uint64_t>::iterator part);
  bool back(uint64_t end);
  bool may_grow(uint64_t bytes);
  void touch(uint64_t end);
  uint64_t end_of_used() const;

  int fd_;
  uint64_t file_offset_, bytes_;
  std::function<uint64_t()> spare_;
  uint64_t allowed_ = 0;  // bytes that it may grow before it asks again
  uint64_t used_ = 0;
  uint64_t backed_ = 0;   // pages before it are there
  uint64_t touched_ = 0;  // and have been written before it
  std::array<uint64_t, kRemembered> extents_{};
  uint64_t noted_ = 0;                           // extents so far
  std::map<uint64_t, uint64_t> free_;            // offset -> bytes; never two neighbours
  std::set<std::pair<uint64_t, uint64_t>> fit_;  // (bytes, offset) of the same
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_STORE_HEAP_H_
