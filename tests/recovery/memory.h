// A store in a memory object and a device whose memory is this process's.
#ifndef PYFT_TESTS_RECOVERY_MEMORY_H_
#define PYFT_TESTS_RECOVERY_MEMORY_H_

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/recovery/calls.h"
#include "server/recovery/copier.h"
#include "server/recovery/store.h"
#include "server/session.h"

namespace recovery_test {

using namespace pyft;  // NOLINT: a test

inline constexpr server::Store::Shape kSmall = {1 << 16, 1 << 16, 1 << 16, 1 << 12};
inline constexpr uint64_t kBeforeHeap = 1 << 20;  // more than all other areas take

// A sparse memory object, as the agent makes it.
struct Object {
  explicit Object(uint64_t size) : bytes(size), fd(memfd_create("store", MFD_CLOEXEC)) {
    if (ftruncate(fd, static_cast<off_t>(bytes)) == 0)
      at = static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  }
  Object(const Object&) = delete;
  ~Object() {
    munmap(at, bytes);
    close(fd);
  }
  std::unique_ptr<server::Store> open(std::string* error) const {
    return server::Store::open(at, bytes, fd, kSmall, error);
  }
  uint64_t bytes;
  int fd;
  std::byte* at = nullptr;
};

// Allocations of a device; addresses are those of this process.
struct Memory {
  std::vector<std::vector<std::byte>> blocks;
  uint64_t reads = 0, looks = 0;
  std::atomic<int> idle{0};
  bool capturing = false, gets_on = false;  // at every look, it has done something
  uint64_t progress = 0;
  std::vector<ring::ManifestPlace> hidden;
  std::vector<server::MemoryRange> foreign;  // mapped as well, by the test itself
  bool peeks = false;                        // also beside the device's work
  std::function<void()> on_peek;             // called first; in any thread

  uint64_t allocate(uint64_t bytes, int value) {
    blocks.emplace_back(bytes, static_cast<std::byte>(value));
    return reinterpret_cast<uint64_t>(blocks.back().data());
  }
  server::DeviceCalls device() {
    server::DeviceCalls calls;
    calls.progress = [this] { return gets_on ? ++progress : progress; };
    return calls;
  }
  server::RecoveryCalls calls(bool views) {
    server::RecoveryCalls calls;
    calls.read = [this](const server::NextRange& next, const server::TakePiece& take) {
      for (server::MemoryRange range; next(&range); ++reads)
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
        return server::peek_own_memory(address, to, bytes);
      };
    calls.idle = [this] { return idle.load(); };
    calls.capturing = [this] { return capturing; };
    calls.mapped = [this](std::vector<server::MemoryRange>* ranges) {
      for (const auto& block : blocks)
        ranges->push_back({reinterpret_cast<uint64_t>(block.data()), block.size()});
      ranges->insert(ranges->end(), foreign.begin(), foreign.end());
    };
    calls.hidden = [this](std::vector<ring::ManifestPlace>* places) { *places = hidden; };
    calls.scratch = [](std::vector<server::MemoryRange>*) {};
    calls.place = [](const ring::ManifestPlace&) { return 0; };
    return calls;
  }
};

}  // namespace recovery_test

#endif  // PYFT_TESTS_RECOVERY_MEMORY_H_
