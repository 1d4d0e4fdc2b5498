// Both ends of the attach protocol against an agent made of a thread.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>

#include "check.h"
#include "comes.h"
#include "fixture.h"
#include "ring/attach_client.h"
#include "server/attach.h"

using namespace fixture;

namespace {

bool is_another_user = false;  // this process, for itself

}  // namespace

// Takes the place of the C library's: the agent of the test then is another user's, without root.
extern "C" uid_t geteuid() noexcept {
  const auto real = static_cast<uid_t>(syscall(SYS_geteuid));
  return is_another_user ? real + 1 : real;
}

namespace {

ring::ChannelShape shape_with_pinned() {
  ring::ChannelShape shape = small_shape();
  shape.pinned_bytes = 1 << 20;
  return shape;
}

// Memory objects as the agent makes them: formatted, mapped by no process.
struct Objects {
  ring::ChannelFds fds;
  ring::AttachReply reply{};
};

Objects make_objects() {
  const ring::ChannelShape shape = shape_with_pinned();
  Objects objects;
  for (auto* fd :
       {&objects.fds.log, &objects.fds.control, &objects.fds.bounce, &objects.fds.pinned})
    fd->reset(memfd_create("test", MFD_CLOEXEC));
  CHECK_EQ(ring::format_channel(objects.fds.log.get(), objects.fds.control.get(),
                                objects.fds.bounce.get(), shape),
           0);
  CHECK_EQ(ftruncate(objects.fds.pinned.get(), 1 << 20), 0);
  objects.reply = {ring::kAttachMagic,
                   ring::kAttachVersion,
                   0,
                   0,
                   11,
                   22,
                   1,
                   0,
                   ring::log_object_bytes(shape),
                   ring::kControlBytes,
                   shape.bounce_bytes,
                   shape.pinned_bytes,
                   0,
                   ""};
  return objects;
}

void send_reply(int fd, const ring::AttachReply& reply, const ring::ChannelFds* fds) {
  iovec part{const_cast<ring::AttachReply*>(&reply), sizeof reply};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  if (fds) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(4 * sizeof(int));
    const int numbers[] = {fds->log.get(), fds->control.get(), fds->bounce.get(),
                           fds->pinned.get()};
    std::memcpy(CMSG_DATA(header), numbers, sizeof numbers);
  }
  CHECK_EQ(sendmsg(fd, &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof reply));
}

// Listens on an abstract name and lets `answer` serve one connection.
class Agent {
 public:
  explicit Agent(std::function<void(int fd, const std::string& request)> answer)
      : name_("pyft-attach-test-" + std::to_string(getpid()) + "-" + std::to_string(count_++)),
        listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data(), name_.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    CHECK_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    CHECK_EQ(listen(listener_.get(), 1), 0);
    thread_ = std::thread([this, answer = std::move(answer)] {
      const pyft::UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::string request(200'000, '\0');
      const ssize_t bytes = recv(fd.get(), request.data(), request.size(), 0);
      request.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
      answer(fd.get(), request);
    });
  }
  ~Agent() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  const char* name() const { return name_.c_str(); }

 private:
  static inline int count_ = 0;
  std::string name_;
  pyft::UniqueFd listener_;
  std::thread thread_;
};

bool says(const std::string& error, const char* part) {
  if (error.find(part) != std::string::npos) return true;
  std::cerr << "[" << error << "] does not say [" << part << "]\n";
  return false;
}

}  // namespace

TEST(client_gets_its_channel) {
  setenv("PYFT_ATTACH_TEST", "a value", 1);
  const Objects objects = make_objects();
  std::string seen;
  ring::ClientAttachment attachment;
  std::string error;
  {
    Agent agent([&](int fd, const std::string& request) {
      seen = request;
      send_reply(fd, objects.reply, &objects.fds);
    });
    CHECK(ring::attach_client(agent.name(), 0, &attachment, &error));
  }
  CHECK_EQ(error, std::string());
  ring::AttachRequest request{};
  std::memcpy(&request, seen.data(), sizeof request);
  CHECK_EQ(request.pid, static_cast<uint32_t>(getpid()));
  CHECK_EQ(request.environment_bytes, seen.size() - sizeof request);
  CHECK(seen.find(std::string("PYFT_ATTACH_TEST=a value\0", 25)) != std::string::npos);
  ring::Channel& channel = *attachment.channel;
  CHECK_EQ(reinterpret_cast<uint64_t>(channel.pinned()), ring::kPinnedWindowBase);
  CHECK_EQ(channel.back_pinned(0, 4096), 0);
  CHECK(channel.back_pinned(1 << 20, 4096) != 0);
  // The agent has closed its end: no wait goes on.
  const ring::ClientLiveness liveness(channel, attachment.agent.get());
  CHECK(liveness.check() == ring::WaitStatus::kAgentGone);
  // The fixed window is taken now.
  ring::ChannelFds again = channel.dup_fds();
  CHECK(!ring::Channel::map(ring::Role::kServer, 0, std::move(again), channel.sizes(), &error));
  CHECK(says(error, "File exists"));
}

