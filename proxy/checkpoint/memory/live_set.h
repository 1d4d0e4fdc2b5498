// What of the device's memory is live at a cut (A13).
#ifndef PYFT_CHECKPOINT_MEMORY_LIVE_SET_H_
#define PYFT_CHECKPOINT_MEMORY_LIVE_SET_H_

#include <span>
#include <string>
#include <vector>

#include "checkpoint/memory_range.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

struct LiveSet {
  std::vector<MemoryRange> blocks;  // by address, none overlaps another, none is empty
  std::vector<DatedRange> dated;    // of the blocks of the program's allocator, by address
  // Sizes: of blocks that the program's allocator has handed out, of memory mapped otherwise, of
  // memory that is the device's own, and of what is left out although it is mapped.
  uint64_t block_bytes = 0, mapped_bytes = 0, hidden_bytes = 0, scratch_bytes = 0;

  // For the report; of the `first` cut the sizes as well.
  void note(bool first, ring::StoreHeader* figures) const;
};

// `scope`: payload of the cut, a CutScope that a hostile client may have written, or empty. A
// sentence when it does not fit what is mapped: such a cut is not snapshotted.
std::string find_live(std::span<const std::byte> scope, std::vector<MemoryRange> mapped,
                      std::vector<MemoryRange> scratch,
                      const std::vector<ring::ManifestPlace>& hidden, LiveSet* live);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_MEMORY_LIVE_SET_H_
