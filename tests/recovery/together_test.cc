// Snapshots of ranks that go back together: all have to hold the same cut.
#include <chrono>
#include <functional>
#include <thread>

#include "recovery/server.h"
#include "ring/forced_cut.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

// A server of ranks that all have to hold the same cut, and what the agent answers.
struct TogetherServer : HeldServer {
  explicit TogetherServer(Bench& bench) : HeldServer(bench) {
    calls.request_decision = [this](uint64_t name) {
      decision_requests.push_back(name);
      (is_line ? agreed : aborted) = name;
    };
    restart(options());
    store->header().compares = 2;
  }
  checkpoint::SnapshotOptions options() const {
    checkpoint::SnapshotOptions options;
    options.drain_timeout_ns = options.hold_ns = 1'000'000;
    options.every = 1;
    options.late = checkpoint::Late::kNever;
    options.agreed = &agreed;
    options.aborted = &aborted;
    return options;
  }
  // The log is full: the client waits until this is decided.
  void take_full(uint64_t number) { take_at(number, number * 100, ring::kFull); }
  void take_at(uint64_t number, uint64_t position, uint8_t forced = 0) {
    const ring::CutMark mark{number, 0, 0, forced, 0, 0, static_cast<uint32_t>(number)};
    ring::EntryHeader header{};
    header.seq = number * 10;
    snapshotter->take(header, mark, {}, position);
  }
  // A step's cut that is the line of all.
  void line_at(uint64_t number, uint64_t position) {
    take_at(number, position);
    agreed = number;
    snapshotter->poll();
    CHECK_EQ(channel.control().snapshot_cut.load(), number);
  }
  std::atomic<uint64_t> aborted{0};
  // The program's memory takes so long to copy.
  void slow_down(std::chrono::milliseconds by) {
    calls.view = [look = calls.view, by](uint64_t address, uint64_t bytes) {
      std::this_thread::sleep_for(by);
      return look(address, bytes);
    };
    restart(options());
    store->header().compares = 2;
  }
  bool is_line = false;
  std::vector<uint64_t> decision_requests;
};

TEST(a_cut_for_want_of_space_may_be_the_line_of_all) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  TogetherServer server(bench);
  const ring::ControlPage& page = bench.channel->control();
  server.take_full(1);
  CHECK(server.told.size() == 1 && server.told[0].second);
  CHECK_EQ(page.decided_cut.load(), 0u);  // the client waits
  server.agreed = 1;
  server.snapshotter->poll();
  CHECK_EQ(page.snapshot_cut.load(), 1u);
  CHECK(server.decision_requests.empty());
  // No other rank comes there: the client does not wait for ever.
  bench.memory.blocks[0][5] ^= std::byte{5};
  server.take_full(2);
  CHECK_EQ(page.decided_cut.load(), 1u);
  for (int look = 0; look < 10'000 && page.decided_cut < 2; ++look) {
    usleep(1'000);
    server.snapshotter->poll();
  }
  CHECK_EQ(page.decided_cut.load(), 2u);
  CHECK_EQ(page.snapshot_cut.load(), 1u);
  CHECK_EQ(server.decision_requests.size(), 1u);
}

TEST(a_log_that_is_full_waits_for_the_cut_that_is_held) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  TogetherServer server(bench);
  const ring::ControlPage& page = bench.channel->control();
  server.take(1);
  CHECK_EQ(page.decided_cut.load(), 0u);
  server.is_line = true;
  server.take_full(2);
  CHECK_EQ(page.snapshot_cut.load(), 1u);  // which makes room
  CHECK_EQ(page.decided_cut.load(), 2u);
  // If it can be none any more, the new one may be. Half full is no reason to wait.
  bench.memory.blocks[0][5] ^= std::byte{5};
  server.take(3);
  server.take(4, {}, true);
  CHECK_EQ(page.decided_cut.load(), 4u);
  CHECK_EQ(server.told.back().first, 3u);
  server.is_line = false;
  server.take_full(5);
  CHECK_EQ(server.told.back().first, 5u);
  CHECK_EQ(page.snapshot_cut.load(), 1u);
  server.agreed = 5;
  server.snapshotter->poll();
  CHECK_EQ(page.snapshot_cut.load(), 5u);
}

// All snapshots of this file together with what the log holds: 64 KiB.
constexpr uint64_t kStep = 30'000;

