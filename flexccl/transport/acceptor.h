// A listening socket that strangers can reach: it takes no more of a process than it may.
#ifndef FLEXCCL_TRANSPORT_ACCEPTOR_H_
#define FLEXCCL_TRANSPORT_ACCEPTOR_H_

#include <chrono>
#include <cstddef>

#include "transport/memory.h"
#include "transport/socket.h"

namespace flexccl {

// So many callers may not have said yet which ranks they are: an eighth of the descriptors that
// this process may have, 8 to 256.
std::size_t most_silent();

// One more ends the one that has been silent for longest, if it has had this time.
inline constexpr std::chrono::milliseconds kSilentGrace{200};

class Acceptor {
 public:
  Acceptor() = default;
  // `own_user`: it is a Unix socket, and other users are turned away before anything is said.
  Acceptor(Fd listener, bool own_user);
  int fd() const { return listener_.get(); }
  void close() { listener_ = Fd(); }
  // The next caller, without waiting; nothing when there is none, or none can be taken now. Where
  // no descriptor is left, callers are turned away with one that is kept in reserve, or a caller
  // that looks at the listener would find it ready again and again.
  Fd next();

 private:
  void turn_away();

  Fd listener_, reserve_;
  bool own_user_ = false;
};

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_ACCEPTOR_H_
