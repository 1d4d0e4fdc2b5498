#include "transport/acceptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace flexccl {
namespace {

constexpr int kAtOnce = 64;  // strangers turned away in one call
constexpr std::chrono::milliseconds kPause(20);

Fd spare_descriptor() {
  return Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

bool is_own_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// The connection is gone, or there was none.
bool is_harmless(int error) {
  return error == EAGAIN || error == EINTR || error == ECONNABORTED;
}

}  // namespace

std::size_t most_silent() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit)) return 8;
  return std::clamp<rlim_t>(limit.rlim_cur / 8, 8, 256);
}

Acceptor::Acceptor(Fd listener, bool own_user)
    : listener_(std::move(listener)), reserve_(spare_descriptor()), own_user_(own_user) {}

Fd Acceptor::next() {
  for (int i = 0; i < kAtOnce; ++i) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (!is_harmless(errno)) turn_away();
      return {};
    }
    if (!own_user_ || is_own_user(socket.get())) return socket;
  }
  return {};
}

void Acceptor::turn_away() {
  if (reserve_) {
    reserve_ = Fd();
    const Fd unwanted(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  } else {
    std::this_thread::sleep_for(kPause);  // it was needed elsewhere
  }
  reserve_ = spare_descriptor();
}

}  // namespace flexccl
