#include "transport/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace flexccl {
namespace {
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Memory::Memory(Fd fd, std::size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED)
    fail(ncclSystemError, "flexccl: mapping [", bytes, "] bytes failed with error [", errno, "]");
  data_ = static_cast<std::byte*>(at);
}

Memory::~Memory() {
  munmap(data_, bytes_);
}

std::shared_ptr<Memory> Memory::create(std::size_t bytes) {
  Fd fd(memfd_create("flexccl", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    fail(ncclSystemError, "flexccl: [", bytes, "] bytes of shared memory: error [", errno, "]");
  return std::shared_ptr<Memory>(new Memory(std::move(fd), bytes));
}

std::shared_ptr<Memory> Memory::adopt(Fd fd, std::size_t bytes) {
  struct stat status{};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(bytes))
    fail(ncclRemoteError, "flexccl: shared memory of [", status.st_size, "] bytes with seals [",
         seals, "] was offered, [", bytes, "] sealed bytes are needed");
  return std::shared_ptr<Memory>(new Memory(std::move(fd), bytes));
}

}  // namespace flexccl
