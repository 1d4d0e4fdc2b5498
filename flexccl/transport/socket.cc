#include "transport/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace flexccl {
namespace {

constexpr int kMaxFds = 4;
constexpr int kLookMs = 20;                // between two looks of a wait
constexpr std::uint64_t kStuckMs = 10000;  // a message that the other side does not take
constexpr int kFullMs = 2;                 // until a listener that is full is tried again

sockaddr_in tcp_address(std::uint32_t ipv4, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ipv4;
  address.sin_port = port;
  return address;
}

socklen_t unix_address(std::span<const std::uint8_t> name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  // A leading zero byte: the abstract namespace, nothing is left in the file system.
  constexpr char kPrefix[] = "flexccl-";
  std::memcpy(address->sun_path + 1, kPrefix, sizeof kPrefix - 1);
  std::memcpy(address->sun_path + sizeof kPrefix, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + sizeof kPrefix + name.size());
}

void check(bool ok, const char* what) {
  if (!ok)
    fail(ncclSystemError, "flexccl: ", what, " failed with error [", std::strerror(errno), "]");
}

// Sleeps until the descriptor is ready or it is time for another look. False: the time is over.
bool wait_for(int fd, short events, const WaitUntil& wait, int longest_ms = 1 << 30) {
  if (wait.look) wait.look(), longest_ms = std::min(longest_ms, kLookMs);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      wait.until - std::chrono::steady_clock::now());
  if (left.count() <= 0) return false;
  pollfd look{fd, events, 0};
  poll(&look, fd >= 0 ? 1 : 0, static_cast<int>(std::min<long long>(left.count() + 1, longest_ms)));
  return true;
}

void adopt_fds(msghdr* message, std::vector<Fd>* fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      Fd owned(fd);
      if (fds) fds->push_back(std::move(owned));
    }
  }
}

}  // namespace

Deadline in_ms(std::uint64_t ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
}

Fd listen_tcp(std::uint32_t ipv4, std::uint16_t* port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address = tcp_address(ipv4, *port);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  // Its connections may outlive it for a minute, and would else keep the next one from its port.
  const auto share_port = [&fd] {
    const int yes = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  };
  if (*port) share_port();
  check(fd && bind(fd.get(), generic, length) == 0 && listen(fd.get(), 1024) == 0 &&
            getsockname(fd.get(), generic, &length) == 0,
        "listening on a TCP port");
  share_port();
  *port = address.sin_port;
  return fd;
}

Fd listen_unix(std::span<const std::uint8_t> name) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address;
  const socklen_t length = unix_address(name, &address);
  check(fd && bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
            listen(fd.get(), 1024) == 0,
        "listening on a Unix socket");
  return fd;
}

namespace {

// Where no process listens, the kernel may choose the very port that is called for the caller.
bool is_its_own_peer(int fd) {
  sockaddr_in here{}, there{};
  socklen_t length = sizeof here, other = sizeof there;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&here), &length) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&there), &other) == 0 &&
         here.sin_port == there.sin_port && here.sin_addr.s_addr == there.sin_addr.s_addr;
}

}  // namespace

Fd connect_tcp(std::uint32_t ipv4, std::uint16_t port, const WaitUntil& wait) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  check(static_cast<bool>(fd), "making a socket");
  const sockaddr_in address = tcp_address(ipv4, port);
  int error = 0;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    error = errno;
  while (error == EINPROGRESS) {
    if (!wait_for(fd.get(), POLLOUT, wait)) {
      error = ETIMEDOUT;
      break;
    }
    pollfd look{fd.get(), POLLOUT, 0};
    socklen_t length = sizeof error;
    if (poll(&look, 1, 0) == 1) getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (!error && is_its_own_peer(fd.get())) error = ECONNREFUSED;
  if (error) {
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
    fail(ncclRemoteError, "connecting to [", text, ":", ntohs(port), "] failed with error [",
         std::strerror(error), "]");
  }
  return fd;
}

Fd connect_unix(std::span<const std::uint8_t> name, const WaitUntil& wait) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  check(static_cast<bool>(fd), "making a socket");
  sockaddr_un address;
  const socklen_t length = unix_address(name, &address);
  while (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    int error = errno;
    // Its queue of callers is full; nothing tells when there is room.
    if (error == EAGAIN) error = wait_for(-1, 0, wait, kFullMs) ? 0 : ETIMEDOUT;
    if (error)
      fail(ncclRemoteError, "connecting to its Unix socket failed with error [",
           std::strerror(error), "]");
  }
  return fd;
}

void send_all(int fd, const void* data, std::size_t bytes, std::span<const int> fds,
              const WaitUntil& wait) {
  const auto* from = static_cast<const char*>(data);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
  WaitUntil stuck(std::min(wait.until, in_ms(kStuckMs)), wait.look);
  while (bytes) {
    iovec part{const_cast<char*>(from), bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
    }
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!wait_for(fd, POLLOUT, stuck))
        fail(ncclRemoteError, "it takes nothing; [", bytes, "] bytes are left to be sent");
      continue;
    }
    if (sent < 0) fail(ncclRemoteError, "sending failed with error [", std::strerror(errno), "]");
    from += sent, bytes -= static_cast<std::size_t>(sent), fds = {};
    stuck.until = std::min(wait.until, in_ms(kStuckMs));
  }
}

long receive_some(int fd, void* data, std::size_t bytes, std::vector<Fd>* fds) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)];
  iovec part{data, bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? -1 : 0;
  adopt_fds(&message, fds);
  return got;
}

bool has_ended(int fd) {
  char byte;
  const ssize_t got = recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

void receive_all(int fd, void* data, std::size_t bytes, const WaitUntil& wait, const char* what,
                 std::vector<Fd>* fds) {
  auto* to = static_cast<char*>(data);
  while (bytes) {
    const long got = receive_some(fd, to, bytes, fds);
    if (got == 0) fail(ncclRemoteError, "the connection was closed instead of sending ", what);
    if (got > 0) to += got, bytes -= static_cast<std::size_t>(got);
    if (got < 0 && !wait_for(fd, POLLIN, wait))
      fail(ncclRemoteError, "waiting for ", what, " took too long");
  }
}

}  // namespace flexccl
