#include "server/handlers/scratch.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

namespace pyft::server {

namespace {

constexpr uint64_t kPage = 4096;

}  // namespace

// Whole pages that nothing else has any part of: a driver registers pages, no page twice, and
// copies neither from nor to a range that is registered in part.
std::byte* ScratchMemory::take(const backend::Table& api, uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    for (Piece& piece : pieces_)
      if (!piece.used && piece.bytes >= bytes) {
        piece.used = true;
        return piece.memory;
      }
  }
  const uint64_t size = std::bit_ceil(std::max(bytes, kPage));  // for others as well
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Memory that the driver does not register is copied to while the call lasts: slower, not wrong.
  const bool registered = api.cuMemHostRegister_v2(memory, size, 0) == CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  pieces_.push_back({static_cast<std::byte*>(memory), size, registered, true});
  return pieces_.back().memory;
}

void ScratchMemory::give(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  for (Piece& piece : pieces_)
    if (piece.memory == memory) piece.used = false;
}

void ScratchMemory::release(const backend::Table& api) {
  const std::lock_guard lock(mutex_);
  std::erase_if(pieces_, [&](const Piece& piece) {
    if (piece.used) return false;
    if (piece.registered) api.cuMemHostUnregister(piece.memory);
    munmap(piece.memory, piece.bytes);
    return true;
  });
}

}  // namespace pyft::server
