// The transport contract: a link carries blocks of 64 bytes in one direction, from one slot to
// another, in order, without loss. Neither call waits; api/algo decide when to wait and for how
// long. A frame (frame.h) is padded to whole blocks, so no element is ever cut in two by a buffer.
#ifndef FLEXCCL_TRANSPORT_LINK_H_
#define FLEXCCL_TRANSPORT_LINK_H_

#include <sys/uio.h>

#include <cstddef>
#include <span>

namespace flexccl {

inline constexpr std::size_t kBlockBytes = 64;

class Outbound {
 public:
  virtual ~Outbound() = default;
  // Takes bytes from the front of `parts` (each a multiple of 64 long) and says how many. Throws
  // ncclRemoteError when the other side is gone.
  virtual std::size_t write(std::span<const iovec> parts) = 0;
  // To be polled for output when write() took nothing; -1: the doorbell rings instead.
  virtual int fd() const { return -1; }
  // A look at the other side, for waits that last: false when it can never read again.
  virtual bool alive() = 0;
  // Wakes the other side where that is cheap.
  virtual void ring() {}
};

class Inbound {
 public:
  virtual ~Inbound() = default;
  // What has arrived, contiguous, a multiple of 64 bytes; empty: nothing yet. Throws
  // ncclRemoteError when nothing is left and the other side is gone.
  virtual std::span<const std::byte> peek() = 0;
  // Gives back the first `bytes`, a multiple of 64, of what peek() returned.
  virtual void consume(std::size_t bytes) = 0;
  virtual int fd() const { return -1; }
  virtual bool alive() = 0;
  virtual void ring() {}
};

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_LINK_H_
