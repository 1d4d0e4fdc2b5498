// A device whose memory is this process's.
#ifndef PYFT_TESTS_RECOVERY_MEMORY_H_
#define PYFT_TESTS_RECOVERY_MEMORY_H_

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/memory/copier.h"
#include "recovery/fake.h"
#include "recovery/object.h"

namespace recovery_test {

// Allocations of a device; addresses are those of this process.
struct Memory {
  std::vector<std::vector<std::byte>> blocks;
  uint64_t reads = 0, looks = 0;
  std::atomic<int> idle{0};
  std::atomic<uint64_t> idle_asked{0};      // so often
  bool capturing = false, gets_on = false;  // at every look, it has done something
  bool waits = true;                        // maybe, for another rank
  uint64_t progress = 0;
  std::string out_of_reach;  // what a snapshot would lack
  std::vector<ring::ManifestPlace> hidden;
  std::vector<checkpoint::MemoryRange> foreign;  // mapped as well, by the test itself
  bool peeks = false;                            // also beside the device's work
  std::function<void()> on_peek;                 // called first; in any thread

  uint64_t allocate(uint64_t bytes, int value) {
    blocks.emplace_back(bytes, static_cast<std::byte>(value));
    return reinterpret_cast<uint64_t>(blocks.back().data());
  }
  FakeCalls calls(bool views) {
    FakeCalls calls;
    calls.read = [this](const checkpoint::NextRange& next, const checkpoint::TakePiece& take) {
      for (checkpoint::MemoryRange range; next(&range); ++reads)
        take(reinterpret_cast<const std::byte*>(range.address), range.bytes);
      return 0;
    };
    calls.write = [](uint64_t address, const std::byte* from, uint64_t bytes) {
      std::memcpy(reinterpret_cast<void*>(address), from, bytes);
      return 0;
    };
    if (views)
      calls.view = [this](uint64_t address, uint64_t) {
        ++looks;
        return reinterpret_cast<const std::byte*>(address);
      };
    if (peeks)
      calls.peek = [this](uint64_t address, std::byte* to, uint64_t bytes) {
        if (on_peek) on_peek();
        return checkpoint::peek_own_memory(address, to, bytes);
      };
    calls.idle = [this] { return ++idle_asked, idle.load(); };
    calls.progress = [this] { return gets_on ? ++progress : progress; };
    calls.waits = [this] { return waits; };
    calls.capturing = [this] { return capturing; };
    calls.mapped = [this](std::vector<checkpoint::MemoryRange>* ranges) {
      for (const auto& block : blocks)
        ranges->push_back({reinterpret_cast<uint64_t>(block.data()), block.size()});
      ranges->insert(ranges->end(), foreign.begin(), foreign.end());
    };
    calls.out_of_reach = [this] { return out_of_reach; };
    calls.hidden = [this](std::vector<ring::ManifestPlace>* places) { *places = hidden; };
    return calls;
  }
};

}  // namespace recovery_test

#endif  // PYFT_TESTS_RECOVERY_MEMORY_H_
