#include "device/memory_virtual.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>

#include "device/device.h"
#include "memory/memory.h"
#include "memory/pointers.h"

namespace softgpu {
namespace {

// Memory created by a handle, living in the device's backing file, so that it keeps its content
// wherever and however often it is mapped.
struct Physical {
  int device = 0;
  uint64_t bytes = 0, offset = 0;
  int handles = 1;  // not yet released
  int mappings = 0;
  bool exportable = false;
  int imported = -1;  // another process's file, in which it lies; it is charged there
};

struct Mapping {
  uint64_t bytes = 0;
  uint64_t handle = 0;
  bool accessible = false;
  uint64_t offset = 0;  // in the memory of the handle
};

// One file per device instead of one per handle: a process may hold thousands of handles.
struct Backing {
  int fd = -1;
  RangeAllocator room{0, kWindowBytes};
};

struct State {
  std::mutex mutex;
  std::map<uint64_t, uint64_t> reservations;
  std::map<uint64_t, Physical> handles;
  std::map<uint64_t, Mapping> mappings;
  std::map<int, Backing> backings;
  uint64_t next_handle = 0x50'0001;
};

State& state() {
  static State* all = std::make_unique<State>().release();
  return *all;
}

Backing* backing(int device) {
  Backing& b = state().backings[device];
  if (b.fd < 0) {
    b.fd = memfd_create("softgpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    // Never shorter: other processes may have mapped some of it.
    if (b.fd >= 0 && (ftruncate(b.fd, static_cast<off_t>(kWindowBytes)) != 0 ||
                      fcntl(b.fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)) {
      close(b.fd);
      b.fd = -1;
    }
  }
  return b.fd < 0 ? nullptr : &b;
}

int file_of(const Physical& p) {
  return p.imported >= 0 ? p.imported : state().backings[p.device].fd;
}

void give_back(const Physical& p) {
  Backing& b = state().backings[p.device];
  fallocate(b.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(p.offset),
            static_cast<off_t>(p.bytes));
  b.room.give(p.offset, p.bytes);
  device(p.device).memory().refund(p.bytes);
}

void drop_if_unused(std::map<uint64_t, Physical>::iterator it) {
  const Physical& p = it->second;
  if (p.handles > 0 || p.mappings > 0) return;
  if (p.imported >= 0) {
    close(p.imported);
  } else {
    give_back(p);
  }
  state().handles.erase(it);
}

void* map_none(uint64_t address, uint64_t bytes, int extra) {
  return mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | extra, -1, 0);
}

bool inside_reservation(uint64_t address, uint64_t bytes) {
  const auto& all = state().reservations;
  auto it = all.upper_bound(address);
  if (it == all.begin()) return false;
  --it;
  return address - it->first < it->second && bytes <= it->second - (address - it->first);
}

bool overlaps_mapping(uint64_t address, uint64_t bytes) {
  const auto& all = state().mappings;
  auto next = all.lower_bound(address);
  if (next != all.end() && next->first < address + bytes) return true;
  return next != all.begin() && std::prev(next)->first + std::prev(next)->second.bytes > address;
}

}  // namespace

cudaError_t reserve_addresses(uint64_t bytes, uint64_t alignment, uint64_t wanted,
                              uint64_t* address) {
  if (!bytes || bytes % kGranule) return cudaErrorInvalidValue;
  std::lock_guard lock(state().mutex);
  if (wanted) {
    void* got = map_none(wanted, bytes, MAP_FIXED_NOREPLACE);
    if (got == reinterpret_cast<void*>(wanted)) {
      state().reservations[wanted] = bytes;
      *address = wanted;
      return cudaSuccess;
    }
    if (got != MAP_FAILED) munmap(got, bytes);
  }
  // The kernel aligns to pages only: take more and give the ends back.
  const uint64_t align = std::max(alignment, kGranule);
  void* got = map_none(0, bytes + align, 0);
  if (got == MAP_FAILED) return cudaErrorMemoryAllocation;
  const uint64_t raw = reinterpret_cast<uint64_t>(got);
  const uint64_t begin = round_up(raw, align);
  if (begin > raw) munmap(got, begin - raw);
  const uint64_t tail = raw + bytes + align - (begin + bytes);
  if (tail) munmap(reinterpret_cast<void*>(begin + bytes), tail);
  state().reservations[begin] = bytes;
  *address = begin;
  return cudaSuccess;
}

cudaError_t free_addresses(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(state().mutex);
  const auto it = state().reservations.find(address);
  if (it == state().reservations.end() || it->second != bytes) return cudaErrorInvalidValue;
  if (overlaps_mapping(address, bytes)) return cudaErrorInvalidValue;
  munmap(reinterpret_cast<void*>(address), bytes);
  state().reservations.erase(it);
  return cudaSuccess;
}

cudaError_t create_memory(int device_index, uint64_t bytes, bool exportable, uint64_t* handle) {
  if (!bytes || bytes % kGranule) return cudaErrorInvalidValue;
  std::lock_guard lock(state().mutex);
  Backing* b = backing(device_index);
  if (!b || !device(device_index).memory().charge(bytes)) return cudaErrorMemoryAllocation;
  const auto offset = b->room.take(bytes);
  if (!offset) {
    device(device_index).memory().refund(bytes);
    return cudaErrorMemoryAllocation;
  }
  *handle = state().next_handle++;
  state().handles[*handle] = {device_index, bytes, *offset, 1, 0, exportable, -1};
  return cudaSuccess;
}

uint64_t adopt_memory(int device_index, int fd, uint64_t offset, uint64_t bytes) {
  std::lock_guard lock(state().mutex);
  const uint64_t handle = state().next_handle++;
  state().handles[handle] = {device_index, bytes, offset, 1, 0, true, fd};
  return handle;
}

bool exportable_memory(uint64_t handle, int* fd, uint64_t* offset, uint64_t* bytes) {
  std::lock_guard lock(state().mutex);
  const auto it = state().handles.find(handle);
  if (it == state().handles.end() || !it->second.exportable || it->second.imported >= 0) {
    return false;
  }
  *fd = file_of(it->second);
  *offset = it->second.offset;
  *bytes = it->second.bytes;
  return true;
}

cudaError_t release_memory(uint64_t handle) {
  std::lock_guard lock(state().mutex);
  const auto it = state().handles.find(handle);
  if (it == state().handles.end() || it->second.handles == 0) return cudaErrorInvalidValue;
  --it->second.handles;
  drop_if_unused(it);
  return cudaSuccess;
}

cudaError_t retain_memory(uint64_t mapped_address, uint64_t* handle) {
  std::lock_guard lock(state().mutex);
  auto it = state().mappings.upper_bound(mapped_address);
  if (it == state().mappings.begin()) return cudaErrorInvalidValue;
  --it;
  if (mapped_address - it->first >= it->second.bytes) return cudaErrorInvalidValue;
  *handle = it->second.handle;
  ++state().handles[*handle].handles;
  return cudaSuccess;
}

cudaError_t map_memory(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle) {
  std::lock_guard lock(state().mutex);
  const auto it = state().handles.find(handle);
  if (it == state().handles.end()) return cudaErrorInvalidValue;
  Physical& p = it->second;
  if (address % kGranule || bytes == 0 || bytes % kGranule || offset % kGranule ||
      offset > p.bytes || bytes > p.bytes - offset) {
    return cudaErrorInvalidValue;
  }
  if (!inside_reservation(address, bytes) || overlaps_mapping(address, bytes)) {
    return cudaErrorInvalidValue;
  }
  void* got = mmap(reinterpret_cast<void*>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                   file_of(p), static_cast<off_t>(p.offset + offset));
  if (got == MAP_FAILED) return cudaErrorMemoryAllocation;
  madvise(got, bytes, MADV_DONTFORK);
  ++p.mappings;
  state().mappings[address] = {bytes, handle, false, offset};
  return cudaSuccess;
}

cudaError_t unmap_memory(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(state().mutex);
  auto& all = state().mappings;
  uint64_t covered = 0;
  for (auto it = all.lower_bound(address); it != all.end() && it->first < address + bytes; ++it) {
    if (it->first + it->second.bytes > address + bytes) return cudaErrorInvalidValue;
    covered += it->second.bytes;
  }
  if (covered != bytes) return cudaErrorInvalidValue;
  for (auto it = all.lower_bound(address); it != all.end() && it->first < address + bytes;) {
    if (it->second.accessible) pointers().remove(it->first);
    map_none(it->first, it->second.bytes, MAP_FIXED);
    const auto physical = state().handles.find(it->second.handle);
    --physical->second.mappings;
    drop_if_unused(physical);
    it = all.erase(it);
  }
  return cudaSuccess;
}

// The table never allows what the pages refuse: less first there, more first here.
static void protect(uint64_t address, Mapping* m, bool readable, bool writable) {
  if (m->accessible && !readable) pointers().remove(address);
  if (m->accessible && readable && !writable) pointers().set_writable(address, false);
  const int protection = (readable ? PROT_READ : 0) | (writable ? PROT_READ | PROT_WRITE : 0);
  mprotect(reinterpret_cast<void*>(address), m->bytes, protection);
  if (m->accessible && writable) pointers().set_writable(address, true);
  if (!m->accessible && readable) {
    const int owner = state().handles[m->handle].device;
    pointers().add({address, m->bytes, PointerKind::kDevice, owner, 0}, writable);
  }
  m->accessible = readable;
}

cudaError_t set_access(uint64_t address, uint64_t bytes, bool readable, bool writable) {
  std::lock_guard lock(state().mutex);
  auto& all = state().mappings;
  uint64_t covered = 0;
  for (auto it = all.lower_bound(address); it != all.end() && it->first < address + bytes; ++it) {
    Mapping& m = it->second;
    if (it->first + m.bytes > address + bytes) return cudaErrorInvalidValue;
    protect(it->first, &m, readable, writable);
    covered += m.bytes;
  }
  return covered == bytes ? cudaSuccess : cudaErrorInvalidValue;
}

// The file has no pages there yet; what has been swapped out counts as data.
bool untouched(uint64_t address, uint64_t bytes) {
  std::lock_guard lock(state().mutex);
  for (const uint64_t end = address + bytes; address < end;) {
    auto it = state().mappings.upper_bound(address);
    if (it == state().mappings.begin()) return false;
    const auto& [base, mapping] = *--it;
    if (address - base >= mapping.bytes) return false;
    const Physical& physical = state().handles[mapping.handle];
    const uint64_t offset = physical.offset + mapping.offset + (address - base);
    const uint64_t part = std::min(end, base + mapping.bytes) - address;
    const off_t data = lseek(file_of(physical), static_cast<off_t>(offset), SEEK_DATA);
    if (data < 0 ? errno != ENXIO : static_cast<uint64_t>(data) < offset + part) return false;
    address += part;
  }
  return true;
}

bool mapped_file(uint64_t address, int* fd, uint64_t* offset, uint64_t* bytes) {
  std::lock_guard lock(state().mutex);
  auto it = state().mappings.upper_bound(address);
  if (it == state().mappings.begin()) return false;
  --it;
  const uint64_t inside = address - it->first;
  if (inside >= it->second.bytes) return false;
  const Physical& p = state().handles[it->second.handle];
  *fd = file_of(p);
  *offset = p.offset + it->second.offset + inside;
  *bytes = it->second.bytes - inside;
  return true;
}

cudaError_t memory_device(uint64_t handle, int* device_index, bool* exportable) {
  std::lock_guard lock(state().mutex);
  const auto it = state().handles.find(handle);
  if (it == state().handles.end()) return cudaErrorInvalidValue;
  *device_index = it->second.device;
  *exportable = it->second.exportable;
  return cudaSuccess;
}

}  // namespace softgpu
