// Ranges of device memory, and how what lies there is asked for and handed over.
#ifndef PYFT_CHECKPOINT_MEMORY_RANGE_H_
#define PYFT_CHECKPOINT_MEMORY_RANGE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "pyft/function_ref.h"
#include "ring/store_layout.h"

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
// What is to be written to an address.
struct Content {
  uint64_t address = 0;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
};
// As NextRange, of what is to be written. It stays where it is until the write has returned.
using NextContent = FunctionRef<bool(Content*)>;
// Gets what is read, piece by piece and in order; a piece is of one range, and there until the call
// returns.
using TakePiece = FunctionRef<void(const std::byte* piece, uint64_t bytes)>;

// Gets the digest of a range behind its last piece: of what was handed over, of kind kNh.
using TakeDigest = FunctionRef<void(const ring::Digest& digest)>;

// A NextRange of one range.
inline auto only(const MemoryRange& range) {
  return [left = range](MemoryRange* next) mutable {
    *next = std::exchange(left, {});
    return next->bytes != 0;
  };
}

// A NextContent of one content.
inline auto only(const Content& content) {
  return [left = content](Content* next) mutable {
    *next = std::exchange(left, {});
    return next->bytes != 0;
  };
}

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_MEMORY_RANGE_H_
