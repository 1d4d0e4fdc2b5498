// What of the device's memory is live at a cut (design-recovery.md, A13).
#ifndef PYFT_SERVER_RECOVERY_LIVE_SET_H_
#define PYFT_SERVER_RECOVERY_LIVE_SET_H_

#include <span>
#include <string>
#include <vector>

#include "server/recovery/calls.h"

namespace pyft::server {

struct LiveSet {
  std::vector<MemoryRange> blocks;  // by address, none overlaps another, none is empty
  // Sizes: of blocks that the program's allocator has handed out, of memory mapped otherwise, of
  // memory that is the device's own, and of what is left out although it is mapped.
  uint64_t block_bytes = 0, mapped_bytes = 0, hidden_bytes = 0, scratch_bytes = 0;
};

// `scope`: payload of the cut, a CutScope that a hostile client may have written, or empty. A
// sentence when it does not fit what is mapped: such a cut is not captured.
std::string find_live(std::span<const std::byte> scope, std::vector<MemoryRange> mapped,
                      std::vector<MemoryRange> scratch,
                      const std::vector<ring::ManifestPlace>& hidden, LiveSet* live);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_LIVE_SET_H_
