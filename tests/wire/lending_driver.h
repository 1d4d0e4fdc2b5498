// A driver that gives memory to other processes by descriptor. Its memory is this process's: what
// is lent lies in memory files, what it is mapped to is mapped.
#ifndef PYFT_TESTS_WIRE_LENDING_DRIVER_H_
#define PYFT_TESTS_WIRE_LENDING_DRIVER_H_

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "api/mock_table.h"
#include "checkpoint/memory_range.h"
#include "pyft/unique_fd.h"

namespace lending_driver {

using namespace pyft;  // NOLINT: a test

struct Driver {
  std::mutex mutex;
  std::map<uint64_t, int> lent;        // descriptor by address
  std::map<uint64_t, uint64_t> sizes;  // of these
  std::map<CUmemGenericAllocationHandle, UniqueFd> handles;
  std::map<CUdeviceptr, size_t> reserved, mapped;
  int refuses_import = 0, refuses_access = 0, refuses_export = 0, state = 0;  // codes
  bool refuses_read_only = false;
  std::atomic<uint64_t> entered{0};
  uint64_t copies = 0, last_handle = 0;
  std::function<void()> on_copy;
};
inline Driver& driver() {
  static Driver one;
  return one;
}

inline CUresult code(int number) {
  return static_cast<CUresult>(number);
}

inline CUresult attribute(void* data, CUpointer_attribute which, CUdeviceptr address) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  const auto after = d.sizes.upper_bound(address);
  if (after == d.sizes.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [base, bytes] = *std::prev(after);
  if (address - base >= bytes) return CUDA_ERROR_INVALID_VALUE;
  const bool size = which == CU_POINTER_ATTRIBUTE_MAPPING_SIZE;
  if (!size && which != CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<uint64_t*>(data) = size ? bytes : base;
  return CUDA_SUCCESS;
}

inline CUresult retain(CUmemGenericAllocationHandle* out, void* address) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  *out = ++d.last_handle;
  d.handles[*out] = UniqueFd(dup(d.lent.at(reinterpret_cast<uint64_t>(address))));
  return CUDA_SUCCESS;
}

inline CUresult export_memory(void* out, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType, unsigned long long) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (d.refuses_export) return code(d.refuses_export);
  *static_cast<int*>(out) = dup(d.handles.at(handle).get());
  return CUDA_SUCCESS;
}

inline CUresult import_memory(CUmemGenericAllocationHandle* out, void* descriptor,
                              CUmemAllocationHandleType) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (d.refuses_import) return code(d.refuses_import);
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(descriptor));
  struct stat info{};
  if (fstat(fd, &info) || !S_ISREG(info.st_mode)) return CUDA_ERROR_INVALID_VALUE;
  *out = ++d.last_handle;
  d.handles[*out] = UniqueFd(dup(fd));
  return CUDA_SUCCESS;
}

inline CUresult release(CUmemGenericAllocationHandle handle) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  return d.handles.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

inline CUresult reserve(CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  void* const at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<CUdeviceptr>(at);
  driver().reserved[*out] = bytes;
  return CUDA_SUCCESS;
}

inline CUresult free_addresses(CUdeviceptr at, size_t bytes) {
  driver().reserved.erase(at);
  return munmap(reinterpret_cast<void*>(at), bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

inline CUresult map_memory(CUdeviceptr at, size_t bytes, size_t,
                           CUmemGenericAllocationHandle handle, unsigned long long) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  struct stat info{};
  if (fstat(d.handles.at(handle).get(), &info) || static_cast<uint64_t>(info.st_size) < bytes)
    return CUDA_ERROR_INVALID_VALUE;
  mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
       d.handles.at(handle).get(), 0);
  d.mapped[at] = bytes;
  return CUDA_SUCCESS;
}

inline CUresult unmap(CUdeviceptr at, size_t bytes) {
  return driver().mapped.erase(at) && bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

inline CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc* access, size_t) {
  const Driver& d = driver();
  if (d.refuses_access) return code(d.refuses_access);
  if (d.refuses_read_only && access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
    return CUDA_ERROR_NOT_SUPPORTED;
  return mprotect(reinterpret_cast<void*>(at), bytes, PROT_READ) ? CUDA_ERROR_INVALID_VALUE
                                                                 : CUDA_SUCCESS;
}

inline CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  ++driver().copies;
  if (driver().on_copy) driver().on_copy();
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}

inline const backend::Table& table() {
  static const backend::Table made = [] {
    backend::Table t = backend::mock_table();
    t.cuPointerGetAttribute = attribute;
    t.cuMemRetainAllocationHandle = retain;
    t.cuMemExportToShareableHandle = export_memory;
    t.cuMemImportFromShareableHandle = import_memory;
    t.cuMemRelease = release;
    t.cuMemAddressReserve = reserve;
    t.cuMemAddressFree = free_addresses;
    t.cuMemMap = map_memory;
    t.cuMemUnmap = unmap;
    t.cuMemSetAccess = set_access;
    t.cuMemcpyAsync = copy;
    t.cuStreamQuery = [](CUstream) { return code(driver().state); };
    return t;
  }();
  return made;
}

// Another process's window, with mappings that can be lent.
struct Lent {
  ~Lent() {
    const std::lock_guard lock(driver().mutex);
    for (const auto& [at, bytes] : driver().sizes) {
      mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
           -1, 0);  // no other one's yet
      close(driver().lent.at(at));
    }
    driver().sizes.clear();
    driver().lent.clear();
  }
  // At an offset of the window, which lies at `base`.
  void add(uint64_t address, const std::vector<std::byte>& bytes) {
    const int fd = memfd_create("lent", MFD_CLOEXEC);
    if (ftruncate(fd, static_cast<off_t>(bytes.size()))) std::abort();
    auto* const at =
        static_cast<std::byte*>(mmap(reinterpret_cast<void*>(address), bytes.size(),
                                     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0));
    std::memcpy(at, bytes.data(), bytes.size());
    const std::lock_guard lock(driver().mutex);
    driver().lent[address] = fd;
    driver().sizes[address] = bytes.size();
  }
};

inline std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

}  // namespace lending_driver

#endif  // PYFT_TESTS_WIRE_LENDING_DRIVER_H_
