#include "device/memory_export.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/memory_virtual.h"
#include "memory/ipc_file.h"

namespace softgpu {
namespace {

constexpr uint64_t kMagic = 0x3148'5550'4754'464f;

// What the small file says.
struct Where {
  uint64_t magic = kMagic;
  IpcFile file;
  uint64_t offset = 0, bytes = 0;
};

// No process can make it shorter, and all of the memory lies in it: reading what is mapped can be
// no SIGBUS, whatever its process does.
bool holds(int fd, const Where& where) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat info{};
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) != 0) return false;
  const auto size = static_cast<uint64_t>(info.st_size);
  return where.bytes && where.offset <= size && where.bytes <= size - where.offset;
}

}  // namespace

cudaError_t export_handle(uint64_t handle, int* fd) {
  Where where;
  int file = -1;
  if (!exportable_memory(handle, &file, &where.offset, &where.bytes)) return cudaErrorInvalidValue;
  if (!describe_file(file, &where.file)) return cudaErrorOperatingSystem;
  const int made = memfd_create("softgpu-handle", MFD_CLOEXEC);
  if (made < 0) return cudaErrorOperatingSystem;
  if (pwrite(made, &where, sizeof where, 0) != static_cast<ssize_t>(sizeof where)) {
    close(made);
    return cudaErrorOperatingSystem;
  }
  *fd = made;
  return cudaSuccess;
}

cudaError_t import_handle(int device, int fd, uint64_t* handle) {
  Where where;
  if (pread(fd, &where, sizeof where, 0) != static_cast<ssize_t>(sizeof where) ||
      where.magic != kMagic) {
    return cudaErrorInvalidValue;
  }
  const int file = open_file(where.file);
  if (file < 0) return cudaErrorOperatingSystem;
  if (!holds(file, where)) {
    close(file);
    return cudaErrorInvalidValue;
  }
  *handle = adopt_memory(device, file, where.offset, where.bytes);
  return cudaSuccess;
}

}  // namespace softgpu
