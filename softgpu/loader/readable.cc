#include "loader/readable.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace softgpu {
namespace {
constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
}  // namespace

bool copy_readable(const void* from, uint64_t bytes, void* to) {
  auto* out = static_cast<uint8_t*>(to);
  auto source = reinterpret_cast<uint64_t>(from);
  if (bytes > UINT64_MAX - source) return false;
  while (bytes) {
    const iovec local{out, bytes}, remote{reinterpret_cast<void*>(source), bytes};
    const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (got <= 0) {
      // Where the kernel does not allow the call, images have to be trusted.
      if (got == 0 || (errno != ENOSYS && errno != EPERM)) return false;
      std::memcpy(out, reinterpret_cast<const void*>(source), bytes);
      return true;
    }
    out += got;
    source += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return true;
}

bool copy_readable(const void* from, uint64_t bytes, std::vector<uint8_t>* to) {
  uint8_t last = 0;  // tried before there is room for all
  if (bytes > kMaxImageBytes) return false;
  if (bytes && !copy_readable(static_cast<const uint8_t*>(from) + bytes - 1, 1, &last))
    return false;
  resize_image(bytes, to);
  return copy_readable(from, bytes, to->data());
}

void resize_image(uint64_t bytes, std::vector<uint8_t>* image) {
  image->reserve(bytes);
  const auto begin = reinterpret_cast<uintptr_t>(image->data());
  const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (begin + image->capacity()) / kHugePage * kHugePage;
  if (end > first) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
  image->resize(bytes);
}

}  // namespace softgpu