TEST(no_cut_is_made_in_the_middle_of_a_step_that_fits_the_log) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  TogetherServer server(bench);
  const ring::ControlPage& page = bench.channel->control();
  server.take_at(1, kStep, ring::kHalfFull);  // before the first step: the log is whole
  CHECK_EQ(page.decided_cut.load(), 1u);
  CHECK(server.told.empty());
  server.line_at(2, kStep + 3000);
  server.line_at(3, 2 * kStep + 3000);
  bench.memory.blocks[0][5] ^= std::byte{5};
  server.take_at(4, 3 * kStep + 2900, ring::kHalfFull);
  CHECK_EQ(server.told.back().first, 3u);
  CHECK_EQ(page.decided_cut.load(), 4u);  // the program goes on, and its log stays
  CHECK_EQ(page.snapshot_cut.load(), 3u);
  server.line_at(5, 3 * kStep + 3000);
}

TEST(before_the_first_step_three_quarters_of_the_log_are_enough) {
  constexpr uint64_t kEnough = 3 * (64 << 10) / 4;
  Bench bench;
  bench.memory.allocate(10'000, 1);
  TogetherServer server(bench);
  server.take_at(1, kEnough, ring::kHalfFull);
  CHECK(server.told.empty());
  server.take_at(2, kEnough + 1, ring::kHalfFull);
  CHECK_EQ(server.told.size(), 1u);
}

TEST(a_cut_is_made_in_the_middle_of_a_step_that_does_not_fit) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  TogetherServer server(bench);
  server.line_at(1, 3000);
  server.line_at(2, 3000 + 70'000);  // more than there is, so it had one as well
  server.take_at(3, 3000 + 110'000, ring::kHalfFull);
  CHECK_EQ(server.told.back().first, 3u);
  server.agreed = 3;
  server.snapshotter->poll();
  // Long after the last step: what runs now has none.
  TogetherServer other(bench);
  other.line_at(4, 200'000);
  other.line_at(5, 210'000);
  other.take_at(6, 210'000 + 40'000, ring::kHalfFull);
  CHECK_EQ(other.told.back().first, 6u);
}

// Other ranks come to a step's cut as well. One for want of space is in its way.
TEST(a_cut_for_want_of_space_makes_way_for_that_of_a_step) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  TogetherServer server(bench);
  server.take_full(1);
  server.take(2);
  CHECK(server.decision_requests == std::vector<uint64_t>{1});
  CHECK(server.told.back().first == 2 && server.told.back().second);
  server.agreed = 2;
  server.snapshotter->poll();
  CHECK_EQ(bench.channel->control().snapshot_cut.load(), 2u);
}

// After so many looks at the device something happens: longer than anything is waited for that does
// not depend on what copies have taken, 1 ms.
constexpr int kLooks = 40;
constexpr std::chrono::milliseconds kSlow{300};

TEST(a_log_that_is_full_waits_as_long_as_others_may_copy) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  TogetherServer server(bench);
  server.slow_down(kSlow);
  server.take(1);
  int looks = 0;
  server.calls.work = [&] {
    if (++looks == kLooks) server.agreed = 1;
    return false;
  };
  server.take_full(2);
  CHECK(server.decision_requests.empty());
  CHECK_EQ(looks, kLooks);
  CHECK_EQ(bench.channel->control().snapshot_cut.load(), 1u);
  CHECK_EQ(bench.channel->control().decided_cut.load(), 2u);
}

TEST(the_next_step_waits_for_the_line_before_it) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  TogetherServer server(bench);
  server.slow_down(kSlow);
  server.take(1);
  int looks = 0;
  server.calls.work = [&] {
    if (++looks == kLooks) server.agreed = 1;
    return false;
  };
  server.take(2);
  CHECK_EQ(bench.channel->control().snapshot_cut.load(), 1u);
  CHECK(server.told.back().first == 2 && server.told.back().second);  // not left out
}

TEST(a_cut_whose_streams_wait_for_a_rank_that_copies_is_made) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  TogetherServer server(bench);
  server.slow_down(kSlow);
  server.line_at(1, 100);
  int looks = 0;
  server.calls.idle = [&] { return ++looks < kLooks ? 600 : 0; };
  server.line_at(2, 200);
  CHECK_EQ(server.store->header().cancelled.load(), 0u);
}

}  // namespace

CHECK_MAIN
