// A rank with records dies somewhere in a row of different operations; its replacement goes back to
// what was committed and repeats the row. All ranks end with the bits of a run without failure.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "crew.h"
#include "script.h"

namespace {

struct Rank {
  State state, committed;
  std::unique_ptr<Arena> arena = std::make_unique<Arena>();
  bool finished = false;
};

void run_from(std::uint64_t first, int number, ncclComm_t comm, Rank* rank) {
  for (int k = static_cast<int>(first); k < kOperations; ++k) {
    if (step(k, number, comm, &rank->state) != ncclSuccess) return;
    if (flexcclSynchronize(comm) != ncclSuccess) return;
    if (static_cast<std::uint64_t>(k) + 1 != kCommitted) continue;
    rank->committed = rank->state;
    must(flexcclCommitted(comm, kCommitted), "flexcclCommitted");
  }
  rank->finished = true;
}

// Returns the final states; `victim` is killed by `rule` and replaced. Sets `struck`.
std::vector<State> run(flexcclTransport_t transport, const std::string& rule, int victim,
                       bool* struck) {
  if (!rule.empty()) CHECK_EQ(flexcclSetFault(rule.c_str()), ncclSuccess);
  std::vector<Rank> ranks(kRanks);  // first: the memory has to outlive the communicators
  Crew crew(kRanks, transport);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    Rank* rank = &ranks[static_cast<std::size_t>(r)];
    rank->state = start_state(r);
    rank->committed = rank->state;
    must(flexcclSetRecords(crew.at(r), rank->arena->bytes, sizeof rank->arena->bytes), "records");
    threads.emplace_back(run_from, 0, r, crew.at(r), rank);
  }
  auto& of_victim = threads[static_cast<std::size_t>(victim)];
  Rank& dead = ranks[static_cast<std::size_t>(victim)];
  of_victim.join();
  CHECK_EQ(flexcclSetFault(nullptr), ncclSuccess);
  *struck = !dead.finished;
  if (*struck) {
    const std::uint64_t position = state_of(crew.at(victim)).committed;
    crew.kill(victim);
    dead.state = position ? dead.committed : start_state(victim);
    flexcclInfo_t info;
    ncclComm_t fresh = crew.recruit(victim, &info);
    must(flexcclReplay(fresh, dead.arena->bytes, sizeof dead.arena->bytes, position), "replay");
    for (int other = 0; other < kRanks; ++other)
      if (crew.at(other)) must(ncclReplaceNode(crew.at(other), victim, &info), "ncclReplaceNode");
    must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank");
    crew.at(victim) = fresh;
    of_victim = std::thread(run_from, position, victim, fresh, &dead);
    of_victim.join();
  }
  std::vector<State> states;
  for (int r = 0; r < kRanks; ++r) {
    if (r != victim) threads[static_cast<std::size_t>(r)].join();
    CHECK(ranks[static_cast<std::size_t>(r)].finished);
    CHECK_EQ(state_of(crew.at(r)).recorded, 1);
    CHECK_EQ(state_of(crew.at(r)).operation, static_cast<std::uint64_t>(kOperations));
    states.push_back(ranks[static_cast<std::size_t>(r)].state);
  }
  return states;
}

}  // namespace

TEST(a_replaced_rank_repeats_from_its_records) {
  bool struck = false;
  const auto expected = run(flexcclLoopback, "", 0, &struck);
  for (const auto transport : {flexcclLoopback, flexcclShm, flexcclTcp}) {
    int kills = 0;
    for (int frame = 1; frame == 1 || struck; frame += 3) {
      const int victim = frame % kRanks;
      const auto states =
          run(transport, "cut:rank=" + std::to_string(victim) + ",frame=" + std::to_string(frame),
              victim, &struck);
      kills += struck;
      const bool same = states == expected;
      if (!same) std::cerr << "frame [" << frame << "] over [" << transport << "]\n";
      CHECK(same);
    }
    CHECK(kills > 10);
  }
}

TEST(full_records_are_announced_and_refused) {
  const auto arena = std::make_unique<Arena>();
  Crew crew(2, flexcclLoopback);
  std::vector<float> values(2 * 20000, 1.0f);
  CHECK_EQ(flexcclSetRecords(crew.at(0), arena->bytes, 64), ncclInvalidArgument);
  must(flexcclSetRecords(crew.at(0), arena->bytes, 100000), "records");
  const auto add = [&] {
    crew.run([&](int rank) {
      float* mine = &values[static_cast<std::size_t>(rank) * 20000];
      return ncclAllReduce(mine, mine, 20000, ncclFloat32, ncclMax, crew.at(rank), nullptr);
    });
    crew.synchronize();
  };
  add();
  CHECK_EQ(state_of(crew.at(0)).recorded, 1);
  CHECK(state_of(crew.at(0)).record_bytes >= 80000);
  CHECK_EQ(flexcclCommitted(crew.at(0), 2), ncclInvalidArgument);
  must(flexcclCommitted(crew.at(0), 1), "flexcclCommitted");
  CHECK_EQ(state_of(crew.at(0)).record_bytes, 0u);
  for (int i = 0; i < 2; ++i) add();  // the memory is used again, but holds one of them only
  CHECK_EQ(state_of(crew.at(0)).recorded, 0);
  CHECK_EQ(state_of(crew.at(1)).recorded, 0);
  crew.kill(0);
  flexcclInfo_t info;
  ncclComm_t fresh = crew.recruit(0, &info);
  CHECK_EQ(flexcclReplay(fresh, arena->bytes, 100000, 1), ncclInvalidUsage);
  arena->bytes[0] = std::byte{1};
  CHECK_EQ(flexcclReplay(fresh, arena->bytes, 100000, 1), ncclInvalidArgument);
  must(ncclCommAbort(fresh), "ncclCommAbort");
}

CHECK_MAIN