// Without it the agent would notice a killed client only when its last worker ends.
TEST(a_forked_child_holds_no_connection) {
  const Objects objects = make_objects();
  ring::ClientAttachment attachment;
  std::string error;
  std::atomic<bool> ended{false};
  pid_t child = 0;
  {
    Agent agent([&](int fd, const std::string&) {
      send_reply(fd, objects.reply, &objects.fds);
      char byte;
      ended = recv(fd, &byte, 1, 0) == 0;
    });
    CHECK(ring::attach_client(agent.name(), 0, &attachment, &error));
    child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
    usleep(100'000);  // the child has dropped it by then
    attachment.agent.reset();
  }  // joins the agent's thread: it has seen the end although the child lives
  CHECK(ended.load());
  CHECK_EQ(waitpid(child, nullptr, WNOHANG), 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

namespace {

constexpr int kPipe = 3, kFirstFree = 4;

rlim_t address_space() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void limit(int resource, rlim_t most) {
  const rlimit both{most, most};
  if (setrlimit(static_cast<__rlimit_resource_t>(resource), &both)) _exit(1);
}

// What is said by a process that attaches under a limit and has no descriptor from kFirstFree on.
template <class Limit>
std::string error_under(Limit set_limit) {
  const Objects objects = make_objects();
  Agent agent([&](int fd, const std::string& request) {
    if (!request.empty()) send_reply(fd, objects.reply, &objects.fds);
  });
  int ends[2];
  CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (ends[1] != kPipe) dup2(ends[1], kPipe);
    close_range(kFirstFree, ~0u, 0);
    std::string error;
    {
      ring::ClientAttachment attachment;
      set_limit();
      const bool attached = ring::attach_client(agent.name(), 0, &attachment, &error);
      if (attached != error.empty()) error = "attached, and an error: " + error;
    }
    if (fcntl(kFirstFree, F_GETFD) >= 0) error = "a descriptor is left";
    if (error.empty()) error = "none";
    _exit(write(kPipe, error.data(), error.size()) < 0);
  }
  close(ends[1]);
  char text[1000] = {};
  CHECK(read(ends[0], text, sizeof text - 1) > 0);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return text;
}

std::string error_with(rlim_t descriptors) {
  return error_under([=] { limit(RLIMIT_NOFILE, kFirstFree + descriptors); });
}

}  // namespace

TEST(too_few_descriptors_are_named) {
  CHECK(says(error_with(0), "cannot be reached: [Too many open files]"));
  for (rlim_t free = 1; free < 5; ++free)
    CHECK(says(error_with(free), ("can take [" + std::to_string(free - 1) + "] desc").c_str()));
  CHECK_EQ(error_with(5), std::string("none"));
}

TEST(too_little_memory_is_named) {
  const std::string error = error_under([] { limit(RLIMIT_AS, address_space() + (64 << 10)); });
  CHECK(says(error, "Cannot allocate memory"));
}

// The child drops the connection although it cannot open what takes its place.
TEST(a_forked_child_without_descriptors_holds_no_connection) {
  const Objects objects = make_objects();
  int ended[2];
  CHECK_EQ(pipe2(ended, O_CLOEXEC), 0);
  Agent agent([&](int fd, const std::string&) {
    send_reply(fd, objects.reply, &objects.fds);
    char byte;
    CHECK_EQ(recv(fd, &byte, 1, 0), 0);  // the grandchild lives
    CHECK_EQ(write(ended[1], "x", 1), 1);
  });
  const pid_t child = fork();
  if (child == 0) {
    if (ended[0] != kPipe) dup2(ended[0], kPipe);
    close_range(kFirstFree, ~0u, 0);
    ring::ClientAttachment attachment;
    std::string error;
    if (!ring::attach_client(agent.name(), 0, &attachment, &error)) _exit(2);
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0 && fcntl(60, F_GETFD) < 0) continue;
    limit(RLIMIT_NOFILE, 61);
    const int number = attachment.agent.get();
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      if (fcntl(number, F_GETFD) < 0) _exit(3);
      pause();
    }
    attachment.agent.reset();
    pollfd noted{kPipe, POLLIN, 0};
    const bool seen = poll(&noted, 1, 20'000) == 1 && noted.revents & POLLIN;
    int status = 0;
    const bool lives = waitpid(grandchild, &status, WNOHANG) == 0;
    kill(grandchild, SIGKILL);
    waitpid(grandchild, nullptr, 0);
    _exit(seen && lives ? 0 : 4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
  close(ended[0]);
  close(ended[1]);
}

TEST(refusals_carry_the_agents_sentence) {
  Objects objects = make_objects();
  objects.reply.error = ENOMEM;
  std::strcpy(objects.reply.text, "the memory of channel [x] cannot be created");
  Agent agent([&](int fd, const std::string&) { send_reply(fd, objects.reply, nullptr); });
  ring::ClientAttachment attachment;
  std::string error;
  CHECK(!ring::attach_client(agent.name(), 0, &attachment, &error));
  CHECK(says(error, "the memory of channel [x] cannot be created"));
}

TEST(wrong_answers) {
  const auto attach_to = [](const std::function<void(int, const std::string&)>& answer) {
    Agent agent(answer);
    ring::ClientAttachment attachment;
    std::string error;
    CHECK(!ring::attach_client(agent.name(), 0, &attachment, &error));
    return error;
  };
  Objects objects = make_objects();
  CHECK(says(attach_to([](int, const std::string&) {}), "without an answer"));
  CHECK(says(attach_to([](int fd, const std::string&) { send(fd, "x", 1, 0); }), "[1] bytes"));
  objects.reply.version = 9;
  CHECK(says(
      attach_to([&](int fd, const std::string&) { send_reply(fd, objects.reply, &objects.fds); }),
      "version [9]"));
  objects.reply.version = ring::kAttachVersion;
  CHECK(says(attach_to([&](int fd, const std::string&) { send_reply(fd, objects.reply, nullptr); }),
             "[0] descriptors"));
  objects.reply.log_bytes += 4096;
  CHECK(says(
      attach_to([&](int fd, const std::string&) { send_reply(fd, objects.reply, &objects.fds); }),
      "smaller than the announced"));
}

// The name can be taken by any process: one that answers would get the environment, and give the
// memory.
TEST(an_agent_of_another_user_gets_nothing) {
  const Objects objects = make_objects();
  std::string request = "not called";
  ring::ClientAttachment attachment;
  std::string error;
  {
    Agent agent([&](int fd, const std::string& seen) {
      request = seen;
      if (!seen.empty()) send_reply(fd, objects.reply, &objects.fds);
    });
    is_another_user = true;
    const bool attached = ring::attach_client(agent.name(), 0, &attachment, &error);
    is_another_user = false;
    CHECK(!attached);
  }
  CHECK(request.empty());
  CHECK(!attachment.channel);
  const std::string user = std::to_string(geteuid());
  CHECK(says(error, ("the agent belongs to user [" + user + "], not to this one").c_str()));
}

TEST(no_agent) {
  ring::ClientAttachment attachment;
  std::string error;
  CHECK(!ring::attach_client("pyft-no-such-agent", 0, &attachment, &error));
  CHECK(says(error, "cannot be reached"));
  CHECK(!ring::attach_client(std::string(300, 'a').c_str(), 0, &attachment, &error));
  CHECK(says(error, "[300] bytes"));
}

TEST(environment_that_is_too_long) {
  setenv("PYFT_ATTACH_TEST", std::string(ring::kMaxEnvironmentBytes, 'x').c_str(), 1);
  Agent agent([](int, const std::string&) {});
  ring::ClientAttachment attachment;
  std::string error;
  CHECK(!ring::attach_client(agent.name(), 0, &attachment, &error));
  CHECK(says(error, "at most [122880]"));
  unsetenv("PYFT_ATTACH_TEST");
}

// In a child: this process holds the pinned window of the first test no more, but a server is a
// process of its own anyway.
TEST(server_gets_the_same_channel) {
  Objects objects = make_objects();
  int pair[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  pyft::UniqueFd agent(pair[0]);
  pyft::UniqueFd server_end(pair[1]);
  send_reply(agent.get(), objects.reply, &objects.fds);
  const pid_t child = fork();
  if (child == 0) {
    setenv("PYFT_SERVER_FD", std::to_string(server_end.release()).c_str(), 1);
    agent.reset();
    server::Attachment attachment;
    std::string error;
    if (!server::connect_agent(&attachment, &error) ||
        !server::receive_channel(&attachment, &error)) {
      std::cerr << error << "\n";
      _exit(1);
    }
    const server::ServerLiveness liveness(attachment.agent.get());
    if (liveness.check() != ring::WaitStatus::kOk) _exit(2);
    std::memcpy(attachment.channel->pinned(), "from the server", 16);
    const bool ends = comes([&] { return liveness.check() == ring::WaitStatus::kEnding; });
    _exit(attachment.client_pid == 11 && ends ? 0 : 3);
  }
  server_end.reset();
  char text[16] = {};
  CHECK(comes([&] {  // it has found the agent alive
    const ssize_t count = pread(objects.fds.pinned.get(), text, sizeof text, 0);
    return count == sizeof text && std::string(text) == "from the server";
  }));
  agent.reset();
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}

TEST(server_started_by_hand) {
  server::Attachment attachment;
  std::string error;
  unsetenv("PYFT_SERVER_FD");
  CHECK(!server::connect_agent(&attachment, &error));
  CHECK(says(error, "started by the pyft agent"));
  setenv("PYFT_SERVER_FD", "999", 1);
  CHECK(!server::connect_agent(&attachment, &error));
  CHECK(says(error, "[999]"));
}

CHECK_MAIN
