// connect() in front of libc's, in jobs of several hosts only. A connection to the address of one
// of the job's places becomes one to a port of this host, where the relay of this place
// (pyft/hosts/relay) takes it there: both of its ends are in the image of this place, and it comes
// back with that, wherever the places are then. All other connections are as they are.
//
// Threads: any. The relay is waited for with a deadline, also where the caller's socket does not
// block: the kernel's answer for such a connection, "refused", is needed here and now.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pyft/settings.h"

namespace {

using Connect = int (*)(int, const sockaddr*, socklen_t);

constexpr time_t kAnswerS = 30;  // of the relay, which has a shorter deadline
constexpr int kNowhere = -1;

struct Question {
  uint32_t place;
  uint32_t port;
};

struct Answer {
  int32_t error;  // errno, 0: the port
  uint32_t port;
};

Connect real_connect() {
  static std::atomic<Connect> real{nullptr};
  Connect call = real.load(std::memory_order_relaxed);
  if (!call) {
    call = reinterpret_cast<Connect>(dlsym(RTLD_NEXT, "connect"));
    real.store(call, std::memory_order_relaxed);
  }
  return call;
}

// The address, of version 4, to which a socket is to be connected.
bool target_of(const sockaddr* address, socklen_t size, in_addr* ip, uint16_t* port) {
  if (!address || size < sizeof(sa_family_t)) return false;
  if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof v4);
    *ip = v4.sin_addr;
    *port = ntohs(v4.sin_port);
    return true;
  }
  if (address->sa_family != AF_INET6 || size < sizeof(sockaddr_in6)) return false;
  sockaddr_in6 v6;
  std::memcpy(&v6, address, sizeof v6);
  if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return false;
  std::memcpy(ip, v6.sin6_addr.s6_addr + 12, sizeof *ip);
  *port = ntohs(v6.sin6_port);
  return true;
}

// Which place has this address.
int place_of(in_addr ip) {
  char text[INET_ADDRSTRLEN];
  if (!inet_ntop(AF_INET, &ip, text, sizeof text)) return kNowhere;
  const size_t length = std::strlen(text);
  const char* at = pyft::settings::places();
  for (int place = 0; *at; ++place) {
    const size_t one = std::strcspn(at, ",");
    if (one == length && std::memcmp(at, text, one) == 0) return place;
    at += one + (at[one] == ',');
  }
  return kNowhere;
}

bool is_stream(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

// Another user may have taken the name of a relay that has ended.
bool is_of_this_user(int relay) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(relay, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

bool exchange(int relay, const Question& question, Answer* answer) {
  if (send(relay, &question, sizeof question, MSG_NOSIGNAL) != sizeof question) return false;
  ssize_t got;
  do {
    got = recv(relay, answer, sizeof *answer, MSG_WAITALL);
  } while (got < 0 && errno == EINTR);
  return got == sizeof *answer;
}

// Asks the relay at which port of this host the connection waits.
Answer ask(const Question& question) {
  Answer answer{ETIMEDOUT, 0};
  const int relay = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (relay < 0) return {errno, 0};
  const timeval deadline{kAnswerS, 0};
  setsockopt(relay, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
  sockaddr_un where{};
  where.sun_family = AF_UNIX;
  const char* name = pyft::settings::relay();  // in the abstract namespace
  const size_t length = std::min(std::strlen(name), sizeof where.sun_path - 1);
  std::memcpy(where.sun_path + 1, name, length);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (real_connect()(relay, reinterpret_cast<sockaddr*>(&where), size) != 0 ||
      !is_of_this_user(relay))
    answer.error = ENETUNREACH;
  else if (!exchange(relay, question, &answer))
    answer = {ETIMEDOUT, 0};
  close(relay);
  return answer;
}

int connect_here(int fd, sa_family_t family, uint32_t port) {
  if (family == AF_INET) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(port));
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return real_connect()(fd, reinterpret_cast<sockaddr*>(&v4), sizeof v4);
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET6, "::ffff:127.0.0.1", &v6.sin6_addr);
  return real_connect()(fd, reinterpret_cast<sockaddr*>(&v6), sizeof v6);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int connect(int fd, const sockaddr* address,
                                                              socklen_t size) {
  const Connect real = real_connect();
  if (!real) {
    errno = ENOSYS;
    return -1;
  }
  in_addr ip{};
  uint16_t port = 0;
  if (!target_of(address, size, &ip, &port)) return real(fd, address, size);
  const int place = place_of(ip);
  if (place == kNowhere || !is_stream(fd)) return real(fd, address, size);
  const Answer answer = ask({static_cast<uint32_t>(place), port});
  if (answer.error) {
    errno = answer.error;
    return -1;
  }
  return connect_here(fd, address->sa_family, answer.port);
}
