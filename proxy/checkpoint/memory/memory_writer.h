// Writes the contents of blocks into the device's memory, and finds out what the device has then.
//
// Contents are not hashed before. What is written of one that is damaged has another digest than
// its block, and so it is found as well. So each byte is passed over once, and hashed once, by the
// device if it can. In several threads where the device lets them. Dispatch thread.
#ifndef PYFT_CHECKPOINT_MEMORY_MEMORY_WRITER_H_
#define PYFT_CHECKPOINT_MEMORY_MEMORY_WRITER_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/device.h"
#include "checkpoint/digest/digest.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

struct BlockContent {
  ring::ManifestBlock block;
  const std::byte* from;
};

// Told that a block is about to be written. One thread at a time.
using BlockBegins = FunctionRef<void(const ring::ManifestBlock& block)>;

class MemoryWriter {
 public:
  struct Outcome {
    int code = 0;               // of the device; then nothing else is known
    const char* failed = "";    // with it: what was done
    std::vector<size_t> wrong;  // of the contents: the device has other bytes than the block had
  };

  static constexpr uint64_t kPatienceNs = 60'000'000'000;  // docs/deadlines.md

  // The memory outlives the object. `patience_ns`: that long a thread waits for the next block.
  MemoryWriter(DeviceMemory& memory, DigestKey key, uint64_t patience_ns = kPatienceNs)
      : memory_(memory), key_(key), patience_ns_(patience_ns) {}
  Outcome write(std::span<const BlockContent> contents, BlockBegins begins);
  // Which of these blocks the device has with their digests. Its code, or 0.
  int compare(std::span<const ring::ManifestBlock> blocks, std::vector<bool>* right);

 private:
  class Plan;
  void write_and_look(Plan* plan, bool alone, bool writes);
  void write_each(Plan* plan, bool looks);
  void look(Plan* plan, size_t which);
  int is_right(const ring::ManifestBlock& block, Hasher* hasher, bool* right);

  DeviceMemory& memory_;
  const DigestKey key_;
  const uint64_t patience_ns_;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_MEMORY_MEMORY_WRITER_H_
