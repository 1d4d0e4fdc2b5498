#include "work/ipc_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "device/device.h"
#include "device/memory_pool.h"
#include "device/memory_virtual.h"
#include "graph/graph_memory.h"
#include "memory/memory.h"
#include "memory/pointers.h"

namespace softgpu {
namespace {

struct Import {
  int device = 0;
  uint64_t region = 0;
  int uses = 0;
};

struct Region {
  uint64_t inode = 0, file_offset = 0, bytes = 0;
  int process = 0, device = 0, uses = 0;
};

// Imports allocate while this lock is held: it comes before that of the device's memory, and that
// one before the lock of the exports (memory/ipc_file.cc).
struct State {
  std::mutex import_mutex;
  std::map<uint64_t, Import> imports;
  std::map<uint64_t, Region> regions;  // by the address they are mapped at
};

State& state() {
  static auto* const all = std::make_unique<State>().release();
  return *all;
}

constexpr uint64_t kPage = 4096;

// Pages of zeros stay holes.
void copy_pages(void* to, const void* from, uint64_t bytes) {
  static const char zeros[kPage] = {};
  for (uint64_t at = 0; at < bytes; at += kPage) {
    const char* page = static_cast<const char*>(from) + at;
    if (std::memcmp(page, zeros, kPage) != 0) {
      std::memcpy(static_cast<char*>(to) + at, page, kPage);
    }
  }
}

// Moves pages into a file, at the same address; the descriptor or -1. Precondition: no thread uses
// the pages meanwhile.
int move_to_file(uint64_t base, uint64_t bytes) {
  const int fd = memfd_create("softgpu-memory", MFD_CLOEXEC);
  if (fd < 0) return -1;
  void* copy = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    copy = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (copy == MAP_FAILED) {
    close(fd);
    return -1;
  }
  void* const place = reinterpret_cast<void*>(base);
  copy_pages(copy, place, bytes);
  munmap(copy, bytes);
  if (mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    close(fd);
    return -1;
  }
  madvise(place, bytes, MADV_DONTFORK);
  return fd;
}

// As work of the device, so that none of its kernels runs meanwhile.
int move_as_work(int device_index, uint64_t base, uint64_t bytes) {
  for (int i = 0; i < device_count(); ++i) device(i).scheduler().wait_device();
  const auto stream =
      std::make_shared<Stream>(device_index, StreamKind::kNonBlocking, 0, uint64_t{0});
  const auto fd = std::make_shared<int>(-1);
  Work work;
  work.run = [=]() -> Fault {
    *fd = move_to_file(base, bytes);
    return {};
  };
  device(device_index).scheduler().submit(stream, std::move(work));
  device(device_index).scheduler().wait_stream(*stream);
  return *fd;
}

}  // namespace

static cudaError_t export_mapping(uint64_t address, IpcMemory* memory) {
  int fd = -1;
  uint64_t offset = 0, bytes = 0;
  if (!mapped_file(address, &fd, &offset, &bytes)) return cudaErrorInvalidValue;
  memory->offset = offset % kPage;
  memory->bytes = bytes;
  memory->file_offset = offset - memory->offset;
  memory->file_bytes = bytes + memory->offset;
  return describe_file(fd, &memory->file) ? cudaSuccess : cudaErrorOperatingSystem;
}

cudaError_t export_memory(uint64_t address, IpcMemory* memory) {
  const auto info = pointers().find(address);
  if (!info || info->kind != PointerKind::kDevice || is_imported(info->base) ||
      pool_of(info->base) || find_graph_memory(info->base)) {
    return cudaErrorInvalidValue;
  }
  uint64_t base = 0, bytes = 0;
  if (!device(info->device).memory().pages_of(info->base, &base, &bytes)) {
    return export_mapping(address, memory);
  }
  int fd = find_export(base);
  if (fd < 0) {
    fd = move_as_work(info->device, base, bytes);
    if (fd < 0) return cudaErrorOperatingSystem;
    note_export(base, fd);
  }
  memory->file_bytes = bytes;
  memory->offset = info->base - base;
  memory->bytes = info->size;
  return describe_file(fd, &memory->file) ? cudaSuccess : cudaErrorOperatingSystem;
}

namespace {

// Maps the file, or finds it mapped; at `wanted` if that is not 0. Precondition: the lock is held.
cudaError_t map_region(int device_index, const IpcMemory& memory, uint64_t wanted, uint64_t* base) {
  for (auto& [at, region] : state().regions) {
    if (region.inode != memory.file.inode || region.process != memory.file.process) continue;
    if (region.device != device_index || region.file_offset != memory.file_offset) continue;
    *base = at;
    return cudaSuccess;
  }
  const int fd = open_file(memory.file);
  if (fd < 0) return cudaErrorMapBufferObjectFailed;
  struct stat info{};
  const bool fits = fstat(fd, &info) == 0 && info.st_size >= 0 &&
                    static_cast<uint64_t>(info.st_size) >= memory.file_offset &&
                    static_cast<uint64_t>(info.st_size) - memory.file_offset >= memory.file_bytes;
  const bool mapped =
      fits && device(device_index)
                  .memory()
                  .map_file(fd, memory.file_offset, memory.file_bytes, wanted, base);
  close(fd);
  if (!mapped) return cudaErrorMapBufferObjectFailed;
  state().regions[*base] = {memory.file.inode,   memory.file_offset, memory.file_bytes,
                            memory.file.process, device_index,       0};
  return cudaSuccess;
}

}  // namespace

cudaError_t import_memory(int device_index, const IpcMemory& memory, uint64_t* address) {
  if (memory.offset > memory.file_bytes || memory.bytes > memory.file_bytes - memory.offset ||
      !memory.bytes) {
    return cudaErrorInvalidResourceHandle;
  }
  const std::scoped_lock lock(state().import_mutex);
  const uint64_t wish = device(device_index).memory().take_wish();
  if (wish && wish < memory.offset) return cudaErrorInvalidValue;
  uint64_t base = 0;
  const cudaError_t bad = map_region(device_index, memory, wish ? wish - memory.offset : 0, &base);
  if (bad != cudaSuccess) return bad;
  *address = base + memory.offset;
  Import& import = state().imports[*address];
  if (import.uses++ == 0) {
    import.device = device_index;
    import.region = base;
    ++state().regions[base].uses;
    pointers().add({*address, memory.bytes, PointerKind::kDevice, device_index, 0});
  }
  return cudaSuccess;
}

bool is_imported(uint64_t address) {
  const std::scoped_lock lock(state().import_mutex);
  return state().imports.contains(address);
}

cudaError_t close_memory(uint64_t address, int* device_index) {
  const std::scoped_lock lock(state().import_mutex);
  const auto found = state().imports.find(address);
  if (found == state().imports.end()) return cudaErrorInvalidValue;
  *device_index = found->second.device;
  if (--found->second.uses > 0) return cudaSuccess;
  pointers().remove(address);
  const auto region = state().regions.find(found->second.region);
  state().imports.erase(found);
  if (--region->second.uses > 0) return cudaSuccess;
  device(region->second.device).memory().unmap_file(region->first, region->second.bytes);
  state().regions.erase(region);
  return cudaSuccess;
}

}  // namespace softgpu
