// Replies, completion words and the server loop between two threads.
#include <unistd.h>

#include <mutex>
#include <numeric>

#include "check.h"
#include "fake_device.h"
#include "fixture.h"
#include "ring/completion.h"
#include "ring/reply.h"
#include "server/watchdog.h"

using namespace fixture;
using ring::WaitStatus;

namespace {

// Answers code = value, values = {key, value}, and the first 32 bytes of the payload.
server::Status echo(server::Session& session, const ring::EntryHeader& header,
                    std::span<const std::byte> body, std::span<const std::byte> payload) {
  const Body b = body_of(body);
  const uint64_t values[] = {b.key, b.value};
  return session.reply(header, static_cast<int32_t>(b.value), values,
                       payload.first(std::min<size_t>(payload.size(), 32)));
}

}  // namespace

TEST(replies_to_many_threads) {
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  ring::Writer writer(*channel, liveness);
  ring::ReplySlots slots;
  ServerThread server(*channel, echo);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 300; ++i) {
        ring::ReplyTicket ticket(slots);
        const std::byte payload[5] = {std::byte(t), std::byte(i), {}, {}, std::byte(9)};
        const auto sent =
            writer.append(kCall, Body{t, i}, ring::kWantsReply, {}, payload, ticket.slot());
        if (ring::wait_reply(*channel, ticket.slot(), sent.seq, liveness) != WaitStatus::kOk)
          ++wrong;
        const ring::ReplySlot& reply = channel->slot(ticket.slot());
        if (reply.code != static_cast<int>(i) || reply.values[0] != t || reply.values[1] != i ||
            reply.bytes != 5 || reply.data[1] != static_cast<uint8_t>(i))
          ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
  writer.goodbye();
  CHECK(server.join() == server::Loop::End::kGoodbye);
}

TEST(order_over_threads_is_total) {
  static std::vector<Body> seen;
  seen.clear();
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  ring::Writer writer(*channel, liveness);
  {
    ServerThread server(*channel,
                        [](server::Session&, const ring::EntryHeader& header, auto body, auto) {
                          const Body b = body_of(body);
                          CHECK_EQ(header.seq, seen.size() + 1);
                          seen.push_back(b);
                          return server::Status::good();
                        });
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        const std::vector<std::byte> tail(t * 40);
        for (uint64_t i = 0; i < 2000; ++i) writer.append(kCall, Body{t, i}, 0, tail);
      });
    for (auto& thread : threads) thread.join();
    writer.goodbye();
  }
  CHECK_EQ(seen.size(), size_t{8000});
  std::array<uint64_t, 4> next{};
  for (const Body& b : seen) CHECK_EQ(b.value, next.at(b.key)++);
}

TEST(words_grow_and_wake) {
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  CHECK(ring::reached(*channel, 20, 0));
  CHECK(!ring::reached(*channel, 20, 1));
  std::thread publisher([&] {
    for (uint64_t value = 1; value <= 200; ++value) ring::publish(*channel, 20, value);
  });
  for (uint64_t value = 1; value <= 200; value += 13)
    CHECK(ring::wait_word(*channel, 20, value, liveness) == WaitStatus::kOk);
  publisher.join();
  ring::publish(*channel, 20, 5);  // never backwards
  CHECK(ring::reached(*channel, 20, 200));
  CHECK(ring::time_ns(*channel, 20) <= ring::now_ns());
}

TEST(fences_are_published_by_the_stream) {
  static std::mutex mutex;
  static std::vector<std::pair<void (*)(void*), void*>> queued;
  queued.clear();
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  ring::Writer writer(*channel, liveness);
  FakeDevice calls;
  calls.on_publish = [](void (*function)(void*), void* data) {
    std::lock_guard lock(mutex);
    queued.push_back({function, data});
    return 0;
  };
  ServerThread server(*channel, nullptr, calls);
  writer.fence(0, 30, 1);
  writer.fence(2, 31, 7);
  CHECK(writer.wait_consumed_all() == WaitStatus::kOk);
  CHECK(!ring::reached(*channel, 30, 1));
  for (auto& [function, data] : queued) function(data);
  CHECK(ring::wait_word(*channel, 30, 1, liveness) == WaitStatus::kOk);
  CHECK(ring::reached(*channel, 31, 7));
  writer.goodbye();
}

TEST(the_dispatch_thread_works_for_the_device_when_the_ring_is_empty) {
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  ring::Writer writer(*channel, liveness);
  std::mutex mutex;
  std::vector<std::pair<void (*)(void*), void*>> queued;
  FakeDevice calls;
  calls.on_publish = [&](void (*function)(void*), void* data) {
    std::lock_guard lock(mutex);
    queued.push_back({function, data});
    return 0;
  };
  calls.on_work = [&] {
    std::lock_guard lock(mutex);
    if (queued.empty()) return false;
    queued.back().first(queued.back().second);
    queued.pop_back();
    return true;
  };
  ServerThread server(*channel, nullptr, calls);
  for (uint64_t value = 1; value <= 1000; ++value) {
    writer.fence(0, 30, value);
    if (value % 3 == 0) CHECK(ring::wait_word(*channel, 30, value, liveness) == WaitStatus::kOk);
  }
  writer.goodbye();
  server.join();
}

