// Steps of set-up that would wait for ever: each ends at its deadline, or when somebody ends it.
#include "transport/socket.h"

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "core/error.h"
#include "core/key.h"

namespace {

using flexccl::Fd;
using flexccl::in_ms;
using flexccl::Patience;

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

// Somebody ends the wait 50 ms from now.
Patience ended_soon() {
  const auto when = in_ms(50);
  return {in_ms(60000), [when] {
            if (std::chrono::steady_clock::now() > when) throw Ended();
          }};
}

}  // namespace

TEST(what_nobody_takes_is_not_sent_for_ever) {
  const std::vector<char> much(8 << 20);
  for (const bool by_deadline : {true, false}) {
    Pair pair;
    const std::string sentence = sentence_of([&] {
      flexccl::send_all(pair.ours.get(), much.data(), much.size(), {},
                        by_deadline ? Patience(in_ms(50)) : ended_soon());
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
                           by_deadline ? Patience(in_ms(50)) : ended_soon(), "a byte");
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

CHECK_MAIN
