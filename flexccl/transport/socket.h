// Blocking socket steps with a deadline, for setting up links and for the rendezvous.
#ifndef FLEXCCL_TRANSPORT_SOCKET_H_
#define FLEXCCL_TRANSPORT_SOCKET_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "transport/memory.h"

namespace flexccl {

using Deadline = std::chrono::steady_clock::time_point;
Deadline in_ms(std::uint64_t ms);

// How long a step waits: until a moment, or until `look`, which is called several times a second,
// throws.
struct WaitUntil {
  WaitUntil(Deadline moment, std::function<void()> what = nullptr)
      : until(moment), look(std::move(what)) {}
  Deadline until;
  std::function<void()> look;
};

// All throw ncclSystemError or ncclRemoteError with a sentence that names `what`.
// `port` 0: any. One that is given may have been that of a process that has died.
Fd listen_tcp(std::uint32_t ipv4, std::uint16_t* port);
Fd listen_unix(std::span<const std::uint8_t> name);
Fd connect_tcp(std::uint32_t ipv4, std::uint16_t port, const WaitUntil& wait);
Fd connect_unix(std::span<const std::uint8_t> name, const WaitUntil& wait = in_ms(10000));
// Also fails when the other side takes nothing for ten seconds, however much time there is.
void send_all(int fd, const void* data, std::size_t bytes, std::span<const int> fds = {},
              const WaitUntil& wait = Deadline::max());
void receive_all(int fd, void* data, std::size_t bytes, const WaitUntil& wait, const char* what,
                 std::vector<Fd>* fds = nullptr);
// Whether the other side is gone, as far as this side has been told, and has left nothing to read.
bool has_ended(int fd);
// One recvmsg without waiting: bytes received, 0 for the end, -1 for nothing yet.
long receive_some(int fd, void* data, std::size_t bytes, std::vector<Fd>* fds);

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_SOCKET_H_
