// Snapshots at cuts and what comes back of them, with a device that is this process's memory.
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "check.h"
#include "checkpoint/resources/device_memory.h"
#include "fuzz.h"
#include "pyft/fault.h"
#include "recovery/server.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

std::vector<std::byte> scope_of(const std::vector<ring::AllocMark>& pools,
                                const std::vector<ring::AllocMark>& blocks,
                                const std::vector<uint64_t>& since = {}) {
  const ring::CutScope head{pools.size(), blocks.size()};
  const size_t marks = (pools.size() + blocks.size()) * sizeof pools[0];
  std::vector<std::byte> bytes(sizeof head + marks + since.size() * sizeof since[0]);
  std::memcpy(bytes.data(), &head, sizeof head);
  std::byte* at = bytes.data() + sizeof head;
  if (!pools.empty()) std::memcpy(at, pools.data(), pools.size() * sizeof pools[0]);
  at += pools.size() * sizeof pools[0];
  if (!blocks.empty()) std::memcpy(at, blocks.data(), blocks.size() * sizeof blocks[0]);
  at += blocks.size() * sizeof pools[0];
  if (!since.empty()) std::memcpy(at, since.data(), since.size() * sizeof since[0]);
  return bytes;
}

TEST(what_a_cut_snapshotted_comes_back) {
  for (const bool views : {true, false}) {
    Bench bench;
    const uint64_t first = bench.memory.allocate(100'000, 1);
    bench.memory.allocate(9'000'000, 2);  // more than one piece
    auto& blocks = bench.memory.blocks;
    {
      Server server(*bench.channel, bench.object, bench.memory, views);
      CHECK(server.cut(1));
      blocks[0][50] = std::byte{42};
      blocks[1][8'000'000] = std::byte{43};
      CHECK(server.cut(2));
    }
    const auto wanted = blocks;
    for (auto& block : blocks) std::fill(block.begin(), block.end(), std::byte{0});
    Server next(*bench.channel, bench.object, bench.memory, views);
    CHECK_EQ(next.store->committed().manifest.cut, 2u);
    CHECK_EQ(next.restore(), "");
    CHECK(blocks == wanted);
    CHECK_EQ(bench.channel->control().restored_bytes.load(), 9'100'000u);
    // A second time, from the same store.
    std::fill(blocks[0].begin(), blocks[0].end(), std::byte{9});
    CHECK_EQ(next.restore(), "");
    CHECK(blocks == wanted);
    (void)first;
  }
}

TEST(only_what_has_changed_is_copied) {
  for (const bool views : {true, false}) {
    Bench bench;
    bench.memory.allocate(3'000'000, 1);
    bench.memory.allocate(1'000'000, 2);
    Server server(*bench.channel, bench.object, bench.memory, views);
    CHECK(server.cut(1));
    const ring::StoreHeader& figures = server.store->header();
    CHECK_EQ(figures.copied_bytes.load(), 4'000'000u);
    CHECK(server.cut(2));
    CHECK_EQ(figures.copied_bytes.load(), 4'000'000u);
    bench.memory.blocks[1][5] = std::byte{77};
    CHECK(server.cut(3));
    CHECK_EQ(figures.copied_bytes.load(), 5'000'000u);
    // Known to change: read once from now on, although it has not changed this time.
    const uint64_t hashed = figures.hashed_bytes;
    CHECK(server.cut(4));
    CHECK_EQ(figures.hashed_bytes - hashed, 4'000'000u);
    CHECK(figures.heap_used < 4'100'000u);
  }
}

// Memory that nothing has looked at is zeros: it is not looked at, neither here nor when it comes
// back.
TEST(untouched_memory_is_not_read) {
  Bench bench;
  bench.memory.allocate(9'000'000, 0);
  bench.memory.allocate(5'000'000, 0);
  Server server(*bench.channel, bench.object, bench.memory, true);
  bool untouched = true;
  server.snapshotter.reset();
  server.calls.untouched = [&](uint64_t, uint64_t) { return untouched; };
  server.restart(checkpoint::SnapshotOptions{50'000'000, 1, 0.02});
  CHECK(server.cut(1));
  CHECK(server.cut(2));
  CHECK(server.store->header().hashed_bytes < 4u * 4096);  // parts of pages at the ends
  CHECK(server.store->header().heap_used < 12'000'000u);   // equal pieces are kept once
  bench.memory.looks = 0;
  CHECK_EQ(server.restore(), "");
  CHECK(bench.memory.looks <= 4u);
  untouched = false;  // the same contents, whichever of them finds out
  CHECK_EQ(server.restore(), "");
  const uint64_t copied = server.store->header().copied_bytes;
  CHECK(server.cut(3));
  CHECK_EQ(server.store->header().copied_bytes.load(), copied);
}

TEST(the_scope_says_what_is_live) {
  Bench bench;
  const uint64_t pool = bench.memory.allocate(1'000'000, 1);
  const uint64_t other = bench.memory.allocate(2000, 2);
  bench.memory.hidden = {{bench.memory.allocate(300, 3), 300, 5}};
  Server server(*bench.channel, bench.object, bench.memory, true);
  CHECK(server.cut(1, scope_of({{pool, 1'000'000}}, {{pool + 512, 1000}, {pool + 4096, 24}})));
  uint64_t sum = 0;
  bool has_other = false;
  for (const auto& block : server.store->committed().blocks) {
    sum += block.bytes;
    has_other |= block.address == other;
  }
  CHECK(has_other);
  CHECK(sum >= 1000u + 24 + 2000 + 300);
  CHECK(sum <= 1000u + 24 + 2000 + 600);
  CHECK_EQ(server.store->header().block_bytes.load(), 1024u);
}

TEST(the_scope_says_since_when_a_block_is_what_it_is) {
  Bench bench;
  const uint64_t pool = bench.memory.allocate(3'000'000, 1);
  const uint64_t second = pool + 2'900'000, third = pool + 2'950'000;
  Server server(*bench.channel, bench.object, bench.memory, true);
  auto scope =
      scope_of({{pool, 3'000'000}}, {{third, 100}, {pool, 2'500'001}, {second, 100}}, {7, 5, 0});
  CHECK(server.cut(1, scope));
  size_t pieces = 0;
  for (const ring::ManifestBlock& block : server.store->committed().blocks) {
    CHECK_EQ(block.since, block.address == third ? 7u : block.address == second ? 0u : 5u);
    pieces += block.address < second;
  }
  CHECK(pieces > 1);
  scope.pop_back();  // as if it said nothing of that
  CHECK(server.cut(2, scope));
  for (const ring::ManifestBlock& block : server.store->committed().blocks)
    CHECK_EQ(block.since, 0u);
}

TEST(a_hostile_scope_cancels_the_cut_and_nothing_else) {
  Bench bench;
  const uint64_t at = bench.memory.allocate(100'000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true);
  const uint64_t huge = ~uint64_t{0};
  uint64_t cut = 0;
  for (const auto& scope :
       {scope_of({}, {{at, 100'001}}), scope_of({}, {{at - 1, 10}}), scope_of({}, {{huge, huge}}),
        scope_of({{0, huge}}, {{at, huge}}), scope_of({}, {{at, 10}, {at + 5, 10}}),
        scope_of({}, {{at, 0}}), scope_of({{huge - 5, 10}}, {}), std::vector<std::byte>(7)})
    CHECK(!server.cut(++cut, scope));
  auto counts = scope_of({}, {{at, 10}});
  for (const uint64_t number : {uint64_t{2}, huge, huge / 16}) {
    std::memcpy(counts.data(), &number, sizeof number);
    CHECK(!server.cut(++cut, counts));
  }
  CHECK_EQ(server.store->header().cancelled.load(), cut);
  CHECK(!server.store->has_committed());
  CHECK(server.cut(++cut));
}

TEST(random_scopes_are_survived) {
  Bench bench;
  const uint64_t at = bench.memory.allocate(1 << 16, 1);
  Server server(*bench.channel, bench.object, bench.memory, true);
  Random random(3);
  uint64_t snapshotted = 0;
  for (uint64_t cut = 1; cut < 3000; ++cut) {
    const auto range = [&]() -> ring::AllocMark {
      if (random.once_in(12)) return {random.interesting(), random.interesting()};
      return {at + random.below(1 << 15), 1 + random.below(1 << 8)};
    };
    std::vector<ring::AllocMark> pools(random.below(3)), blocks(random.below(4));
    for (auto& pool : pools) pool = range();
    for (auto& block : blocks) block = range();
    auto scope = scope_of(pools, blocks);
    if (random.once_in(8)) scope.resize(random.below(scope.size()));
    snapshotted += server.cut(cut, scope);
  }
  CHECK(snapshotted > 1000u);
  CHECK(snapshotted < 2900u);
}

TEST(a_cut_that_cannot_be_taken_is_cancelled) {
  Bench bench;
  bench.memory.allocate(1000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true);
  CHECK(server.cut(1));
  bench.memory.capturing = true;
  CHECK(!server.cut(2));
  bench.memory.capturing = false;
  bench.memory.idle = 600;  // for longer than the cut waits
  CHECK(!server.cut(3));
  bench.memory.idle = 719;
  CHECK(!server.cut(4));
  bench.memory.idle = 0;
  bench.memory.allocate(2 * kMemoryFreed, 1);  // no two pieces are equal: they would be kept once
  for (uint64_t i = 0; i < 2 * kMemoryFreed; i += 4096)
    std::memcpy(&bench.memory.blocks[1][i], &i, sizeof i);
  CHECK(!server.cut(5));
  CHECK_EQ(server.store->committed().manifest.cut, 1u);
  CHECK_EQ(bench.channel->control().snapshot_cut.load(), 1u);
  bench.memory.blocks.pop_back();
  bench.memory.out_of_reach = "memory that cannot be read";
  CHECK(!server.cut(6));
  CHECK_EQ(server.store->committed().manifest.cut, 1u);
  bench.memory.out_of_reach.clear();
  CHECK(server.cut(7));
}

void wait_longer_than_for_one_that_stands_still(Bench& bench) {
  bench.memory.allocate(1000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true);
  bench.memory.idle = 600;
  std::atomic<bool> cut{false};
  std::thread device([&] {  // twice as long as a cut waits for one that stands still
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(!cut.load());
    bench.memory.idle = 0;
  });
  CHECK(server.cut(1));
  cut = true;
  device.join();
}

TEST(a_device_that_gets_on_is_waited_for) {
  Bench bench;
  bench.memory.gets_on = true;
  wait_longer_than_for_one_that_stands_still(bench);
}

TEST(a_device_that_shows_nothing_and_waits_for_nobody_is_waited_for) {
  Bench bench;
  bench.memory.waits = false;
  wait_longer_than_for_one_that_stands_still(bench);
}

TEST(each_kth_cut_is_snapshotted_and_every_forced_one) {
  Bench bench;
  bench.memory.allocate(1000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true, {50'000'000, 3, 0.02});
  CHECK(server.cut(1));
  CHECK(!server.cut(2));
  CHECK(server.cut(3, {}, true));
  CHECK(!server.cut(4));
  CHECK(!server.cut(5));
  CHECK(server.cut(6));
  CHECK_EQ(server.store->header().skipped.load(), 3u);
}

// The cost is far more than two percent of the time between two cuts: there is none.
TEST(k_is_raised_until_the_cost_is_in_budget) {
  Bench bench;
  bench.memory.allocate(4'000'000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true, {50'000'000, 0, 0.02});
  for (uint64_t cut = 1; cut < 200; ++cut) server.cut(cut);
  CHECK(server.store->header().cut_every > 20u);
  CHECK(server.store->header().snapshots < 40u);
}

// Copying at the cut costs the program nothing but time: as long as that is little, it is done.
TEST(copies_are_made_behind_cuts_when_they_cost_much) {
  using checkpoint::Late;
  for (const Late late : {Late::kNever, Late::kAsCostSays, Late::kAlways}) {
    checkpoint::Interval interval(1, 0.02, late);
    uint64_t now = 1'000'000'000;
    const auto snapshots = [&](uint64_t spent_ns) {
      for (int i = 0; i < 20; ++i) interval.snapshot_taken(1, now += 100'000'000, spent_ns);
    };
    CHECK_EQ(interval.late(), late == Late::kAlways);
    snapshots(800'000);
    CHECK_EQ(interval.late(), late == Late::kAlways);
    snapshots(1'500'000);
    CHECK_EQ(interval.late(), late != Late::kNever);
    snapshots(100'000);
    CHECK_EQ(interval.late(), late != Late::kNever);
  }
}

TEST(a_block_that_is_not_what_it_was_is_named) {
  Bench bench;
  const uint64_t at = bench.memory.allocate(1000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true);
  CHECK(server.cut(1));
  const ring::ManifestBlock& block = server.store->committed().blocks.at(0);
  *server.store->at(block.heap_offset + 5) ^= std::byte{1};
  const std::string text = server.restore();
  CHECK(text.find("[1000] bytes at [" + std::to_string(at)) != std::string::npos);
  CHECK(text.find("another digest") != std::string::npos);
  *server.store->at(block.heap_offset + 5) ^= std::byte{1};
  server.calls.write = [](uint64_t, const void*, uint64_t) { return 0; };  // a device that forgets
  bench.memory.blocks[0][3] = std::byte{99};
  CHECK(server.restore().find("other bytes than were written") != std::string::npos);
}

// Runs in a process of its own; its exit code, or -1 when a signal has ended it.
template <class Body>
int apart(Body body) {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// What a step of the program does to memory, the first time and in a replay.
void step(Memory& memory) {
  memory.blocks[0][5] = std::byte{5};
  memory.allocate(3000, 7);
}

// A server that is killed in the middle of its second cut.
void die_in_a_cut(Bench& bench, const char* place) {
  CHECK_EQ(apart([&] {
             Server server(*bench.channel, bench.object, bench.memory, true);
             server.cut(1);
             step(bench.memory);
             fault::arm(place);
             server.cut(2);
           }),
           -1);
}

TEST(a_cut_that_is_taken_again_is_compared_with_the_first_time) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  bench.memory.allocate(20'000, 2);
  die_in_a_cut(bench, "store.before_publish:1");
  ring::ControlPage& page = bench.channel->control();
  CHECK_EQ(page.decided_cut.load(), 1u);
  step(bench.memory);
  bench.memory.blocks[2][9] = std::byte{9};  // nothing had written that: no part of the comparison
  const auto retake = [&](ring::ReplayMode mode, checkpoint::DivergencePolicy policy) {
    page.replay_mode = static_cast<uint32_t>(mode);
    page.compared = page.differed = 0;
    return apart([&] {
      Server server(*bench.channel, bench.object, bench.memory, true);
      server.recovery.set_policy(policy);
      fault::arm("cut.before_publish:1");
      server.cut(2);
    });
  };
  using checkpoint::DivergencePolicy;
  CHECK_EQ(retake(ring::ReplayMode::kNormal, DivergencePolicy::kStrict), -1);  // went on
  CHECK_EQ(page.compared.load(), 2u);
  bench.memory.blocks[1][9] = std::byte{9};
  const auto diverged = ring::kDivergedExit;
  CHECK_EQ(retake(ring::ReplayMode::kNormal, DivergencePolicy::kReport), diverged);
  const std::string text = page.fault_text;
  CHECK(text.starts_with("entry [20] of call [5] gives digest ["));
  CHECK(text.find("of the block of [20000] bytes at [0x") != std::string::npos);
  CHECK_EQ(retake(ring::ReplayMode::kSerial, DivergencePolicy::kStrict), diverged);
  CHECK_EQ(retake(ring::ReplayMode::kSerial, DivergencePolicy::kReport), -1);
  CHECK_EQ(page.differed.load(), 1u);
}

TEST(a_cut_whose_server_died_before_it_said_so_is_decided) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  die_in_a_cut(bench, "store.after_publish:1");
  ring::ControlPage& page = bench.channel->control();
  CHECK_EQ(page.snapshot_cut.load(), 1u);
  const Server next(*bench.channel, bench.object, bench.memory, true);
  CHECK_EQ(page.snapshot_cut.load(), 2u);
  CHECK_EQ(page.decided_cut.load(), 2u);
}

TEST(a_cut_waits_for_its_comparison_and_the_next_is_left_out) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  HeldServer server(bench);
  const ring::ControlPage& page = bench.channel->control();
  const auto take = [&](uint64_t cut, bool forced) { server.take(cut, {}, forced); };
  take(1, false);
  CHECK(server.told.back().first == 1 && server.told.back().second);
  take(2, false);
  CHECK(server.told.back() == std::pair(uint64_t{2}, uint64_t{0}));
  server.snapshotter->commit_output();  // not for ever
  server.snapshotter->poll();
  CHECK(!server.store->has_committed());
  CHECK_EQ(page.decided_cut.load(), 0u);  // a replay comes to the first cut again
  server.agreed = 1;
  server.snapshotter->poll();
  CHECK_EQ(page.snapshot_cut.load(), 1u);
  CHECK_EQ(page.decided_cut.load(), 1u);
  take(3, false);
  server.agreed = 3;
  server.snapshotter->commit_output();
  CHECK_EQ(page.snapshot_cut.load(), 3u);
  CHECK_EQ(server.store->header().compared_cuts.load(), 2u);
  take(4, false);
  take(5, true);                           // the client waits for space
  CHECK_EQ(server.told.back().first, 4u);  // other ranks have no such cut as 5
  CHECK_EQ(page.snapshot_cut.load(), 5u);
  CHECK_EQ(server.store->header().unchecked_cuts.load(), 1u);
  CHECK_EQ(server.store->header().skipped.load(), 1u);
}

TEST(a_cut_waits_until_others_have_what_came_before_it) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  HeldServer server(bench);
  const ring::ControlPage& page = bench.channel->control();
  server.store->header().compares = 0;
  server.is_acknowledged = false;
  server.take(1);
  CHECK(server.told.empty());  // nothing compares it
  server.snapshotter->poll();
  CHECK(!server.store->has_committed());
  server.take(2);
  CHECK_EQ(page.decided_cut.load(), 0u);
  CHECK_EQ(server.store->header().skipped.load(), 1u);
  server.is_acknowledged = true;
  usleep(3000);
  server.snapshotter->poll();
  CHECK_EQ(page.snapshot_cut.load(), 1u);
  CHECK_EQ(server.store->header().compared_cuts.load(), 0u);
  server.is_acknowledged = false;
  server.take(3, {}, true);  // the client waits for space
  CHECK_EQ(page.snapshot_cut.load(), 3u);
  server.store->header().compares = 1;
  server.take(4);
  server.agreed = 4;
  server.snapshotter->poll();
  CHECK_EQ(page.snapshot_cut.load(), 3u);  // compared, but not delivered
  server.is_acknowledged = true;
  usleep(3000);
  server.snapshotter->poll();
  CHECK_EQ(page.snapshot_cut.load(), 4u);
  CHECK_EQ(server.store->header().compared_cuts.load(), 1u);
}

TEST(a_replay_that_decides_between_ranks_does_not_diverge) {
  for (const bool wrong : {false, true}) {
    Bench bench;
    bench.memory.allocate(10'000, 1);
    bench.memory.allocate(20'000, 2);
    CHECK_EQ(apart([&] {
               HeldServer server(bench);
               server.agreed = 1;
               server.cut(1);
               server.snapshotter->poll();
               if (wrong) bench.memory.blocks[1][9] ^= std::byte{1};
               server.cut(2);  // and waits
             }),
             0);
    HeldServer next(bench, 2);
    CHECK_EQ(next.store->committed().manifest.cut, 1u);
    next.cut(2);
    CHECK(next.told.back().first == 2 && next.told.back().second);  // the agent compares
    CHECK_EQ(bench.channel->control().compared.load(), 0u);
  }
}

TEST(full_records_are_a_reason_to_snapshot_more_often) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true);
  bool log_pressure = false;
  server.calls.log_pressure = [&] { return log_pressure; };
  server.restart(checkpoint::SnapshotOptions{50'000'000, 8});
  const auto& every = bench.channel->control().cut_every;  // what the client goes by
  CHECK(server.cut(1));
  CHECK(!server.cut(2));
  CHECK_EQ(every.load(), 8u);
  log_pressure = true;
  CHECK(!server.cut(3));
  CHECK_EQ(every.load(), 4u);
  CHECK(server.cut(4));
  CHECK(!server.cut(5));
  CHECK(server.cut(6));
  log_pressure = false;
  CHECK(!server.cut(7));
  CHECK(server.cut(8));
  CHECK_EQ(every.load(), 2u);
  log_pressure = true;
  CHECK(!server.cut(9));
  CHECK_EQ(every.load(), 1u);
  CHECK(server.cut(11));
}

// A cut at which the log has grown to `position`, and its payloads to `arena`.
void take_at(Server& server, uint64_t number, uint64_t position, uint64_t arena) {
  ring::CutMark mark{number, arena, 0, 0, 0, 0, static_cast<uint32_t>(number)};
  ring::EntryHeader header{};
  header.seq = number * 10;
  server.snapshotter->take(header, mark, {}, position);
}

TEST(no_more_cuts_lie_between_snapshots_than_fit_the_log) {
  for (const bool in_arena : {false, true}) {
    Bench bench;
    bench.memory.allocate(10'000, 1);
    checkpoint::SnapshotOptions options;
    options.every = 32;
    Server server(*bench.channel, bench.object, bench.memory, true, options);
    const ring::ControlPage& page = bench.channel->control();
    std::vector<uint64_t> told;
    uint64_t others = 0;
    server.calls.tell_pace = [&](uint64_t cuts) { told.push_back(cuts); };
    server.calls.pace_of_others = [&] { return others; };
    server.restart(options);
    const auto take = [&](uint64_t number, uint64_t used) {
      take_at(server, number, in_arena ? number : used, in_arena ? used : number);
    };
    take(1, 1000);  // the first one is snapshotted
    CHECK_EQ(page.snapshot_cut.load(), 1u);
    CHECK_EQ(page.cut_every.load(), 32u);
    take(2, 1000 + 4096);  // a 16th of the room: five of these are a third
    CHECK_EQ(page.cut_every.load(), 4u);
    CHECK_EQ(page.snapshot_cut.load(), 1u);
    take(3, 1000 + 8192);
    take(4, 1000 + 12'288);
    CHECK_EQ(page.snapshot_cut.load(), 4u);
    CHECK_EQ(page.cut_every.load(), 4u);
    CHECK(told == std::vector<uint64_t>{4});
    others = 3;  // K is a power of two at all ranks
    take(5, 1000 + 12'400);
    CHECK_EQ(page.cut_every.load(), 2u);
    take(6, 1000 + 100'000);  // nothing else can be done
    CHECK_EQ(page.cut_every.load(), 1u);
  }
}

TEST(ranks_snapshot_multiples_of_powers_of_two) {
  Bench bench;
  bench.memory.allocate(4'000'000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true, {50'000'000, 0, 0.02});
  uint64_t k = 1;
  for (uint64_t cut = 1; cut < 200; ++cut) {
    const bool due = cut == 1 || cut % k == 0;
    CHECK_EQ(server.cut(cut), due);
    k = server.store->header().cut_every;
    CHECK_EQ(k & (k - 1), 0u);
  }
}

}  // namespace

CHECK_MAIN
