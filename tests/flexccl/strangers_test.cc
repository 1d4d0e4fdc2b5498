// Callers that say nothing, of this user and of another one, while descriptors are few.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/key.h"
#include "check.h"
#include "rendezvous/root.h"
#include "transport/endpoint.h"

using flexccl::Challenge;
using flexccl::Endpoint;
using flexccl::Fd;
using flexccl::in_ms;

namespace {

constexpr unsigned kFew = 256;  // descriptors
constexpr int kFlood = 2000;    // connections: more than a listener's queue has room for
constexpr uid_t kNobody = 65534;

int descriptors() {
  int count = 0;
  for (int fd = 0; fd < static_cast<int>(kFew); ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

void limit_descriptors(rlim_t few) {
  rlimit limit{};
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = few;
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// A process that opens connections and keeps them. It ends with this object.
class Crowd {
 public:
  Crowd() { CHECK_EQ(pipe2(ready_, O_CLOEXEC), 0); }
  template <class Connect>
  Crowd(int count, uid_t user, Connect connect, bool without_end = false) : Crowd() {
    come(count, user, connect, without_end);
  }
  // Takes no descriptor.
  template <class Connect>
  void come(int count, uid_t user, Connect connect, bool without_end = false) {
    child_ = fork();
    if (child_ == 0) {
      limit_descriptors(4096);
      if (user && setuid(user)) _exit(1);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::vector<Fd> held;
      for (int i = 0; i < count; ++i) held.push_back(connect());
      if (write(ready_[1], "x", 1) != 1) _exit(1);
      for (std::size_t i = 0; without_end; i = (i + 1) % held.size()) {
        held[i] = connect();
        usleep(500);  // each one stays for a second, silent
      }
      for (;;) pause();
    }
    char byte;
    CHECK_EQ(read(ready_[0], &byte, 1), 1);
  }
  ~Crowd() {
    close(ready_[0]);
    close(ready_[1]);
    if (child_ < 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

 private:
  int ready_[2];
  pid_t child_ = -1;
};

// Not blocking: the listener's queue may be full.
Fd knock(std::uint32_t ipv4, std::uint16_t port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ipv4;
  address.sin_port = port;
  connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  return fd;
}

bool is_greeted(int socket) {
  Challenge challenge;
  try {
    flexccl::receive_all(socket, &challenge, sizeof challenge, in_ms(20'000), "its challenge");
  } catch (const std::exception&) {
    return false;
  }
  return challenge.magic == flexccl::kMagic;
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

// Callers that have ended may still wait in a listener's queue: those are taken, and forgotten.
void wait_until_forgotten(int most) {
  const auto deadline = in_ms(20'000);
  while (descriptors() > most && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(descriptors() <= most);
}

}  // namespace

TEST(silent_callers_leave_descriptors_and_room) {
  limit_descriptors(kFew);
  const auto address = Endpoint::process().address();
  const int before = descriptors() + 2;  // the crowd's
  {
    const Crowd crowd(300, 0, [&] { return knock(address.ipv4, address.port); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(descriptors() <= before + static_cast<int>(kFew / 8));
    const Fd caller = flexccl::connect_tcp(address.ipv4, address.port, in_ms(20'000));
    CHECK(is_greeted(caller.get()));
    const Fd neighbour = flexccl::connect_unix(address.process, in_ms(20'000));
    CHECK(is_greeted(neighbour.get()));
  }
  wait_until_forgotten(before);
}

// A flood of the port without end leaves neighbours their room at the other listener.
TEST(a_flood_of_the_port_keeps_no_neighbour_out) {
  limit_descriptors(kFew);
  const auto address = Endpoint::process().address();
  const int before = descriptors();
  {
    const Crowd crowd(kFlood, 0, [&] { return knock(address.ipv4, address.port); }, true);
    for (int i = 0; i < 5; ++i) {
      const Fd neighbour = flexccl::connect_unix(address.process, in_ms(20'000));
      CHECK(is_greeted(neighbour.get()));
    }
  }
  wait_until_forgotten(before);
}

TEST(another_user_is_turned_away_at_the_unix_socket) {
  if (geteuid() != 0) {
    std::printf("left out: only root can become another user\n");
    return;
  }
  const auto name = Endpoint::process().address().process;
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(kNobody)) _exit(3);
    const Fd caller = flexccl::connect_unix(name, in_ms(20'000));
    _exit(is_greeted(caller.get()) ? 2 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
  const int before = descriptors() + 2;
  const Crowd crowd(300, kNobody, [&] { return flexccl::connect_unix(name, in_ms(20'000)); });
  CHECK(descriptors() <= before + 1);
  const Fd caller = flexccl::connect_unix(name, in_ms(20'000));
  CHECK(is_greeted(caller.get()));
}

TEST(without_descriptors_it_goes_on_and_does_not_spin) {
  const auto address = Endpoint::process().address();
  Crowd crowd;
  Fd last(open("/dev/null", O_RDONLY | O_CLOEXEC));  // all lower numbers are taken
  const auto none = static_cast<rlim_t>(last.get());
  last = Fd();
  limit_descriptors(none);
  const double before = processor_seconds();
  crowd.come(300, 0, [&] { return knock(address.ipv4, address.port); });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(processor_seconds() - before < 0.25);
  limit_descriptors(kFew);
  const Fd caller = flexccl::connect_tcp(address.ipv4, address.port, in_ms(20'000));
  CHECK(is_greeted(caller.get()));
}

TEST(a_rendezvous_keeps_its_room_as_well) {
  limit_descriptors(kFew);
  std::uint16_t port = 0;
  const std::uint32_t ipv4 = htonl(INADDR_LOOPBACK);
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  flexccl::rendezvous::Root root(flexccl::listen_tcp(ipv4, &port), {flexccl::random_bytes16()},
                                 in_ms(60'000), ended);
  std::thread thread([&] { root.run(); });
  const int before = descriptors() + 2;
  {
    const Crowd crowd(300, 0, [&] { return knock(ipv4, port); });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    CHECK(descriptors() <= before + static_cast<int>(kFew / 8));
    const Fd caller = flexccl::connect_tcp(ipv4, port, in_ms(20'000));
    CHECK(is_greeted(caller.get()));
  }
  *ended = true;
  thread.join();
}

CHECK_MAIN
