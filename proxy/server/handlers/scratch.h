// Page-locked memory for results that a replay only compares.
#ifndef PYFT_SERVER_HANDLERS_SCRATCH_H_
#define PYFT_SERVER_HANDLERS_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backend/backend.h"

namespace pyft::server {

// The dispatch thread takes and frees; any thread gives back.
class ScratchMemory {
 public:
  // nullptr: there is no memory.
  std::byte* take(const backend::Table& api, uint64_t bytes);
  void give(std::byte* memory);
  // Frees what is not in use. Only while the device has nothing to do: a driver waits for it, and
  // it may wait for other ranks, which wait for what this thread is to do next.
  void release(const backend::Table& api);

 private:
  struct Piece {
    std::byte* memory;
    uint64_t bytes;
    bool registered, used;
  };
  std::mutex mutex_;
  std::vector<Piece> pieces_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_HANDLERS_SCRATCH_H_
