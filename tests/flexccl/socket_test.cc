// Steps of set-up that would wait for ever: each ends at its deadline, or when another thread ends
// it; a link to a process that has stopped is given up when its communicator is aborted or
// repaired.
#include "transport/socket.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/key.h"
#include "check.h"
#include "flexccl.h"
#include "transport/endpoint.h"

namespace {

using flexccl::Fd;
using flexccl::in_ms;
using flexccl::WaitUntil;

struct Ended {};

// The sentence with which it ends; "ended" when a look did it.
template <class Step>
std::string sentence_of(Step step) {
  const auto start = std::chrono::steady_clock::now();
  std::string sentence = "it succeeded";
  try {
    step();
  } catch (const flexccl::Error& error) {
    sentence = error.what();
  } catch (const Ended&) {
    sentence = "ended";
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(9));
  return sentence;
}

bool has(const std::string& text, const char* part) {
  if (text.find(part) != std::string::npos) return true;
  std::cerr << "[" << part << "] is not in: " << text << "\n";
  return false;
}

struct Pair {
  Pair() {
    int fds[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ours = Fd(fds[0]), theirs = Fd(fds[1]);
  }
  Fd ours, theirs;
};

// Another thread ends the wait 50 ms from now.
WaitUntil ended_soon() {
  const auto when = in_ms(50);
  return {in_ms(60000), [when] {
            if (std::chrono::steady_clock::now() > when) throw Ended();
          }};
}

// A process that is rank 1 of 2 and stops, with a communicator that it has not used yet. To be made
// before this process has threads, as it is a fork of it.
struct Stopped {
  explicit Stopped(flexcclTransport_t transport) {
    Pair pair;
    flexcclSetTransport(transport);
    flexcclSetTimeout(60000);
    flexcclSetRepair(60000);
    pid = fork();
    if (pid == 0) stop_as_rank_1(pair.theirs.get());
    ours = std::move(pair.ours);
  }
  // The other rank. Afterwards the process has stopped.
  ncclComm_t join() {
    ncclUniqueId id;
    flexccl::receive_all(ours.get(), &id, sizeof id, in_ms(9000), "the id");
    ncclComm_t comm = nullptr;
    CHECK_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclSuccess);
    flexccl::send_all(ours.get(), "", 1);
    int status = 0;
    CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
    CHECK(WIFSTOPPED(status));
    return comm;
  }
  [[noreturn]] static void stop_as_rank_1(int socket) {
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    char both_are_there;
    if (ncclGetUniqueId(&id) == ncclSuccess) {
      flexccl::send_all(socket, &id, sizeof id);
      if (ncclCommInitRank(&comm, 2, id, 1) == ncclSuccess)
        flexccl::receive_all(socket, &both_are_there, 1, in_ms(9000), "a word");
      raise(SIGSTOP);
    }
    _exit(1);
  }
  ~Stopped() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  pid_t pid = -1;
  Fd ours;
};

// Begins an operation that cannot connect, and ends it after a while. How long the end took.
template <class End>
std::chrono::steady_clock::duration end_while_connecting(ncclComm_t comm, int* value, End end) {
  CHECK_EQ(ncclAllReduce(value, value, 1, ncclInt32, ncclSum, comm, nullptr), ncclSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto start = std::chrono::steady_clock::now();
  end();
  return std::chrono::steady_clock::now() - start;
}

}  // namespace

// The first test: it forks.
TEST(links_to_stopped_processes_are_given_up) {
  Stopped of_shm(flexcclShm), of_tcp(flexcclTcp), replaced(flexcclShm);
  for (Stopped* peer : {&of_shm, &of_tcp}) {
    flexcclSetTransport(peer == &of_tcp ? flexcclTcp : flexcclShm);
    const ncclComm_t comm = peer->join();
    int value = 1;
    CHECK(end_while_connecting(comm, &value, [&] { ncclCommAbort(comm); }) <
          std::chrono::seconds(9));
  }
  const ncclComm_t comm = replaced.join();
  int value = 5;
  const auto took = end_while_connecting(comm, &value, [&] {
    CHECK_EQ(ncclRemoveNode(comm, 1), ncclSuccess);
    CHECK_EQ(flexcclSynchronize(comm), ncclSuccess);
  });
  CHECK(took < std::chrono::seconds(9));
  CHECK_EQ(value, 5);
  CHECK_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(what_nobody_takes_is_not_sent_for_ever) {
  const std::vector<char> much(8 << 20);
  for (const bool by_deadline : {true, false}) {
    Pair pair;
    const std::string sentence = sentence_of([&] {
      flexccl::send_all(pair.ours.get(), much.data(), much.size(), {},
                        by_deadline ? WaitUntil(in_ms(50)) : ended_soon());
    });
    CHECK(by_deadline ? has(sentence, "it takes nothing; [") : has(sentence, "ended"));
  }
}

TEST(what_is_taken_slowly_arrives) {
  Pair pair;
  const std::vector<char> much(8 << 20, 'x');
  std::vector<char> arrived(much.size());
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    flexccl::receive_all(pair.theirs.get(), arrived.data(), arrived.size(), in_ms(9000), "it");
  });
  flexccl::send_all(pair.ours.get(), much.data(), much.size());
  reader.join();
  CHECK(arrived == much);
}

