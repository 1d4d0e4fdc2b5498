// Device memory: real pages at fixed addresses, so that a device pointer can be dereferenced by the
// executor and stays the same in every process that allocates in the same order.
#ifndef SOFTGPU_MEMORY_MEMORY_H_
#define SOFTGPU_MEMORY_MEMORY_H_

#include <driver_types.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "core/windows.h"
#include "memory/range_allocator.h"

namespace softgpu {

inline constexpr uint64_t kGranule = uint64_t{2} << 20;
inline constexpr uint64_t kSmallLimit = uint64_t{1} << 20;  // below: carved from 2 MiB slabs
inline constexpr uint64_t kSmallUnit = 512;

inline constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// An address range with an allocator; reserved without pages until something is allocated.
class Arena {
 public:
  Arena(uint64_t base, uint64_t size) : base_(base), size_(size), granules_(base, size) {}
  bool reserve();  // false if something else is mapped in the range
  // Maps zeroed pages, at `wanted` unless that is 0; 0 if there is no room.
  uint64_t allocate(uint64_t bytes, uint64_t wanted = 0);
  void release(uint64_t address, uint64_t bytes);  // gives the pages back
  uint64_t base() const { return base_; }
  uint64_t size() const { return size_; }

 private:
  uint64_t base_, size_;
  RangeAllocator granules_;
  bool reserved_ = false;
};

// Thread-safe.
class DeviceMemory {
 public:
  DeviceMemory(int device, uint64_t capacity);

  cudaError_t allocate(uint64_t bytes, uint64_t* address);
  cudaError_t release(uint64_t address);  // precondition: no queued work uses it
  // For module globals: from the auxiliary range, so that they never move user allocations.
  cudaError_t allocate_auxiliary(uint64_t bytes, uint64_t* address);
  // The next allocate_auxiliary(), or memory of another process, takes this place or fails; 0: no
  // wish.
  void place_next_auxiliary(uint64_t address);

  // The whole pages in which an allocation lies, alone or with others; false if it is none of ours.
  bool pages_of(uint64_t address, uint64_t* base, uint64_t* bytes) const;
  // A file of another process in the auxiliary range, at `wanted` if that is not 0; its pages are
  // not this device's.
  bool map_file(int fd, uint64_t offset, uint64_t bytes, uint64_t wanted, uint64_t* address);
  // What place_next_auxiliary() has said last, which is forgotten; 0: nothing.
  uint64_t take_wish();
  void unmap_file(uint64_t address, uint64_t bytes);

  // Accounting of memory that lives elsewhere (handles of the virtual memory calls).
  bool charge(uint64_t bytes);
  void refund(uint64_t bytes);
  void info(uint64_t* free_bytes, uint64_t* total_bytes) const;
  uint64_t capacity() const { return capacity_; }

 private:
  struct Block {
    uint64_t bytes = 0;
    uint64_t slab = 0;  // 0: has granules of its own
    Arena* arena = nullptr;
  };
  struct Slab {
    RangeAllocator free;
    uint64_t used = 0;
    Arena* arena = nullptr;
  };

  cudaError_t allocate_in(Arena& arena, uint64_t bytes, uint64_t wanted, uint64_t* address);
  cudaError_t carve(Arena& arena, uint64_t bytes, uint64_t* address);
  cudaError_t carve_at(Arena& arena, uint64_t bytes, uint64_t wanted, uint64_t* address);
  cudaError_t new_granules(Arena& arena, uint64_t bytes, uint64_t wanted, uint64_t* address);
  Arena& main_arena();

  const int device_;
  const uint64_t capacity_;
  mutable std::mutex mutex_;
  uint64_t used_ = 0;
  uint64_t wanted_ = 0;  // place of the next auxiliary allocation
  Arena window_, auxiliary_;
  std::map<uint64_t, Block> blocks_;
  std::map<uint64_t, Slab> slabs_;
};

}  // namespace softgpu

#endif  // SOFTGPU_MEMORY_MEMORY_H_
