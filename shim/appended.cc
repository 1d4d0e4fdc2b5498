// open() and fopen() in front of libc's, in jobs whose processes may go back to an image
// (--movable). A file that is opened to be appended to is noted, once in the life of a process,
// with how long it was. Going back to an image takes away what was appended since
// (pyft/images/reopened.py). A file that is open while an image is made needs no note; one that is
// opened for each line does.
//
// Threads: any. Nothing waits, and what cannot be noted is left out: the program goes on as ever.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "pyft/settings.h"

// Not <fcntl.h>: where it knows large files or checks buffers it declares these functions
// otherwise.
#include <linux/fcntl.h>

namespace {

constexpr off_t kMostBytes = 16 << 20;  // of all notes
constexpr size_t kMostFiles = 4096;     // of one process

using Open = int (*)(const char*, int, ...);
using OpenAt = int (*)(int, const char*, int, ...);
using OpenFile = FILE* (*)(const char*, const char*);

// The next function of a name, looked for once.
template <typename Function>
Function next(const char* name, std::atomic<Function>* known) {
  Function call = known->load(std::memory_order_relaxed);
  if (!call) {
    call = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
    known->store(call, std::memory_order_relaxed);
  }
  return call;
}

int open_itself(const char* path, int flags, unsigned mode) {
  static std::atomic<Open> known{nullptr};
  const Open real = next("open", &known);
  if (real) return real(path, flags, mode);
  errno = ENOSYS;
  return -1;
}

// Whether a file is noted for the first time in this process.
bool is_new(const struct stat& about) {
  static std::array<std::atomic<uint64_t>, kMostFiles> noted{};
  const uint64_t word = (about.st_ino * 0x9e3779b97f4a7c15u) ^ about.st_dev;
  const uint64_t name = word ? word : 1;
  for (size_t tries = 0, at = name % kMostFiles; tries < kMostFiles; ++tries) {
    uint64_t there = 0;
    if (noted[at].compare_exchange_strong(there, name)) return true;
    if (there == name) return false;
    at = (at + 1) % kMostFiles;
  }
  return false;
}

// Adds "device inode size path\0" to the notes, in one write.
void note(int fd, const struct stat& about) {
  char link[32];
  char line[PATH_MAX + 96];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const int head =
      std::snprintf(line, 96, "%ju %ju %jd ", static_cast<uintmax_t>(about.st_dev),
                    static_cast<uintmax_t>(about.st_ino), static_cast<intmax_t>(about.st_size));
  const ssize_t length = readlink(link, line + head, PATH_MAX);
  if (length <= 0 || length == PATH_MAX) return;
  line[head + length] = '\0';
  const int notes = open_itself(pyft::settings::appended(),
                                O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (notes < 0) return;
  struct stat about_notes;
  if (fstat(notes, &about_notes) == 0 && S_ISREG(about_notes.st_mode) &&
      about_notes.st_size < kMostBytes)
    while (write(notes, line, head + length + 1) < 0 && errno == EINTR) {
    }
  close(notes);
}

void look_at(int fd) {
  const int error = errno;
  struct stat about;
  if (fd >= 0 && *pyft::settings::appended() && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
      is_new(about))
    note(fd, about);
  errno = error;
}

bool appends(int flags) {
  return (flags & O_APPEND) && (flags & O_ACCMODE) != O_RDONLY;
}

int looked_at(int fd, int flags) {
  if (appends(flags)) look_at(fd);
  return fd;
}

int opened(const char* name, std::atomic<Open>* known, const char* path, int flags, unsigned mode) {
  const Open real = next(name, known);
  if (real) return looked_at(real(path, flags, mode), flags);
  errno = ENOSYS;
  return -1;
}

int opened_at(const char* name, std::atomic<OpenAt>* known, int folder, const char* path, int flags,
              unsigned mode) {
  const OpenAt real = next(name, known);
  if (real) return looked_at(real(folder, path, flags, mode), flags);
  errno = ENOSYS;
  return -1;
}

FILE* opened_file(const char* name, std::atomic<OpenFile>* known, const char* path,
                  const char* mode) {
  const OpenFile real = next(name, known);
  if (!real) {
    errno = ENOSYS;
    return nullptr;
  }
  FILE* file = real(path, mode);
  if (file && mode[0] == 'a') look_at(fileno(file));
  return file;
}

// The third argument, which is there only if the flags say so.
unsigned mode_of(int flags, va_list* more) {
  const bool is_there = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
  return is_there ? va_arg(*more, unsigned) : 0;
}

}  // namespace

#define EXPORTED(name) __asm__(name) __attribute__((visibility("default")))
#define OPEN(function)                                                                  \
  extern "C" int pyft_##function(const char* path, int flags, ...) EXPORTED(#function); \
  int pyft_##function(const char* path, int flags, ...) {                               \
    static std::atomic<Open> known{nullptr};                                            \
    va_list more;                                                                       \
    va_start(more, flags);                                                              \
    const unsigned mode = mode_of(flags, &more);                                        \
    va_end(more);                                                                       \
    return opened(#function, &known, path, flags, mode);                                \
  }
#define OPEN_AT(function)                                                      \
  extern "C" int pyft_##function(int folder, const char* path, int flags, ...) \
      EXPORTED(#function);                                                     \
  int pyft_##function(int folder, const char* path, int flags, ...) {          \
    static std::atomic<OpenAt> known{nullptr};                                 \
    va_list more;                                                              \
    va_start(more, flags);                                                     \
    const unsigned mode = mode_of(flags, &more);                               \
    va_end(more);                                                              \
    return opened_at(#function, &known, folder, path, flags, mode);            \
  }
#define OPEN_FILE(function)                                                                 \
  extern "C" FILE* pyft_##function(const char* path, const char* mode) EXPORTED(#function); \
  FILE* pyft_##function(const char* path, const char* mode) {                               \
    static std::atomic<OpenFile> known{nullptr};                                            \
    return opened_file(#function, &known, path, mode);                                      \
  }

OPEN(open)
OPEN(open64)
OPEN(__open_2)
OPEN(__open64_2)
OPEN_AT(openat)
OPEN_AT(openat64)
OPEN_AT(__openat_2)
OPEN_AT(__openat64_2)
OPEN_FILE(fopen)
OPEN_FILE(fopen64)
