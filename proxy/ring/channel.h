// The four memory objects of a channel, mapped and checked. See layout.h for what lies where.
//
// Geometry (offsets and sizes) is read once, checked against the object sizes and kept here: the
// other side can scribble over the headers later without moving our pointers.
#ifndef PYFT_RING_CHANNEL_H_
#define PYFT_RING_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "pyft/unique_fd.h"
#include "ring/layout.h"

namespace pyft::ring {

// An auditor has what a server has, but nothing that it writes is seen by others.
enum class Role { kClient, kServer, kReader, kAuditor };

// Areas of a log object, in the process that looks at it. Plain value; does not own the mapping.
struct LogView {
  const LogHeader* header = nullptr;
  const std::byte* ring = nullptr;
  const std::byte* object_log = nullptr;
  const std::byte* arena = nullptr;
  uint64_t ring_bytes = 0, object_log_bytes = 0, arena_bytes = 0;
};

// Checks magic, version and every offset and size against `log_bytes`. Empty string when good.
std::string make_log_view(const void* log, uint64_t log_bytes, LogView* view);

struct ChannelFds {
  UniqueFd log, control, bounce, pinned;  // pinned may be absent (tests, trace reader)
  UniqueFd store{};                       // a server's only; absent without protection
};

struct ChannelSizes {
  uint64_t log = 0, control = 0, bounce = 0, pinned = 0, store = 0;
};

struct ChannelShape {  // what format_channel() needs; bytes of each area, multiples of kPageBytes
  uint64_t ring_bytes = uint64_t{64} << 20;
  uint64_t object_log_bytes = uint64_t{256} << 20;  // sparse, backed as it is used
  uint64_t arena_bytes = uint64_t{256} << 20;
  uint64_t bounce_bytes = uint64_t{32} << 20;
  uint64_t pinned_bytes = 0;  // used by Channel::create only
  uint32_t client_pid = 0, device = 0, epoch = 1;
};

uint64_t log_object_bytes(const ChannelShape& shape);

// Sizes and initialises the log, control and bounce objects, in half a millisecond, so that
// programs which start at once do not queue for the agent. Memory comes when it is needed:
// Channel::back_ring and back_arena in the client, the bounce area when the server maps it. Returns
// 0 or an errno. Called by the agent through libpyft_native.so and by Channel::create.
int format_channel(int log_fd, int control_fd, int bounce_fd, const ChannelShape& shape);

// One mapped memory object, unmapped by the destructor.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  // `address` 0: anywhere; else exactly there (MAP_FIXED_NOREPLACE, the result is compared).
  static Mapping map(int fd, uint64_t bytes, int protection, uint64_t address, std::string* error,
                     int sharing = kShared);
  // Memory of this process alone, with what the object has now.
  static Mapping copy(int fd, uint64_t bytes, std::string* error);
  static const int kShared;   // what is written is seen by all that map the object
  static const int kPrivate;  // by this process alone; pages it has not written follow the object
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

class Channel {
 public:
  // Takes the descriptors. nullptr and a sentence in *error when anything does not fit. The client
  // maps log, control and pinned read-write and bounce read-only; the server maps log read-only;
  // a reader maps log and control read-only and nothing else. An auditor's control is a copy, and
  // bounce, pinned window and store are private: its descriptors may be read-only ones.
  static std::unique_ptr<Channel> map(Role role, uint32_t device, ChannelFds fds,
                                      const ChannelSizes& sizes, std::string* error);
  // For tests: fresh memfds, formatted and mapped as a client; use dup_fds() for the other side.
  static std::unique_ptr<Channel> create(const ChannelShape& shape, std::string* error);

  Role role() const { return role_; }
  uint32_t device() const { return device_; }
  const LogView& log_view() const { return view_; }

  // Only the client may write through these two.
  LogHeader& log() const;
  std::byte* ring() const;
  std::byte* object_log() const;
  std::byte* arena() const;

  ControlPage& control() const;                // read-only memory for Role::kReader
  ReplySlot& slot(uint32_t index) const;       // index < kReplySlots, checked
  CompletionWord& word(uint32_t index) const;  // index < kCompletionWords, checked
  // Client only; index < kCallCounters, checked.
  std::atomic<uint64_t>& call_counter(size_t index) const;
  uint64_t ring_bytes() const { return view_.ring_bytes; }
  uint64_t object_log_bytes() const { return view_.object_log_bytes; }
  uint64_t arena_bytes() const { return view_.arena_bytes; }

  std::byte* bounce() const { return bounce_.data(); }
  uint64_t bounce_bytes() const { return bounce_.bytes(); }
  // The pinned window, at the same address in client and server; backed by the client with
  // back_pinned() before use.
  std::byte* pinned() const { return pinned_.data(); }
  uint64_t pinned_bytes() const { return pinned_.bytes(); }
  // Server only: see store_layout.h. nullptr and 0 without one.
  std::byte* store() const { return store_.data(); }
  uint64_t store_bytes() const { return store_.bytes(); }
  int store_fd() const { return fds_.store.get(); }
  // Client only, one thread at a time: makes sure that there is memory behind the first `bytes` of
  // ring or arena, which have none to begin with. To be called before they are written: what is
  // missing is allocated in steps, and returned as an errno instead of a SIGBUS. Free once backed.
  int back_ring(uint64_t bytes) {
    return bytes <= ring_backed_ ? 0 : back(view_.ring, view_.ring_bytes, bytes, &ring_backed_);
  }
  int back_arena(uint64_t bytes) {
    return bytes <= arena_backed_ ? 0 : back(view_.arena, view_.arena_bytes, bytes, &arena_backed_);
  }
  // Preallocate / give back pages of the pinned object. Return 0 or an errno (ENOSPC: no memory).
  int back_pinned(uint64_t offset, uint64_t bytes) const;
  int release_pinned(uint64_t offset, uint64_t bytes) const;

  int log_fd() const { return fds_.log.get(); }
  const ChannelSizes& sizes() const { return sizes_; }
  ChannelFds dup_fds() const;

 private:
  Channel() = default;
  int back(const std::byte* area, uint64_t area_bytes, uint64_t bytes, uint64_t* backed);
  Role role_ = Role::kReader;
  uint32_t device_ = 0;
  ChannelFds fds_;
  ChannelSizes sizes_;
  Mapping log_, control_, bounce_, pinned_, store_;
  LogView view_;
  uint64_t ring_backed_ = 0, arena_backed_ = 0;
};

}  // namespace pyft::ring

#endif  // PYFT_RING_CHANNEL_H_
