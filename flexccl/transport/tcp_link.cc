#include "transport/tcp_link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace flexccl {
namespace {

constexpr std::size_t kBufferBytes = 256 << 10;

void prepare(int socket) {
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

TcpOutbound::TcpOutbound(Fd socket) : socket_(std::move(socket)) {
  prepare(socket_.get());
}

std::size_t TcpOutbound::write(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (would_block()) return 0;
  fail(ncclRemoteError, "sending failed with error [", std::strerror(errno), "]");
}

bool TcpOutbound::alive() {
  // Nothing ever comes back on this socket, so any event is its end.
  pollfd look{socket_.get(), POLLIN | POLLRDHUP, 0};
  return poll(&look, 1, 0) == 0;
}

TcpInbound::TcpInbound(Fd socket) : socket_(std::move(socket)), buffer_(kBufferBytes) {
  prepare(socket_.get());
}

std::span<const std::byte> TcpInbound::peek() {
  if (end_ - begin_ < kBlockBytes) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_, begin_ = 0;
    const ssize_t got = recv(socket_.get(), buffer_.data() + end_, buffer_.size() - end_, 0);
    if (got == 0) fail(ncclRemoteError, "it closed the link");
    if (got < 0 && !would_block())
      fail(ncclRemoteError, "receiving failed with error [", std::strerror(errno), "]");
    if (got > 0) end_ += static_cast<std::size_t>(got);
  }
  return {buffer_.data() + begin_, (end_ - begin_) / kBlockBytes * kBlockBytes};
}

void TcpInbound::consume(std::size_t bytes) {
  begin_ += bytes;
}

}  // namespace flexccl
