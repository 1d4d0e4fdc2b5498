#include "fault/control_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "core/log.h"
#include "core/settings.h"

namespace softgpu {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // of one look; that many faults are never asked for

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == path.npos) return ".";
  return slash ? path.substr(0, slash) : "/";
}

// Made as the library is loaded: what is added from then on is for this process.
ControlFile* from_environment() {
  static ControlFile* const file = []() -> ControlFile* {
    const char* path = settings::control();
    return *path ? std::make_unique<ControlFile>(path).release() : nullptr;
  }();
  return file;
}
[[gnu::constructor]] void look_at_the_beginning() {
  from_environment();
}

// Waits until something in the folder changes; false if that can never be told again.
bool wait_for_change(int notifications) {
  alignas(inotify_event) char events[4096];
  while (read(notifications, events, sizeof events) < 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace

ControlFile::ControlFile(std::string path) : path_(std::move(path)) {
  struct stat now{};
  if (stat(path_.c_str(), &now) != 0) return;
  inode_ = now.st_ino;
  offset_ = static_cast<uint64_t>(now.st_size);
}

std::string ControlFile::take() {
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat now{};
  if (file < 0 || fstat(file, &now) != 0) {
    if (file >= 0) close(file);
    inode_ = offset_ = 0;  // gone: a new one is read from its start
    return "";
  }
  if (now.st_ino != inode_ || static_cast<uint64_t>(now.st_size) < offset_) offset_ = 0;
  inode_ = now.st_ino;
  std::string text(kMostBytes, '\0');
  const ssize_t got = pread(file, text.data(), text.size(), static_cast<off_t>(offset_));
  close(file);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  text.resize(text.rfind('\n') + 1);  // npos + 1 is 0: a line that is being written waits
  offset_ += text.size();
  return text;
}

void watch_control_file(std::function<void(std::string_view)> take) {
  ControlFile* const file = from_environment();
  if (!file) return;
  // The folder is watched, since the file may be made or replaced later.
  const int notifications = inotify_init1(IN_CLOEXEC);
  const uint32_t changes = IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE;
  if (notifications < 0 ||
      inotify_add_watch(notifications, folder_of(file->path()).c_str(), changes) < 0) {
    log_line(SOFTGPU_LOG_WARNING, "[SOFTGPU_CONTROL]: the folder of [%s] cannot be watched: [%s]",
             file->path().c_str(), std::strerror(errno));
    if (notifications >= 0) close(notifications);
    return;
  }
  std::thread watcher([file, notifications, take = std::move(take)] {
    do {
      const std::string lines = file->take();
      for (size_t at = 0; at < lines.size();) {
        const size_t end = lines.find('\n', at);
        take(std::string_view(lines).substr(at, end - at));
        at = end + 1;
      }
    } while (wait_for_change(notifications));
  });
  pthread_setname_np(watcher.native_handle(), "softgpu-control");
  watcher.detach();
}

}  // namespace softgpu
