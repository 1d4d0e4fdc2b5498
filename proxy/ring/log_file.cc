#include "ring/log_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace pyft::ring {

std::unique_ptr<LogFile> LogFile::map(int fd, std::string* error) {
  struct stat status;
  if (fstat(fd, &status)) {
    *error = std::string("the log cannot be read: [") + std::strerror(errno) + "]";
    return nullptr;
  }
  const auto bytes = static_cast<uint64_t>(status.st_size);
  if (bytes < kPageBytes) {
    *error = "the log has only [" + std::to_string(bytes) + "] bytes";
    return nullptr;
  }
  auto file = std::make_unique<LogFile>();
  error->clear();
  file->mapping_ = Mapping::map(fd, bytes, PROT_READ, 0, error);
  if (error->empty()) *error = make_log_view(file->mapping_.data(), bytes, &file->view_);
  return error->empty() ? std::move(file) : nullptr;
}

std::unique_ptr<LogFile> LogFile::open(const char* path, std::string* error) {
  const UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (fd.valid()) return map(fd.get(), error);
  *error = std::string("the log [") + path + "] cannot be opened: [" + std::strerror(errno) + "]";
  return nullptr;
}

}  // namespace pyft::ring