TEST(a_failed_device_wakes_who_waits_for_it) {
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  ring::Writer writer(*channel, liveness);
  FakeDevice calls;
  calls.on_publish = [](void (*)(void*), void*) { return 0; };  // never runs it
  calls.on_status = [] { return 700; };
  ServerThread server(*channel, nullptr, calls);
  const server::Heartbeat heartbeat(server.session());
  writer.fence(0, 30, 1);
  CHECK(ring::wait_word(*channel, 30, 1, liveness) == WaitStatus::kOk);
  CHECK_EQ(channel->control().sticky_error.load(), 700);
  while (!channel->control().heartbeat_ns.load()) usleep(100);  // another thread's
  writer.goodbye();
  server.join();
}

TEST(a_failed_device_that_the_dispatch_thread_works_for_is_noticed_without_a_heartbeat) {
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  ring::Writer writer(*channel, liveness);
  FakeDevice calls;
  calls.on_publish = [](void (*)(void*), void*) { return 0; };  // never runs it
  calls.on_status = [] { return 700; };
  calls.on_work = [] { return false; };
  ServerThread server(*channel, nullptr, calls);
  writer.fence(0, 30, 1);
  CHECK(ring::wait_word(*channel, 30, 1, liveness) == WaitStatus::kOk);
  CHECK_EQ(channel->control().sticky_error.load(), 700);
  writer.goodbye();
  server.join();
}

TEST(waits_end_with_the_server) {
  auto channel = make_channel(small_shape());
  setenv("PYFT_HEARTBEAT_TIMEOUT_S", "0.2", 1);
  ring::ClientLiveness stale(*channel, -1);
  unsetenv("PYFT_HEARTBEAT_TIMEOUT_S");
  constexpr uint64_t kSecond = 1'000'000'000;
  channel->control().heartbeat_ns = ring::now_ns() - 3 * kSecond;
  CHECK(stale.check() == WaitStatus::kOk);  // the agent has time to replace it
  channel->control().heartbeat_ns = ring::now_ns() - 21 * kSecond;
  CHECK(ring::wait_word(*channel, 40, 1, stale) == WaitStatus::kHeartbeatStale);
  channel->control().heartbeat_ns = 0;
  ring::ClientLiveness liveness(*channel, -1);
  channel->control().status = static_cast<uint32_t>(ring::ChannelStatus::kAgentEnding);
  CHECK(ring::wait_word(*channel, 40, 1, liveness) == WaitStatus::kAgentGone);
  CHECK(ring::wait_reply(*channel, 3, 1, liveness) == WaitStatus::kAgentGone);
}

// Without a server: what is in the words is what it would have seen.
TEST(a_napping_server_is_woken_by_who_waits_and_not_by_who_writes) {
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  ring::Writer writer(*channel, liveness);
  ring::ControlPage& page = channel->control();
  const auto sleep = [&page](ring::ServerSleep how) {
    page.doorbell = 0;
    page.server_sleeping = static_cast<uint32_t>(how);
  };
  const auto write = [&writer] { writer.append(kCall, Body{0, 0}); };
  sleep(ring::ServerSleep::kNapping);
  write();
  CHECK_EQ(page.doorbell.load(), 0u);
  liveness.hurry();
  CHECK_EQ(page.doorbell.load(), 1u);
  CHECK_EQ(page.server_sleeping.load(), static_cast<uint32_t>(ring::ServerSleep::kAwake));
  liveness.hurry();  // awake
  CHECK_EQ(page.doorbell.load(), 1u);
  sleep(ring::ServerSleep::kAsleep);
  write();
  write();
  CHECK_EQ(page.doorbell.load(), 1u);
}

TEST(work_that_nobody_waits_for_is_done_by_a_server_that_naps_or_sleeps) {
  auto channel = make_channel(small_shape());
  ring::ClientLiveness liveness(*channel, -1);
  ring::Writer writer(*channel, liveness);
  static std::atomic<int> done;
  done = 0;
  ServerThread server(*channel, [](server::Session&, const ring::EntryHeader&,
                                   std::span<const std::byte>, std::span<const std::byte>) {
    ++done;
    return server::Status::good();
  });
  // Pauses from less than a nap to more than all of them.
  for (int i = 1; i <= 40; ++i) {
    writer.append(kCall, Body{0, 0});
    while (done.load() < i) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(25 * i));
  }
  writer.goodbye();
  CHECK(server.join() == server::Loop::End::kGoodbye);
}

TEST(handles) {
  server::HandleTable table;
  int a = 0, b = 0;
  const auto one = pyft::Handle::make(pyft::HandleKind::kStream, 7, 1);
  const auto two = pyft::Handle::make(pyft::HandleKind::kStream, 7, 2);
  CHECK(table.bind(one, &a));
  CHECK(!table.bind(two, &b));  // index in use
  CHECK(!table.bind(pyft::Handle::make(pyft::HandleKind::kStream, 0, 1), &b));
  CHECK(!table.bind(pyft::Handle::make(pyft::HandleKind::kStream, 0x7fffffff, 1), &b));
  CHECK(table.find(two) == nullptr);
  CHECK(table.unbind(one) == &a);
  CHECK(table.find(one) == nullptr);
  CHECK(table.bind(two, &b));
  CHECK(table.find(one) == nullptr);
  CHECK(table.find(two) == &b);
}

CHECK_MAIN
