#include "server/attach.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "pyft/log.h"
#include "pyft/settings.h"
#include "ring/attach_client.h"

namespace pyft::server {

namespace {

constexpr int kNoTimeout = -1;  // ends with the agent's connection: it may let us stand by

// What the agent has learnt since it started this process: lines NAME=VALUE; a name alone goes.
void change_environment(const ring::AttachReply& reply) {
  const std::string text(reply.text, strnlen(reply.text, sizeof reply.text));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const size_t equals = line.find('=');
    if (equals == std::string::npos)
      unsetenv(line.c_str());
    else
      setenv(line.substr(0, equals).c_str(), line.substr(equals + 1).c_str(), 1);
    at = end + 1;
  }
}

}  // namespace

bool connect_agent(Attachment* out, std::string* error) {
  const char* text = settings::server_fd();
  char* end = nullptr;
  const long fd = std::strtol(text, &end, 10);
  if (end == text || *end || fd < 0 || fcntl(static_cast<int>(fd), F_GETFD) < 0) {
    *error = std::string("PYFT_SERVER_FD is [") + text +
             "], not an open descriptor: this program is started by the pyft agent";
    return false;
  }
  out->agent.reset(static_cast<int>(fd));
  fcntl(out->agent.get(), F_SETFD, FD_CLOEXEC);
  unsetenv("PYFT_SERVER_FD");
  return true;
}

bool receive_channel(Attachment* out, std::string* error) {
  ring::AttachReply reply{};
  ring::ChannelFds fds;
  if (!ring::receive_attach_reply(out->agent.get(), kNoTimeout, &reply, &fds, error)) return false;
  change_environment(reply);
  const ring::ChannelSizes sizes{reply.log_bytes, reply.control_bytes, reply.bounce_bytes,
                                 reply.pinned_bytes, reply.store_bytes};
  out->client_pid = reply.client_pid;
  const auto role = settings::audit() ? ring::Role::kAuditor : ring::Role::kServer;
  out->channel = ring::Channel::map(role, reply.device, std::move(fds), sizes, error);
  return out->channel != nullptr;
}

void say(const Attachment& attachment, const std::string& sentence) {
  const long long device = attachment.channel ? int64_t{attachment.channel->device()} : -1;
  PYFT_LOG(kServer, kWarning, "device [%lld], client [%u]: %s", device, attachment.client_pid,
           sentence.c_str());
}

ring::WaitStatus ServerLiveness::check() const {
  pollfd poller{agent_fd_, POLLRDHUP, 0};
  const bool gone = agent_fd_ >= 0 && poll(&poller, 1, 0) == 1 &&
                    (poller.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
  return gone ? ring::WaitStatus::kEnding : ring::WaitStatus::kOk;
}

}  // namespace pyft::server
