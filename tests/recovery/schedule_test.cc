// Which cuts are snapshotted: what the agent wants, how much the log holds, and what K follows.
#include <utility>

#include "check.h"
#include "recovery/server.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

struct Cut {
  uint64_t number;
  uint32_t step;
  bool passed_over = false;
};

// At which the log has grown to `position`.
void take(Server& server, const Cut& cut, uint64_t position) {
  const ring::CutMark mark{cut.number, 0, 0, 0, cut.passed_over, 0, cut.step};
  server.snapshotter->take({}, mark, {}, position);
}

TEST(full_records_say_nothing_of_k_while_each_cut_is_due) {
  Bench bench;
  bench.memory.allocate(4'000'000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true);
  bool log_pressure = true;
  server.calls.log_pressure = [&] { return log_pressure; };
  server.restart(checkpoint::SnapshotOptions{50'000'000, 0, 0.02});
  CHECK(server.cut(1));
  take(server, {2, 2, true}, 200);
  CHECK(!server.snapshotted(2));
  log_pressure = false;
  for (uint64_t cut = 3; cut < 100; ++cut) server.cut(cut);  // which costs far too much
  CHECK(server.store->header().cut_every > 1u);
}

TEST(a_third_of_the_log_is_for_the_cuts_between_two_snapshots) {
  for (const auto& [used, every] : {std::pair(21'800, 1), std::pair(2700, 8), std::pair(2750, 4)}) {
    Bench bench;
    bench.memory.allocate(10'000, 1);
    Server server(*bench.channel, bench.object, bench.memory, true, {50'000'000, 32});
    take(server, {1, 1}, 1000);
    take(server, {2, 2}, 1000 + static_cast<uint64_t>(used));
    CHECK_EQ(bench.channel->control().cut_every.load(), static_cast<uint64_t>(every));
  }
}

// Such as one that is taken again: it says nothing of how long a step is.
TEST(between_two_cuts_of_the_same_step_lies_none) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true, {50'000'000, 32});
  take(server, {1, 1}, 1000);
  take(server, {2, 1}, 60'000);
  CHECK_EQ(bench.channel->control().cut_every.load(), 32u);
}

TEST(a_cut_at_which_the_agent_holds_the_program_is_snapshotted) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true, {50'000'000, 32});
  CHECK(server.cut(1));
  bench.channel->control().hold_step = 3;
  CHECK(!server.cut(2));
  CHECK(server.cut(3));
  CHECK(!server.cut(4));
}

}  // namespace

CHECK_MAIN
