// A hold: the client stands still behind the cut of a step until it is released or its time is
// over.
#include "ring/hold.h"

#include "check.h"
#include "fixture.h"

using namespace fixture;
using ring::WaitStatus;

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

struct Client {
  std::unique_ptr<ring::Channel> channel = make_channel(small_shape());
  ring::ClientLiveness liveness{*channel, -1};
  ring::Writer writer{*channel, liveness};

  Client() { page().protect = static_cast<uint32_t>(ring::Protect::kSnapshot); }
  ring::ControlPage& page() { return channel->control(); }
  void want(uint64_t step, uint64_t for_ns) {
    page().hold_until_ns = ring::now_ns() + for_ns;
    page().hold_step = step;
  }
  void release() {
    page().hold_step = 0;
    page().hold_futex.fetch_add(1);
    ring::futex_wake(page().hold_futex);
  }
};

}  // namespace

TEST(a_client_is_held_at_its_step_only) {
  Client client;
  CHECK(!client.writer.begin_hold());
  client.want(2, kSecondNs);
  CHECK(client.writer.cut().seq > 0);
  CHECK(!client.writer.begin_hold());
  CHECK(client.writer.cut().seq > 0);
  CHECK(client.writer.begin_hold());
  CHECK_EQ(client.page().steps.load(), 2U);
  CHECK_EQ(client.page().held_step.load(), 2U);
  CHECK_EQ(client.page().held_cut.load(), 2U);
  CHECK_EQ(client.page().held_position.load(), client.channel->log().appended.load());
}

TEST(it_goes_on_when_it_is_released) {
  Client client;
  client.want(1, 60 * kSecondNs);
  CHECK(client.writer.cut().seq > 0);
  CHECK(client.writer.begin_hold());
  const uint64_t begin = ring::now_ns();
  std::thread agent([&] {
    usleep(20'000);
    client.release();
  });
  CHECK(ring::end_hold(client.page(), client.liveness) == WaitStatus::kOk);
  agent.join();
  CHECK_EQ(client.page().held_step.load(), 0U);
  CHECK(ring::now_ns() - begin < 10 * kSecondNs);
  CHECK(client.page().went_on_ns.load() >= begin);
}

TEST(an_agent_that_has_died_holds_nobody) {
  Client client;
  client.want(1, kSecondNs / 20);
  CHECK(client.writer.cut().seq > 0);
  CHECK(client.writer.begin_hold());
  CHECK(ring::end_hold(client.page(), client.liveness) == WaitStatus::kOk);
  CHECK_EQ(client.page().held_step.load(), 0U);
  client.want(2, 0);  // its time is over before it begins
  CHECK(client.writer.cut().seq > 0);
  CHECK(!client.writer.begin_hold());
}

TEST(a_dead_server_ends_a_hold) {
  Client client;
  client.want(1, 60 * kSecondNs);
  CHECK(client.writer.cut().seq > 0);
  CHECK(client.writer.begin_hold());
  client.page().status = static_cast<uint32_t>(ring::ChannelStatus::kServerDead);
  CHECK(ring::end_hold(client.page(), client.liveness) == WaitStatus::kServerDead);
}

TEST(a_held_cut_is_never_passed_over) {
  Client client;
  client.page().cut_every = 8;
  client.page().snapshot_cut = 1;
  CHECK(!client.writer.next_cut_counts());
  client.want(1, kSecondNs);
  CHECK(client.writer.next_cut_counts());
}

TEST(nothing_is_held_where_nothing_is_snapshotted) {
  Client client;
  client.page().protect = static_cast<uint32_t>(ring::Protect::kNone);
  client.want(1, kSecondNs);
  CHECK(client.writer.cut().seq > 0);
  CHECK(!client.writer.begin_hold());
}

CHECK_MAIN
