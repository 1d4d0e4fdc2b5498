#include "memory/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "core/config.h"
#include "memory/ipc_file.h"
#include "memory/pointers.h"

namespace softgpu {
namespace {

void* at(uint64_t address) {
  return reinterpret_cast<void*>(address);
}

}  // namespace

PointerTable& pointers() {
  // Never destroyed: worker threads may still look addresses up while the process exits.
  static PointerTable* table = std::make_unique<PointerTable>().release();
  return *table;
}

bool Arena::reserve() {
  if (reserved_) return true;
  void* got = mmap(at(base_), size_, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got != at(base_)) {  // kernels before 4.17 take the address as a hint
    munmap(got, size_);
    return false;
  }
  reserved_ = true;
  return true;
}

uint64_t Arena::allocate(uint64_t bytes, uint64_t wanted) {
  if (!reserve()) return 0;
  if (wanted && !granules_.take_at(wanted, bytes)) return 0;
  const uint64_t address = wanted ? wanted : granules_.take(bytes).value_or(0);
  if (!address) return 0;
  void* got = mmap(at(address), bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (got == MAP_FAILED) {
    granules_.give(address, bytes);
    return 0;
  }
  // A forked child has no GPU; without this every write after a fork would copy the page.
  madvise(got, bytes, MADV_DONTFORK);
  return address;
}

void Arena::release(uint64_t address, uint64_t bytes) {
  forget_export(address);
  mmap(at(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
       0);
  granules_.give(address, bytes);
}

// What a process leaves free before its first module, if it is to be another one in each.
static uint64_t before_modules() {
  constexpr uint64_t kPlaces = 1009;
  return config().modules_anywhere ? (static_cast<uint64_t>(getpid()) % kPlaces + 1) * kGranule : 0;
}

DeviceMemory::DeviceMemory(int device, uint64_t capacity)
    : device_(device),
      capacity_(capacity),
      window_(kWindowBase + device * kWindowBytes, kWindowBytes),
      auxiliary_(kAuxiliaryBase + device * kAuxiliaryBytes + before_modules(),
                 kAuxiliaryBytes - before_modules()) {}

Arena& DeviceMemory::main_arena() {
  return window_.reserve() ? window_ : auxiliary_;
}

cudaError_t DeviceMemory::allocate(uint64_t bytes, uint64_t* address) {
  std::lock_guard lock(mutex_);
  return allocate_in(main_arena(), bytes, 0, address);
}

cudaError_t DeviceMemory::allocate_auxiliary(uint64_t bytes, uint64_t* address) {
  std::lock_guard lock(mutex_);
  return allocate_in(auxiliary_, bytes, std::exchange(wanted_, 0), address);
}

void DeviceMemory::place_next_auxiliary(uint64_t address) {
  std::lock_guard lock(mutex_);
  wanted_ = address;
}

cudaError_t DeviceMemory::allocate_in(Arena& arena, uint64_t bytes, uint64_t wanted,
                                      uint64_t* address) {
  if (bytes > capacity_) return cudaErrorMemoryAllocation;
  const bool small = bytes < kSmallLimit;
  const uint64_t rounded = round_up(bytes, small ? kSmallUnit : kGranule);
  const cudaError_t status = !small   ? new_granules(arena, rounded, wanted, address)
                             : wanted ? carve_at(arena, rounded, wanted, address)
                                      : carve(arena, rounded, address);
  if (status != cudaSuccess) return status;
  if (!small) blocks_[*address] = {rounded, 0, &arena};
  pointers().add({*address, rounded, PointerKind::kDevice, device_, 0});
  return cudaSuccess;
}

cudaError_t DeviceMemory::new_granules(Arena& arena, uint64_t bytes, uint64_t wanted,
                                       uint64_t* address) {
  if (used_ + bytes > capacity_) return cudaErrorMemoryAllocation;
  const uint64_t got = arena.allocate(bytes, wanted);
  if (!got) return cudaErrorMemoryAllocation;
  used_ += bytes;
  *address = got;
  return cudaSuccess;
}

cudaError_t DeviceMemory::carve(Arena& arena, uint64_t bytes, uint64_t* address) {
  for (auto& [base, slab] : slabs_) {
    if (slab.arena != &arena) continue;
    const auto got = slab.free.take(bytes);
    if (!got) continue;
    slab.used += bytes;
    blocks_[*got] = {bytes, base, &arena};
    *address = *got;
    return cudaSuccess;
  }
  uint64_t base = 0;
  const cudaError_t status = new_granules(arena, kGranule, 0, &base);
  if (status != cudaSuccess) return status;
  slabs_[base] = {RangeAllocator(base, kGranule), 0, &arena};
  return carve(arena, bytes, address);
}

cudaError_t DeviceMemory::carve_at(Arena& arena, uint64_t bytes, uint64_t wanted,
                                   uint64_t* address) {
  uint64_t base = wanted / kGranule * kGranule;
  if (!slabs_.contains(base)) {
    const cudaError_t status = new_granules(arena, kGranule, base, &base);
    if (status != cudaSuccess) return status;
    slabs_[base] = {RangeAllocator(base, kGranule), 0, &arena};
  }
  Slab& slab = slabs_[base];
  if (!slab.free.take_at(wanted, bytes)) return cudaErrorMemoryAllocation;
  slab.used += bytes;
  blocks_[wanted] = {bytes, base, &arena};
  *address = wanted;
  return cudaSuccess;
}

cudaError_t DeviceMemory::release(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(address);
  if (it == blocks_.end()) return cudaErrorInvalidValue;
  const Block block = it->second;
  blocks_.erase(it);
  pointers().remove(address);
  if (!block.slab) {
    block.arena->release(address, block.bytes);
    used_ -= block.bytes;
    return cudaSuccess;
  }
  Slab& slab = slabs_[block.slab];
  slab.free.give(address, block.bytes);
  slab.used -= block.bytes;
  if (slab.used == 0) {
    slab.arena->release(block.slab, kGranule);
    slabs_.erase(block.slab);
    used_ -= kGranule;
  }
  return cudaSuccess;
}

bool DeviceMemory::pages_of(uint64_t address, uint64_t* base, uint64_t* bytes) const {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(address);
  if (it == blocks_.end()) return false;
  *base = it->second.slab ? it->second.slab : address;
  *bytes = it->second.slab ? kGranule : it->second.bytes;
  return true;
}

uint64_t DeviceMemory::take_wish() {
  std::lock_guard lock(mutex_);
  return std::exchange(wanted_, 0);
}

bool DeviceMemory::map_file(int fd, uint64_t offset, uint64_t bytes, uint64_t wanted,
                            uint64_t* address) {
  std::lock_guard lock(mutex_);
  const uint64_t got = auxiliary_.allocate(bytes, wanted);
  if (!got) return false;
  if (mmap(at(got), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
           static_cast<off_t>(offset)) == MAP_FAILED) {
    auxiliary_.release(got, bytes);
    return false;
  }
  madvise(at(got), bytes, MADV_DONTFORK);
  *address = got;
  return true;
}

void DeviceMemory::unmap_file(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  auxiliary_.release(address, bytes);
}

bool DeviceMemory::charge(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > capacity_ || used_ + bytes > capacity_) return false;
  used_ += bytes;
  return true;
}

void DeviceMemory::refund(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  used_ -= bytes;
}

void DeviceMemory::info(uint64_t* free_bytes, uint64_t* total_bytes) const {
  std::lock_guard lock(mutex_);
  *free_bytes = capacity_ - used_;
  *total_bytes = capacity_;
}

}  // namespace softgpu
