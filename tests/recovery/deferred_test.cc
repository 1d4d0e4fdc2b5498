// Cuts that are deferred while only reads follow: when they are snapshotted, what they contain, and
// what snapshots are said to cost; and cuts that the client passes over.
#include <algorithm>
#include <cstring>
#include <vector>

#include "check.h"
#include "recovery/server.h"
#include "ring/wait.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

struct PuttingOff : Server {
  explicit PuttingOff(Bench& bench) : Server(*bench.channel, bench.object, bench.memory, true) {
    checkpoint::SnapshotOptions options;
    options.every = 1;
    options.late = checkpoint::Late::kNever;
    options.defers = true;
    restart(options);
  }
  // An entry that the client has appended then; what it does is the test's affair.
  void next(uint64_t appended_ns, ring::Mark mark = ring::Mark::kFence) {
    ring::EntryHeader header{};
    header.call = static_cast<uint16_t>(mark);
    header.time_ns = appended_ns;
    snapshotter->next_entry(header);
  }
  // Without what is waited for at gates.
  uint64_t kept() const { return store->header().kept_ns - store->header().gate_ns; }
  // Taken, and not decided.
  void defer(uint64_t number, const std::vector<std::byte>& scope = {}) {
    take(number, scope);
    CHECK(snapshotter->is_deferred());
    CHECK(channel.control().decided_cut < number);
  }
};

TEST(a_cut_is_snapshotted_when_it_is_made_up_for) {
  Bench bench;
  const uint64_t at = bench.memory.allocate(100'000, 1);
  PuttingOff server(bench);
  ring::CutScope head{1, 1};
  const ring::AllocMark ranges[] = {{at, 100'000}, {at + 512, 1000}};
  std::vector<std::byte> scope(sizeof head + sizeof ranges);
  std::memcpy(scope.data(), &head, sizeof head);
  std::memcpy(scope.data() + sizeof head, ranges, sizeof ranges);
  server.defer(1, scope);
  std::fill(scope.begin(), scope.end(), std::byte{255});  // the client's memory is the client's
  server.snapshotter->run_deferred();
  CHECK(!server.snapshotter->is_deferred());
  CHECK(server.snapshotted(1));
  CHECK_EQ(server.store->committed().manifest.seq, 10u);
  CHECK_EQ(server.store->committed().manifest.position, 100u);
  CHECK_EQ(server.store->header().block_bytes.load(), 1000u);
  server.snapshotter->run_deferred();  // nothing is left to do
  CHECK_EQ(server.store->header().snapshots.load(), 1u);
}

TEST(the_next_gate_or_cut_does_not_come_before_it) {
  Bench bench;
  bench.memory.allocate(1000, 1);
  PuttingOff server(bench);
  server.defer(1);
  server.snapshotter->gate();
  CHECK(server.snapshotted(1));
  server.defer(2);
  server.defer(3);
  CHECK_EQ(bench.channel->control().snapshot_cut.load(), 2u);
}

TEST(who_waits_for_room_does_not_wait_for_more) {
  Bench bench;
  bench.memory.allocate(1000, 1);
  PuttingOff server(bench);
  CHECK(server.cut(1, {}, true));
  server.recovery.set_replaying(true);  // nothing new is to be read in a replay
  CHECK(server.cut(2));
}

TEST(a_cut_that_cannot_be_snapshotted_is_decided_at_once) {
  Bench bench;
  bench.memory.allocate(1000, 1);
  bench.memory.capturing = true;
  PuttingOff server(bench);
  CHECK(!server.cut(1));
  CHECK(!server.snapshotter->is_deferred());
  CHECK_EQ(bench.channel->control().decided_cut.load(), 1u);
}

TEST(only_entries_that_have_waited_count) {
  Bench bench;
  bench.memory.allocate(4'000'000, 1);
  PuttingOff server(bench);
  const uint64_t before = ring::now_ns();
  server.defer(1);
  server.snapshotter->run_deferred();
  server.next(before, ring::Mark::kObserved);  // nothing waits for it
  server.next(ring::now_ns());
  CHECK_EQ(server.kept(), 0u);
  server.defer(2);
  server.snapshotter->run_deferred();
  server.next(before);
  const uint64_t all = server.kept();
  CHECK(all > 0u);
  CHECK(all <= server.store->header().cut_ns);
  server.next(before);  // it counts once
  CHECK_EQ(server.kept(), all);
  server.defer(3);
  server.snapshotter->run_deferred();
  server.next(~uint64_t{0});  // a number of the client's
  CHECK_EQ(server.kept(), all);
}

struct Mark {
  bool passed_over = false;
  uint64_t appended_ns = 0;
  uint16_t scope_us = 0;
};

void take(Server& server, uint64_t number, const Mark& how, bool forced = false) {
  const ring::CutMark mark{
      number, 0, 0, forced, how.passed_over, how.scope_us, static_cast<uint32_t>(number)};
  ring::EntryHeader header{};
  header.time_ns = how.appended_ns;
  server.snapshotter->take(header, mark, {}, number);
}

TEST(what_nobody_has_found_out_about_is_not_snapshotted) {
  Bench bench;
  bench.memory.allocate(1000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true);
  CHECK(server.cut(1));
  take(server, 2, {.passed_over = true});
  CHECK(!server.snapshotted(2));
  CHECK_EQ(server.store->header().skipped.load(), 1u);
  take(server, 3, {.passed_over = true}, true);  // but the client waits for it
  CHECK(server.snapshotted(3));
}

TEST(what_the_client_does_counts_when_the_server_has_no_work) {
  Bench bench;
  bench.memory.allocate(1000, 1);
  bench.memory.peeks = false;
  Server server(*bench.channel, bench.object, bench.memory, true,
                {50'000'000, 0, 0.01, 60'000'000'000, checkpoint::Late::kNever});
  const ring::StoreHeader& figures = server.store->header();
  for (uint64_t cut = 1; cut < 10; ++cut) take(server, cut, {.scope_us = 60'000});  // long ago
  CHECK(figures.kept_ns < 60'000'000u);
  const uint64_t before = figures.kept_ns;
  take(server, 64, {.appended_ns = ring::now_ns() + 1'000'000'000, .scope_us = 60'000});
  CHECK(figures.kept_ns - before >= 60'000'000u);
  for (uint64_t cut = 65; cut < 300; ++cut)
    take(server, cut, {.appended_ns = ring::now_ns() + 1'000'000'000, .scope_us = 60'000});
  CHECK_EQ(figures.cut_every.load(), 64u);
  CHECK_EQ(bench.channel->control().cut_every.load(), 64u);
}

}  // namespace

CHECK_MAIN
