#include "ring/channel.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace pyft::ring {

namespace {

std::string bracketed(const char* before, uint64_t value, const char* after) {
  return std::string(before) + "[" + std::to_string(value) + "]" + after;
}

bool area_fits(uint64_t offset, uint64_t bytes, uint64_t object_bytes) {
  return offset % kPageBytes == 0 && offset >= kPageBytes && bytes && bytes % kPageBytes == 0 &&
         offset <= object_bytes && bytes <= object_bytes - offset;
}

// The object must be as large as announced, or touching its end would be a SIGBUS.
bool is_at_least(int fd, uint64_t bytes) {
  struct stat status;
  return fstat(fd, &status) == 0 && static_cast<uint64_t>(status.st_size) >= bytes;
}

std::string check_control(const ControlPage& page, uint64_t bytes) {
  if (bytes < kControlBytes) return bracketed("the control object has only ", bytes, " bytes");
  if (page.magic != kControlMagic)
    return bracketed("the control object has magic ", page.magic, "");
  if (page.version != kLayoutVersion)
    return bracketed("the control object has layout version ", page.version, "");
  if (page.reply_offset != kPageBytes ||
      page.completion_offset != kPageBytes + kReplySlots * sizeof(ReplySlot))
    return bracketed("the control object places reply slots at ", page.reply_offset, "");
  return {};
}

// Of ring and arena, at a time: a millisecond. All at once at attach they would take 30 ms. The
// first step is a smaller one, because the program's first call waits for it.
constexpr uint64_t kBackBytes = uint64_t{4} << 20, kFirstBytes = uint64_t{1} << 20;

// Faults the pages in now, so that the first pass over the ring costs what every pass costs.
void populate(std::byte* begin, uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  madvise(begin, bytes, MADV_POPULATE_WRITE);  // an older kernel says EINVAL: only slower
#endif
}

int allocate(int fd, uint64_t offset, uint64_t bytes) {
  int failed = 0;
  if (bytes == 0) return 0;
  do failed = fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) ? errno : 0;
  while (failed == EINTR);
  return failed;
}

}  // namespace

std::string make_log_view(const void* log, uint64_t log_bytes, LogView* view) {
  const auto& header = *static_cast<const LogHeader*>(log);
  const auto* base = static_cast<const std::byte*>(log);
  if (log_bytes < kPageBytes) return bracketed("the log has only ", log_bytes, " bytes");
  if (header.magic != kLogMagic) return bracketed("the log has magic ", header.magic, "");
  if (header.version != kLayoutVersion)
    return bracketed("the log has layout version ", header.version, "");
  // One read of each number: the client may change them at any time.
  const volatile LogHeader& once = header;
  const uint64_t ring_offset = once.ring_offset, object_log_offset = once.object_log_offset;
  const uint64_t arena_offset = once.arena_offset;
  *view = {&header,         nullptr, nullptr, nullptr, once.ring_bytes, once.object_log_bytes,
           once.arena_bytes};
  if (!area_fits(ring_offset, view->ring_bytes, log_bytes))
    return bracketed("the log's ring does not fit: offset ", ring_offset, "");
  if (!area_fits(object_log_offset, view->object_log_bytes, log_bytes))
    return bracketed("the log's object log does not fit: offset ", object_log_offset, "");
  if (!area_fits(arena_offset, view->arena_bytes, log_bytes))
    return bracketed("the log's arena does not fit: offset ", arena_offset, "");
  view->ring = base + ring_offset;
  view->object_log = base + object_log_offset;
  view->arena = base + arena_offset;
  return {};
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    if (data_) munmap(data_, bytes_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (data_) munmap(data_, bytes_);
}

const int Mapping::kShared = MAP_SHARED;
const int Mapping::kPrivate = MAP_PRIVATE | MAP_NORESERVE;  // of a store, little is written

Mapping Mapping::copy(int fd, uint64_t bytes, std::string* error) {
  Mapping result;
  void* const got =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) {
    *error = bracketed("there is no memory for a copy of ", bytes, " bytes");
    return result;
  }
  result.data_ = static_cast<std::byte*>(got);
  result.bytes_ = bytes;
  for (uint64_t at = 0; at < bytes;) {
    const ssize_t part = pread(fd, result.data_ + at, bytes - at, static_cast<off_t>(at));
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) {
      *error = bracketed("a memory object cannot be copied at byte ", at, "");
      return Mapping();
    }
    at += static_cast<uint64_t>(part);
  }
  return result;
}

