// What the host and the kernel must agree on (nh.h has the definition of the digest). Compiled by
// NVRTC as well: no includes but field.h.
#ifndef PYFT_CHECKPOINT_DIGEST_KERNEL_H_
#define PYFT_CHECKPOINT_DIGEST_KERNEL_H_

#include "checkpoint/digest/field.h"

namespace pyft::checkpoint {

// A tile has 128 rows of 32 units of 16 bytes; a column is what has the same place in each row.
constexpr unsigned kUnitBytes = 16, kColumns = 32, kRows = 128, kPasses = 4;
constexpr unsigned kRowBytes = kColumns * kUnitBytes;
constexpr unsigned kTileBytes = kRows * kRowBytes;
constexpr unsigned kCoefficients = kColumns * kPasses;  // of a tile
constexpr unsigned kKeyUnits = kRows + kPasses - 1;

struct alignas(16) Unit {
  unsigned word[4];
};

// Some tiles of one block, the work of one warp: whole ones but for the block's last.
struct alignas(16) Slice {
  unsigned long long address, bytes;
};

// The kernel's one argument, at most 4096 bytes.
struct KernelArgument {
  Unit key[kKeyUnits];
  Number power[kPasses];          // r^0, r^1, ...
  Number column_power[kColumns];  // of a column's first coefficient
  Number tile_power;              // from one tile to the next
  const Slice* slices;
  Number* sums;  // one per slice, as if it began with the block's first tile
  unsigned count;
};
static_assert(sizeof(KernelArgument) <= 4096);

constexpr unsigned kWarpsPerBlock = 4;
#define PYFT_DIGEST_KERNEL "pyft_nh_digest"

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_DIGEST_KERNEL_H_
