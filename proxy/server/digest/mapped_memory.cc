#include "server/digest/mapped_memory.h"

#include <sys/mman.h>

namespace pyft::server {

namespace {

std::string refused(const char* call, int code) {
  return std::string("[") + call + "] fails with code [" + std::to_string(code) + "]";
}

}  // namespace

std::string MappedMemory::make(uint64_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return "there is no memory for its table";
  here_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
  if (const int code = table_.cuMemHostRegister_v2(
          here_, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP))
    return refused("cuMemHostRegister_v2", code);
  locked_ = true;
  CUdeviceptr there = 0;
  if (const int code = table_.cuMemHostGetDevicePointer_v2(&there, here_, 0))
    return refused("cuMemHostGetDevicePointer_v2", code);
  there_ = there;
  return {};
}

MappedMemory::~MappedMemory() {
  if (locked_) table_.cuMemHostUnregister(here_);
  if (here_) munmap(here_, bytes_);
}

}  // namespace pyft::server