Mapping Mapping::map(int fd, uint64_t bytes, int protection, uint64_t address, std::string* error,
                     int sharing) {
  Mapping result;
  if (!is_at_least(fd, bytes)) {
    *error = bracketed("a memory object is smaller than the announced ", bytes, " bytes");
    return result;
  }
  const int flags = sharing | (address ? MAP_FIXED_NOREPLACE : 0);
  void* wanted = reinterpret_cast<void*>(address);
  void* got = mmap(wanted, bytes, protection, flags, fd, 0);
  if (got == MAP_FAILED) {
    char text[160];
    std::snprintf(text, sizeof text, "mapping [%llu] bytes at address [%p] fails with [%s]",
                  static_cast<unsigned long long>(bytes), wanted, std::strerror(errno));
    *error = text;
    return result;
  }
  result.data_ = static_cast<std::byte*>(got);
  result.bytes_ = bytes;
  // Kernels before 4.17 ignore MAP_FIXED_NOREPLACE and take the address as a hint.
  if (address && got != wanted) {
    *error = bracketed("the kernel maps pinned memory elsewhere than at the fixed address ",
                       address, "");
    return Mapping();
  }
  return result;
}

std::unique_ptr<Channel> Channel::map(Role role, uint32_t device, ChannelFds fds,
                                      const ChannelSizes& sizes, std::string* error) {
  std::unique_ptr<Channel> channel(new Channel());
  channel->role_ = role;
  channel->device_ = device;
  channel->fds_ = std::move(fds);
  channel->sizes_ = sizes;
  const int read_write = PROT_READ | PROT_WRITE;
  const bool reader = role == Role::kReader, audits = role == Role::kAuditor;
  const int sharing = audits ? Mapping::kPrivate : Mapping::kShared;
  const auto map_part = [&](Mapping& part, const UniqueFd& fd, uint64_t bytes, bool writable,
                            uint64_t address = 0) {
    if (!error->empty()) return;
    const int protection = writable ? read_write : PROT_READ;
    part = Mapping::map(fd.get(), bytes, protection, address, error,
                        writable ? sharing : Mapping::kShared);
  };
  error->clear();
  map_part(channel->log_, channel->fds_.log, sizes.log, role == Role::kClient);
  if (audits)  // others go on writing to it
    channel->control_ = Mapping::copy(channel->fds_.control.get(), sizes.control, error);
  else
    map_part(channel->control_, channel->fds_.control, sizes.control, !reader);
  if (!reader && sizes.bounce)
    map_part(channel->bounce_, channel->fds_.bounce, sizes.bounce, role != Role::kClient);
  if (!reader && sizes.pinned) {
    if (sizes.pinned > kPinnedStride || device >= 64)
      *error = bracketed("the pinned window is too large: ", sizes.pinned, " bytes");
    map_part(channel->pinned_, channel->fds_.pinned, sizes.pinned, true,
             kPinnedWindowBase + device * kPinnedStride);
  }
  if ((role == Role::kServer || audits) && sizes.store)
    map_part(channel->store_, channel->fds_.store, sizes.store, true);
  if (error->empty()) *error = make_log_view(channel->log_.data(), sizes.log, &channel->view_);
  if (error->empty()) *error = check_control(channel->control(), sizes.control);
  if (!error->empty()) return nullptr;
  int failed = 0;
  if (role == Role::kClient) failed = channel->back_ring(1);
  if (role == Role::kServer) failed = allocate(channel->fds_.bounce.get(), 0, sizes.bounce);
  if (failed) *error = std::string("the channel gets no memory: [") + std::strerror(failed) + "]";
  return failed ? nullptr : std::move(channel);
}

