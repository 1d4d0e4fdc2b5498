#include "memory/ipc_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace softgpu {
namespace {

// Pages are given back under the lock of the device's memory, which asks here: this lock is the
// innermost.
struct Exports {
  std::mutex mutex;
  std::map<uint64_t, int> files;  // descriptor by the address of the pages
};

Exports& exports() {
  static auto* const all = std::make_unique<Exports>().release();
  return *all;
}

}  // namespace

bool describe_file(int fd, IpcFile* file) {
  struct stat info{};
  if (fstat(fd, &info) != 0) return false;
  *file = {getpid(), fd, info.st_ino};
  return true;
}

int open_file(const IpcFile& file) {
  const std::string path =
      "/proc/" + std::to_string(file.process) + "/fd/" + std::to_string(file.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat info{};
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_ino == file.inode) return fd;
  close(fd);
  return -1;
}

int find_export(uint64_t base) {
  const std::scoped_lock lock(exports().mutex);
  const auto found = exports().files.find(base);
  return found == exports().files.end() ? -1 : found->second;
}

void note_export(uint64_t base, int fd) {
  const std::scoped_lock lock(exports().mutex);
  exports().files[base] = fd;
}

void forget_export(uint64_t base) {
  const std::scoped_lock lock(exports().mutex);
  const auto found = exports().files.find(base);
  if (found == exports().files.end()) return;
  close(found->second);
  exports().files.erase(found);
}

}  // namespace softgpu
