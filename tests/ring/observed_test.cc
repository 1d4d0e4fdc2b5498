// OBSERVED marks and servers that follow another one: what the client has seen of the earlier
// server's words holds before the next entries run, in the replay and behind it.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>

#include "check.h"
#include "fixture.h"

using namespace fixture;

namespace {

constexpr uint32_t kWord = 17;
constexpr uint64_t kValue = 1;

// Comes to what its stream was given when it is told to.
struct SlowDevice : server::DeviceCalls {
  int signal(void*, void (*function)(void*), void* data) override {
    const std::lock_guard lock(mutex);
    given.emplace_back([=] { function(data); });
    return 0;
  }
  bool get_on() {
    const std::lock_guard lock(mutex);
    for (const auto& one : given) one();
    return !std::exchange(given, {}).empty();
  }
  std::mutex mutex;
  std::vector<std::function<void()>> given;
};

std::atomic<bool> executed, was_so;

// The entry behind the mark: it relies on the word.
using Bytes = std::span<const std::byte>;
server::Status dependent(server::Session& session, const ring::EntryHeader&, Bytes, Bytes) {
  was_so = session.recovery().words().holds(kWord, kValue);
  executed = true;
  return server::Status::good();
}

// Fence, mark, entry; an earlier server has said that it dispatched so many of them. Returns how
// the new one, which starts at the first, has ended.
server::Loop::End follow(uint64_t dispatched, uint32_t word = kWord) {
  const auto client = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*client, alive);
  const auto appended = [&] { return client->log().appended.load(); };
  uint64_t ends[4] = {appended()};
  writer.fence(0, kWord, kValue);
  ends[1] = appended();
  writer.observed(word, 0, kValue);
  ends[2] = appended();
  writer.append(kCall, Body{});
  ends[3] = appended();
  writer.goodbye();
  client->control().consumed = ends[dispatched];
  SlowDevice device;
  executed = was_so = false;
  const auto mapped = server_side(*client);
  server::Session session(*mapped, nullptr, alive, device);
  server::Loop::End end{};
  std::thread thread([&] { end = server::Loop(session, dependent, 0).run(); });
  // Late, so that a loop that does not wait is ahead of it.
  do std::this_thread::sleep_for(std::chrono::milliseconds(50));
  while (!device.get_on());
  thread.join();
  return end;
}

std::vector<uint64_t> keys;  // of what was executed

server::Status note(server::Session&, const ring::EntryHeader&, Bytes body, Bytes) {
  keys.push_back(body_of(body).key);
  return server::Status::good();
}

server::Status refuse(server::Session& session, const ring::EntryHeader& header, Bytes, Bytes) {
  return session.reply(header, 2);
}

// The exit code of a server that follows another one, and refuses the only entry, whose answer is
// gone: the slot is another call's by now.
int refusal(uint16_t flags, bool refused_before) {
  const auto client = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*client, alive);
  const uint64_t seq = writer.append(kCall, Body{}, flags | ring::kWantsReply, {}, {}, 0).seq;
  if (refused_before) writer.forget_creation(seq);
  client->slot(0).done_seq = 100;
  client->control().consumed = client->log().appended.load();
  writer.goodbye();
  const pid_t child = fork();
  if (child == 0) {
    const auto mapped = server_side(*client);
    server::Session session(*mapped, nullptr, alive);
    server::Loop(session, refuse, 0).run();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

}  // namespace

TEST(what_was_made_must_be_made_again) {
  CHECK_EQ(refusal(ring::kCreates, false), ring::kUnrecoverableExit);
  CHECK_EQ(refusal(ring::kCreates, true), 0);
  CHECK_EQ(refusal(0, false), 0);  // a question
  CHECK_EQ(refusal(ring::kCreates | ring::kStreamCaptured, false), 0);
}

TEST(what_was_refused_is_not_repeated) {
  const auto client = make_channel(small_shape());
  AlwaysAlive alive;
  ring::Writer writer(*client, alive);
  writer.append(kCall, Body{1, 0}, ring::kCreates);
  writer.forget_creation(writer.append(kCall, Body{2, 0}, ring::kCreates).seq);
  writer.append(kCall, Body{3, 0}, ring::kCreates);
  client->control().consumed = client->log().appended.load();
  writer.goodbye();
  const auto mapped = server_side(*client);
  server::Session session(*mapped, nullptr, alive);
  CHECK(server::Loop(session, note, 0).run() == server::Loop::End::kGoodbye);
  CHECK(keys == (std::vector<uint64_t>{1, 3}));
}

TEST(the_next_entry_waits_wherever_the_earlier_server_ended) {
  // 1: the client has seen the word, and appends the mark when the new server has gone live.
  for (const uint64_t dispatched : {1u, 2u, 3u}) {
    CHECK(follow(dispatched) == server::Loop::End::kGoodbye);
    CHECK(executed && was_so);
  }
}

TEST(a_word_out_of_range_is_refused) {
  CHECK(follow(1, ring::kCompletionWords) == server::Loop::End::kProtocolError);
  CHECK(!executed);
}

TEST(a_first_server_does_not_wait) {
  pyft::checkpoint::WordProgress words(false);
  words.sent(kWord, kValue);
  CHECK(words.holds(kWord, kValue));
}

TEST(what_was_published_before_the_cut_holds) {
  pyft::checkpoint::WordProgress words(true);
  CHECK(words.holds(kWord, 7));
  words.sent(kWord, 8);
  words.sent(kWord, 9);
  CHECK(words.holds(kWord, 7));  // without anything that stands behind the mark
  CHECK(!words.holds(kWord, 8));
  words.reached(kWord, 8);
  CHECK(words.holds(kWord, 8) && !words.holds(kWord, 9));
  words.reached(kWord, 9);
  words.reached(kWord, 8);  // another thread comes late
  CHECK(words.holds(kWord, 9));
}

CHECK_MAIN
