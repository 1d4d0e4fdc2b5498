// Ranges of device memory, and how what lies there is asked for and handed over.
#ifndef PYFT_CHECKPOINT_MEMORY_RANGE_H_
#define PYFT_CHECKPOINT_MEMORY_RANGE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "pyft/function_ref.h"

namespace pyft::checkpoint {

struct MemoryRange {
  uint64_t address = 0, bytes = 0;
  uint64_t end() const { return address + bytes; }
  bool operator==(const MemoryRange&) const = default;
};

// Since when it holds what it holds (ManifestBlock::since).
struct DatedRange {
  MemoryRange range;
  uint64_t since = 0;
};

// What is to be read next; false: nothing more, however often it is asked. Ahead of what has been
// taken.
using NextRange = FunctionRef<bool(MemoryRange*)>;
// Gets what is read, piece by piece and in order; a piece is of one range, and there until the call
// returns.
using TakePiece = FunctionRef<void(const std::byte* piece, uint64_t bytes)>;

// A NextRange of one range.
inline auto only(const MemoryRange& range) {
  return [left = range](MemoryRange* next) mutable {
    *next = std::exchange(left, {});
    return next->bytes != 0;
  };
}

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_MEMORY_RANGE_H_