TEST(what_does_not_come_is_not_awaited_for_ever) {
  for (const bool by_deadline : {true, false}) {
    Pair pair;
    char byte;
    const std::string sentence = sentence_of([&] {
      flexccl::receive_all(pair.ours.get(), &byte, 1,
                           by_deadline ? WaitUntil(in_ms(50)) : ended_soon(), "a byte");
    });
    CHECK(by_deadline ? has(sentence, "waiting for a byte took too long") : has(sentence, "ended"));
  }
}

TEST(a_full_listener_is_not_awaited_for_ever) {
  const flexccl::Bytes16 name = flexccl::random_bytes16();
  const Fd listener = flexccl::listen_unix(name);
  CHECK_EQ(listen(listener.get(), 0), 0);  // room for one caller
  const Fd first = flexccl::connect_unix(name);
  CHECK(has(sentence_of([&] { flexccl::connect_unix(name, in_ms(50)); }), "failed with error ["));
  CHECK(has(sentence_of([&] { flexccl::connect_unix(name, ended_soon()); }), "ended"));
  std::thread server([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const Fd taken(accept(listener.get(), nullptr, nullptr));
    CHECK(bool(taken));
  });
  const Fd second = flexccl::connect_unix(name);
  CHECK(bool(second));
  server.join();
  CHECK(has(sentence_of([&] { flexccl::connect_unix(flexccl::random_bytes16()); }),
            "failed with error [Connection refused]"));
}

// The other side makes its communicator later; meanwhile the attempt can be left alone.
TEST(a_link_is_waited_for_in_pieces) {
  auto& endpoint = flexccl::Endpoint::process();
  const flexccl::Key key{flexccl::random_bytes16()};
  endpoint.learn_key(key);
  for (const auto transport : {flexcclShm, flexcclTcp}) {
    const flexccl::InboxName name{flexccl::random64(), 0, 0};
    const flexccl::Doorbell bell;
    const auto attempt =
        endpoint.connect(endpoint.address(), {name, 1, transport, key, in_ms(9000)}, bell);
    CHECK(!attempt->wait(std::chrono::milliseconds(20)));
    CHECK(!attempt->wait(std::chrono::milliseconds(0)));
    const auto inbox = std::make_shared<flexccl::Inbox>(fingerprint(key));
    endpoint.add(name, inbox);
    std::unique_ptr<flexccl::Outbound> link;
    for (int i = 0; i < 400 && !link; ++i) link = attempt->wait(std::chrono::milliseconds(20));
    CHECK(bool(link));
    CHECK(inbox->find(1) != nullptr);
    endpoint.remove(name, inbox);
  }
}

CHECK_MAIN
