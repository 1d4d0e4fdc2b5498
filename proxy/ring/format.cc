// Sizes and initial contents of a channel's memory objects.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "ring/channel.h"

namespace pyft::ring {

namespace {

bool pages(uint64_t bytes) {
  return bytes && bytes % kPageBytes == 0 && bytes <= uint64_t{1} << 40;
}

// Allocates pages now: a later write can then not fail.
int preallocate(int fd, uint64_t offset, uint64_t bytes) {
  int result = 0;
  do {
    result = fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) ? errno : 0;
  } while (result == EINTR);
  return result;
}

int set_size(int fd, uint64_t bytes) {
  return ftruncate(fd, static_cast<off_t>(bytes)) ? errno : 0;
}

template <class Header, class Fill>
int write_header(int fd, Fill&& fill) {
  void* page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return errno;
  fill(*new (page) Header{});
  munmap(page, kPageBytes);
  return 0;
}

void fill_log_header(LogHeader& header, const ChannelShape& shape) {
  header.magic = kLogMagic;
  header.version = kLayoutVersion;
  header.ring_offset = kPageBytes;
  header.ring_bytes = shape.ring_bytes;
  header.object_log_offset = header.ring_offset + shape.ring_bytes;
  header.object_log_bytes = shape.object_log_bytes;
  header.arena_offset = header.object_log_offset + shape.object_log_bytes;
  header.arena_bytes = shape.arena_bytes;
  header.client_pid = shape.client_pid;
  header.device = shape.device;
  header.next_seq = 1;
}

int format_log(int fd, const ChannelShape& shape) {
  if (const int error = set_size(fd, log_object_bytes(shape))) return error;
  if (const int error = preallocate(fd, 0, kPageBytes)) return error;
  return write_header<LogHeader>(fd, [&](LogHeader& h) { fill_log_header(h, shape); });
}

int format_control(int fd, const ChannelShape& shape) {
  if (const int error = set_size(fd, kControlBytes)) return error;
  if (const int error = preallocate(fd, 0, kControlBytes)) return error;
  return write_header<ControlPage>(fd, [&](ControlPage& page) {
    page.magic = kControlMagic;
    page.version = kLayoutVersion;
    page.reply_offset = kPageBytes;
    page.completion_offset = kPageBytes + kReplySlots * sizeof(ReplySlot);
    page.epoch = shape.epoch;
  });
}

}  // namespace

uint64_t log_object_bytes(const ChannelShape& shape) {
  return kPageBytes + shape.ring_bytes + shape.object_log_bytes + shape.arena_bytes;
}

int format_channel(int log_fd, int control_fd, int bounce_fd, const ChannelShape& shape) {
  if (!pages(shape.ring_bytes) || !pages(shape.object_log_bytes) || !pages(shape.arena_bytes) ||
      !pages(shape.bounce_bytes))
    return EINVAL;
  if (const int error = format_log(log_fd, shape)) return error;
  if (const int error = format_control(control_fd, shape)) return error;
  return set_size(bounce_fd, shape.bounce_bytes);
}

}  // namespace pyft::ring
