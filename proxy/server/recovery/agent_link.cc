#include "server/recovery/agent_link.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace pyft::server {

namespace {
constexpr int kLookMs = 100;  // how often the thread looks whether it should end
constexpr int kLastWordsMs = 5000;
constexpr size_t kLastWordBytes = 1024;

// The descriptor that came with a message, -1 if none did. Surplus ones are closed.
int descriptor_of(msghdr& message) {
  int found = -1;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      if (found < 0)
        found = fd;
      else
        close(fd);
    }
  }
  return found;
}

void attach_descriptor(int fd, std::span<char> control, msghdr* message) {
  message->msg_control = control.data();
  message->msg_controllen = control.size();
  cmsghdr* const part = CMSG_FIRSTHDR(message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
}
}  // namespace

AgentLink::AgentLink(int fd, Handler& handler)
    : fd_(fd), handler_(handler), thread_([this](const std::stop_token& stop) {
        pthread_setname_np(pthread_self(), "pyft-agent-link");
        run(stop);
      }) {}

AgentLink::~AgentLink() {
  thread_.request_stop();
}

void send_words(int to, ring::MessageKind kind, const ring::MessageWords& words,
                std::span<const std::byte> payload, int fd) {
  ring::MessageHeader head{ring::kMessageMagic, static_cast<uint32_t>(kind), words,
                           static_cast<uint32_t>(payload.size()), 0};
  iovec parts[2] = {{&head, sizeof head}, {const_cast<std::byte*>(payload.data()), payload.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = payload.empty() ? 1 : 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)]{};
  if (fd >= 0) attach_descriptor(fd, control, &message);
  ssize_t sent;
  do sent = sendmsg(to, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
}

void send_last_words(int to, ring::FaultKind kind, int code, uint64_t seq, std::string_view text) {
  pollfd poller{to, POLLOUT, 0};
  int ready;
  do ready = poll(&poller, 1, kLastWordsMs);
  while (ready < 0 && errno == EINTR);
  if (ready != 1 || !(poller.revents & POLLOUT)) return;
  const timeval limit{kLastWordsMs / 1000, 0};  // others may have filled it meanwhile
  setsockopt(to, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  send_message(
      to, msg::Fault{.fault = static_cast<uint64_t>(kind), .code = code, .entry = seq},
      std::as_bytes(std::span(text.data(), std::min<size_t>(text.size(), kLastWordBytes))));
}

bool receive_message(int from, AgentMessage* out) {
  ring::MessageHeader head{};
  std::vector<std::byte> payload(ring::kMaxMessagePayload);
  iovec parts[2] = {{&head, sizeof head}, {payload.data(), payload.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t bytes = recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  const int fd = descriptor_of(message);
  if (bytes < static_cast<ssize_t>(sizeof head) || head.magic != ring::kMessageMagic) {
    if (fd >= 0) close(fd);
    return false;
  }
  payload.resize(std::min<size_t>(head.bytes, static_cast<size_t>(bytes) - sizeof head));
  *out = {static_cast<ring::MessageKind>(head.kind), head.words, std::move(payload), fd};
  return true;
}

void AgentLink::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    pollfd poller{fd_, POLLIN | POLLRDHUP, 0};
    if (poll(&poller, 1, kLookMs) <= 0) continue;
    AgentMessage message{};
    if ((poller.revents & (POLLHUP | POLLERR | POLLNVAL)) || !receive_message(fd_, &message)) break;
    if (message.kind == ring::MessageKind{} || handler_.take(message)) continue;
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(message));
    arrived_.notify_all();
  }
  const std::lock_guard lock(mutex_);
  gone_ = true;
  arrived_.notify_all();
}

std::optional<AgentMessage> AgentLink::wait_for(ring::MessageKind kind, uint64_t about,
                                                int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  std::unique_lock lock(mutex_);
  for (;;) {
    for (auto it = kept_.begin(); it != kept_.end(); ++it)
      if (it->kind == kind && it->words[0] == about) {
        AgentMessage found = std::move(*it);
        kept_.erase(it);
        return found;
      }
    if (gone_ || arrived_.wait_until(lock, deadline) == std::cv_status::timeout) return {};
  }
}

}  // namespace pyft::server