std::unique_ptr<Channel> Channel::create(const ChannelShape& shape, std::string* error) {
  ChannelFds fds;
  for (UniqueFd* fd : {&fds.log, &fds.control, &fds.bounce, &fds.pinned})
    fd->reset(memfd_create("pyft", MFD_CLOEXEC));
  const int failed = format_channel(fds.log.get(), fds.control.get(), fds.bounce.get(), shape);
  if (failed || ftruncate(fds.pinned.get(), static_cast<off_t>(shape.pinned_bytes))) {
    *error = std::string("the memory objects cannot be made: [") + std::strerror(failed) + "]";
    return nullptr;
  }
  const ChannelSizes sizes{log_object_bytes(shape), kControlBytes, shape.bounce_bytes,
                           shape.pinned_bytes, 0};
  return map(Role::kClient, shape.device, std::move(fds), sizes, error);
}

LogHeader& Channel::log() const {
  return *reinterpret_cast<LogHeader*>(log_.data());
}
std::byte* Channel::ring() const {
  return log_.data() + (view_.ring - log_.data());
}
std::byte* Channel::object_log() const {
  return log_.data() + (view_.object_log - log_.data());
}
std::byte* Channel::arena() const {
  return log_.data() + (view_.arena - log_.data());
}

ControlPage& Channel::control() const {
  return *reinterpret_cast<ControlPage*>(control_.data());
}

ReplySlot& Channel::slot(uint32_t index) const {
  if (index >= kReplySlots) std::abort();
  return reinterpret_cast<ReplySlot*>(control_.data() + kPageBytes)[index];
}

CompletionWord& Channel::word(uint32_t index) const {
  if (index >= kCompletionWords) std::abort();
  std::byte* words = control_.data() + kPageBytes + kReplySlots * sizeof(ReplySlot);
  return reinterpret_cast<CompletionWord*>(words)[index];
}

std::atomic<uint64_t>& Channel::call_counter(size_t index) const {
  if (index >= kCallCounters) std::abort();
  return reinterpret_cast<std::atomic<uint64_t>*>(control_.data() + kCallCountersOffset)[index];
}

int Channel::back(const std::byte* area, uint64_t area_bytes, uint64_t bytes, uint64_t* backed) {
  const uint64_t step = *backed ? kBackBytes : kFirstBytes;
  const uint64_t steps = (bytes - *backed + step - 1) / step * step;
  const uint64_t more = std::min(steps, area_bytes - *backed);
  const auto offset = static_cast<uint64_t>(area - log_.data()) + *backed;
  if (const int failed = allocate(fds_.log.get(), offset, more)) return failed;
  populate(log_.data() + offset, more);
  *backed += more;
  return 0;
}

int Channel::back_pinned(uint64_t offset, uint64_t bytes) const {
  if (offset > pinned_bytes() || bytes > pinned_bytes() - offset) return EINVAL;
  return fallocate(fds_.pinned.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes))
             ? errno
             : 0;
}

int Channel::release_pinned(uint64_t offset, uint64_t bytes) const {
  if (offset > pinned_bytes() || bytes > pinned_bytes() - offset) return EINVAL;
  return fallocate(fds_.pinned.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(offset), static_cast<off_t>(bytes))
             ? errno
             : 0;
}

ChannelFds Channel::dup_fds() const {
  const auto copy = [](const UniqueFd& fd) {
    return UniqueFd(fd.valid() ? fcntl(fd.get(), F_DUPFD_CLOEXEC, 0) : -1);
  };
  return {copy(fds_.log), copy(fds_.control), copy(fds_.bounce), copy(fds_.pinned),
          copy(fds_.store)};
}

}  // namespace pyft::ring
