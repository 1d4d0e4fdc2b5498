#include "ring/attach_client.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <vector>

namespace pyft::ring {

namespace {

constexpr int kAttachTimeoutMs = 60'000;  // the agent starts a server before it answers
constexpr size_t kDescriptors = 4;

std::string with_errno(const std::string& what) {
  return what + ": [" + std::strerror(errno) + "]";
}

UniqueFd connect_to_agent(const char* name, std::string* error) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(name);
  if (length + 1 > sizeof address.sun_path) {
    *error = "the agent's name in PYFT_AGENT has [" + std::to_string(length) + "] bytes, too many";
    return {};
  }
  std::memcpy(address.sun_path + 1, name, length);  // a leading NUL: abstract, no file
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (!fd.valid() || connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size)) {
    *error = with_errno(std::string("the agent [") + name + "] cannot be reached");
    return {};
  }
  ucred peer{};
  socklen_t peer_size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) || peer.uid != geteuid()) {
    *error = "the agent belongs to user [" + std::to_string(peer.uid) + "], not to this one";
    return {};
  }
  return fd;
}

std::string environment_block() {
  std::string block;
  for (char** entry = environ; entry && *entry; ++entry) block.append(*entry).push_back('\0');
  return block;
}

bool send_request(int fd, uint32_t device, std::string* error) {
  std::string environment = environment_block();
  if (environment.size() > kMaxEnvironmentBytes) {
    *error = "the environment has [" + std::to_string(environment.size()) + "] bytes; at most [" +
             std::to_string(kMaxEnvironmentBytes) + "] can be passed to the server";
    return false;
  }
  AttachRequest request{kAttachMagic,
                        kAttachVersion,
                        static_cast<uint32_t>(getpid()),
                        device,
                        static_cast<uint32_t>(environment.size()),
                        0};
  std::array<iovec, 2> parts{iovec{&request, sizeof request},
                             iovec{environment.data(), environment.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t sent;
  do sent = sendmsg(fd, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent < 0) *error = with_errno("the attach request cannot be sent");
  return sent >= 0;
}

bool wait_readable(int fd, int timeout_ms) {
  pollfd poller{fd, POLLIN, 0};
  int result;
  do result = poll(&poller, 1, timeout_ms);
  while (result < 0 && errno == EINTR);
  return result == 1;
}

// Takes the descriptors out of the control message; closes surplus ones.
std::vector<UniqueFd> take_descriptors(msghdr& message) {
  std::vector<UniqueFd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

bool check_reply(const AttachReply& reply, ssize_t bytes, size_t descriptors, std::string* error) {
  if (bytes != sizeof reply || reply.magic != kAttachMagic)
    *error = "the agent's answer has [" + std::to_string(bytes) + "] bytes and is not ours";
  else if (reply.version != kAttachVersion)
    *error = "the agent speaks attach version [" + std::to_string(reply.version) + "], this is [" +
             std::to_string(kAttachVersion) + "]";
  else if (reply.error)
    *error = std::string(reply.text, strnlen(reply.text, sizeof reply.text));
  else if (descriptors != kDescriptors + (reply.store_bytes ? 1 : 0))
    *error = "the agent sent [" + std::to_string(descriptors) + "] descriptors instead of [" +
             std::to_string(kDescriptors + (reply.store_bytes ? 1 : 0)) + "]";
  return error->empty();
}

// Connections of this process. A forked child (a data loader's worker, say) must not hold them
// open, or the agent would take a client for alive that was killed. The numbers stay valid: their
// owner in the child may still close them.
struct Connection {
  std::atomic<int> fd{-1};
  ino_t inode = 0;  // tells a connection from whatever got its number later
};
std::array<Connection, 64> connections;

ino_t inode_of(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

// Where no descriptor is left, the number itself is the one that becomes free.
void drop(int fd) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) {
    close(fd);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
  }
  if (null < 0 || null == fd) return;
  dup3(null, fd, O_CLOEXEC);
  close(null);
}

void drop_connections() {
  for (const Connection& connection : connections) {
    const int fd = connection.fd.load();
    if (fd >= 0 && inode_of(fd) == connection.inode) drop(fd);
  }
}

// Takes the first place whose connection is closed.
void drop_in_children(int fd) {
  static std::mutex mutex;
  static const int armed = pthread_atfork(nullptr, nullptr, drop_connections);
  (void)armed;
  std::lock_guard lock(mutex);
  for (Connection& connection : connections) {
    const int used = connection.fd.load();
    if (used >= 0 && used != fd && inode_of(used) == connection.inode) continue;
    connection.inode = inode_of(fd);
    connection.fd = fd;
    return;
  }
}

}  // namespace

bool receive_attach_reply(int socket, int timeout_ms, AttachReply* reply, ChannelFds* fds,
                          std::string* error) {
  error->clear();
  if (!wait_readable(socket, timeout_ms)) {
    *error = "the agent does not answer within [" + std::to_string(timeout_ms) + "] ms";
    return false;
  }
  iovec part{reply, sizeof *reply};
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t bytes;
  do bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (bytes < 0 && errno == EINTR);
  if (bytes <= 0) {
    *error = bytes < 0 ? with_errno("the agent's answer cannot be read")
                       : "the agent closes the connection without an answer";
    return false;
  }
  std::vector<UniqueFd> received = take_descriptors(message);
  if (message.msg_flags & MSG_CTRUNC) {
    *error = "this process can take [" + std::to_string(received.size()) +
             "] descriptors of the agent's answer, too few: raise its limit (`ulimit -n`)";
    return false;
  }
  if (!check_reply(*reply, bytes, received.size(), error)) return false;
  *fds = {std::move(received[0]), std::move(received[1]), std::move(received[2]),
          std::move(received[3]), reply->store_bytes ? std::move(received[4]) : UniqueFd()};
  return true;
}

bool attach_client(const char* agent_name, uint32_t device, ClientAttachment* out,
                   std::string* error) {
  error->clear();
  out->agent = connect_to_agent(agent_name, error);
  if (!out->agent.valid() || !send_request(out->agent.get(), device, error)) return false;
  ChannelFds fds;
  if (!receive_attach_reply(out->agent.get(), kAttachTimeoutMs, &out->reply, &fds, error))
    return false;
  const AttachReply& reply = out->reply;
  const ChannelSizes sizes{reply.log_bytes, reply.control_bytes, reply.bounce_bytes,
                           reply.pinned_bytes, 0};
  out->channel = Channel::map(Role::kClient, device, std::move(fds), sizes, error);
  if (!out->channel) return false;
  drop_in_children(out->agent.get());
  return true;
}

}  // namespace pyft::ring
