// A rank with records dies somewhere in a row of different operations; its replacement goes back to
// what was committed and repeats the row. All ranks end with the bits of a run without failure.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <tuple>

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

namespace {

// Two ranks, `count` all-reduces of 20000 values.
void add(Crew& crew, std::vector<float>& values, int count) {
  for (int i = 0; i < count; ++i) {
    crew.run([&](int rank) {
      float* mine = &values[static_cast<std::size_t>(rank) * 20000];
      return ncclAllReduce(mine, mine, 20000, ncclFloat32, ncclMax, crew.at(rank), nullptr);
    });
    crew.synchronize();
  }
}

std::uint64_t reported = 0;
void report(std::uint64_t, std::uint64_t operation, const char*) {
  reported = operation;
}

}  // namespace

TEST(after_each_commit_the_same_memory_is_used_again) {
  const auto arena = std::make_unique<Arena>();
  std::vector<float> values(2 * 20000, 1.0f);
  Crew crew(2, flexcclLoopback);
  must(flexcclSetRecords(crew.at(0), arena->bytes, sizeof arena->bytes), "records");
  for (std::uint64_t i = 1; i <= 12; ++i) {
    add(crew, values, 1);
    must(flexcclCommitted(crew.at(0), i), "flexcclCommitted");
  }
  CHECK_EQ(state_of(crew.at(0)).recorded, 1);
  // A record of 80000 bytes, and a second one where the first is not left behind yet.
  const auto rest = std::span(arena->bytes).subspan(200000);
  CHECK(std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(a_gap_ends_when_a_commit_has_passed_it) {
  const auto arena = std::make_unique<Arena>();
  const auto* region = reinterpret_cast<const flexcclRegion_t*>(arena->bytes);
  std::vector<float> values(2 * 20000, 1.0f);
  Crew crew(2, flexcclLoopback);
  must(flexcclSetRecords(crew.at(0), arena->bytes, 200000), "records");
  add(crew, values, 3);
  CHECK_EQ(state_of(crew.at(0)).recorded, 0);
  CHECK_EQ(region->unrecorded, 3u);
  must(flexcclCommitted(crew.at(0), 1), "flexcclCommitted");
  add(crew, values, 1);  // recorded, but the gap is before it
  CHECK_EQ(state_of(crew.at(0)).recorded, 0);
  must(flexcclCommitted(crew.at(0), 3), "flexcclCommitted");
  CHECK_EQ(state_of(crew.at(0)).recorded, 1);
  CHECK_EQ(region->unrecorded, 0u);
  CHECK_EQ(region->committed, 3u);
  CHECK(region->used_bytes > 80000);
  CHECK(region->entered == 4 && region->done == 4);
}

// Without another operation: the next one may be that in which the rank dies.
TEST(a_commit_of_all_that_was_done_ends_a_gap) {
  const auto arena = std::make_unique<Arena>();
  std::vector<float> values(2 * 20000, 1.0f);
  Crew crew(2, flexcclLoopback);
  must(flexcclSetRecords(crew.at(0), arena->bytes, 200000), "records");
  add(crew, values, 3);
  CHECK_EQ(state_of(crew.at(0)).recorded, 0);
  must(flexcclCommitted(crew.at(0), 3), "flexcclCommitted");
  CHECK_EQ(state_of(crew.at(0)).recorded, 1);
  CHECK_EQ(state_of(crew.at(0)).committed, 3u);
  crew.kill(0);
  flexcclInfo_t info;
  crew.at(0) = crew.recruit(0, &info);
  must(flexcclReplay(crew.at(0), arena->bytes, 200000, 3), "flexcclReplay");
  must(ncclReplaceNode(crew.at(1), 0, &info), "ncclReplaceNode");
  must(ncclCommSetupNewRank(crew.at(0)), "ncclCommSetupNewRank");
  std::fill(values.begin(), values.begin() + 20000, 2.0f);
  add(crew, values, 1);
  CHECK(std::ranges::all_of(values, [](float value) { return value == 2.0f; }));
  CHECK_EQ(state_of(crew.at(0)).operation, 4u);
}

TEST(other_inputs_are_reported_and_damage_is_refused) {
  const auto arena = std::make_unique<Arena>();
  std::vector<float> values(2 * 20000, 1.0f);
  Crew crew(2, flexcclLoopback);
  must(flexcclSetRecords(crew.at(0), arena->bytes, sizeof arena->bytes), "records");
  add(crew, values, 2);
  crew.kill(0);
  must(flexcclSetDiverged(report), "flexcclSetDiverged");
  flexcclInfo_t info;
  ncclComm_t fresh = crew.recruit(0, &info);
  must(flexcclReplay(fresh, arena->bytes, sizeof arena->bytes, 0), "flexcclReplay");
  must(ncclReplaceNode(crew.at(1), 0, &info), "ncclReplaceNode");
  must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank");
  std::vector<float> other(20000, 0.5f);
  const auto repeat = [&] {
    ncclAllReduce(other.data(), other.data(), 20000, ncclFloat32, ncclMax, fresh, nullptr);
    return flexcclSynchronize(fresh);
  };
  must(repeat(), "a replay with other inputs");
  CHECK_EQ(other[7], 1.0f);
  CHECK_EQ(reported, 1u);
  CHECK_EQ(state_of(fresh).diverged, 1u);
  must(flexcclSetDiverged(nullptr), "flexcclSetDiverged");
  // One bit of the second output.
  arena->bytes[state_of(fresh).record_bytes] ^= std::byte{1};
  CHECK_EQ(repeat(), ncclInvalidArgument);
  must(ncclCommAbort(fresh), "ncclCommAbort");
}

// A rank has been removed since: the parts have it all the same, and the same numbers.
TEST(parts_are_made_again_of_those_that_were_there) {
  const auto arena = std::make_unique<Arena>();
  Crew crew(4, flexcclLoopback);
  must(flexcclSetRecords(crew.at(1), arena->bytes, sizeof arena->bytes), "flexcclSetRecords");
  ncclComm_t parts[4] = {}, rests[4] = {};
  int first = 0;
  const auto shrink = [&](int rank) {
    must(ncclCommShrink(crew.at(rank), &first, 1, &rests[rank], nullptr, NCCL_SHRINK_DEFAULT),
         "ncclCommShrink");
  };
  crew.run([&](int rank) { return ncclCommSplit(crew.at(rank), 0, -rank, &parts[rank], nullptr); });
  for (const int rank : {1, 2, 3}) shrink(rank);
  crew.kill(3);
  for (const int rank : {0, 1, 2}) must(ncclRemoveNode(crew.at(rank), 3), "ncclRemoveNode");
  crew.kill(1);
  for (ncclComm_t* part : {&parts[1], &rests[1]})
    must(ncclCommAbort(std::exchange(*part, nullptr)), "ncclCommAbort");
  flexcclInfo_t info;
  crew.at(1) = crew.recruit(1, &info);
  must(flexcclReplay(crew.at(1), arena->bytes, sizeof arena->bytes, 0), "flexcclReplay");
  for (const int rank : {0, 2}) must(ncclReplaceNode(crew.at(rank), 1, &info), "ncclReplaceNode");
  must(ncclCommSetupNewRank(crew.at(1)), "ncclCommSetupNewRank");
  must(ncclCommSplit(crew.at(1), 0, -1, &parts[1], nullptr), "ncclCommSplit");
  shrink(1);
  for (const auto& [again, there, nranks, rank] :
       {std::tuple(parts[1], parts[2], 4, 2), std::tuple(rests[1], rests[2], 3, 0)}) {
    const flexcclState_t state = state_of(again);
    CHECK_EQ(state.comm, state_of(there).comm);
    CHECK_EQ(state.nranks, nranks);
    CHECK_EQ(state.slot, rank);
  }
  for (const int rank : {0, 1, 2, 3})
    for (ncclComm_t part : {parts[rank], rests[rank]})
      if (part) must(ncclCommAbort(part), "ncclCommAbort");
}

// Roots and partners are those of then, whichever ranks have been removed since.
TEST(operations_are_repeated_after_a_removal) {
  const auto arena = std::make_unique<Arena>();
  Crew crew(4, flexcclLoopback);
  must(flexcclSetRecords(crew.at(1), arena->bytes, sizeof arena->bytes), "flexcclSetRecords");
  float values[4][5] = {};
  const auto call = [&](int rank) {
    float* mine = values[rank];
    const ncclComm_t comm = crew.at(rank);
    for (int i = 0; i < 5; ++i) mine[i] = static_cast<float>(10 * rank + i);
    for (const int root : {0, 3})
      must(ncclBcast(mine + root, 1, ncclFloat32, root, comm, nullptr), "ncclBcast");
    must(ncclReduce(mine + 1, mine + 1, 1, ncclFloat32, ncclSum, 1, comm, nullptr), "ncclReduce");
    if (rank == 0) must(ncclSend(mine + 2, 1, ncclFloat32, 1, comm, nullptr), "ncclSend");
    if (rank == 1) must(ncclRecv(mine + 2, 1, ncclFloat32, 0, comm, nullptr), "ncclRecv");
    if (rank == 1) must(ncclSend(mine + 4, 1, ncclFloat32, 0, comm, nullptr), "ncclSend");
    if (rank == 0) must(ncclRecv(mine + 4, 1, ncclFloat32, 1, comm, nullptr), "ncclRecv");
  };
  const auto check = [&] {
    const float wanted[] = {0, 1 + 11 + 21 + 31, 2, 33, 14};
    for (int i = 0; i < 5; ++i) CHECK_EQ(values[1][i], wanted[i]);
  };
  for (int rank = 0; rank < 4; ++rank) call(rank);
  crew.synchronize();
  check();
  crew.kill(0);
  for (const int rank : {1, 2, 3}) must(ncclRemoveNode(crew.at(rank), 0), "ncclRemoveNode");
  crew.kill(1);
  flexcclInfo_t info;
  crew.at(1) = crew.recruit(1, &info);
  must(flexcclReplay(crew.at(1), arena->bytes, sizeof arena->bytes, 0), "flexcclReplay");
  for (const int rank : {2, 3}) must(ncclReplaceNode(crew.at(rank), 1, &info), "ncclReplaceNode");
  must(ncclCommSetupNewRank(crew.at(1)), "ncclCommSetupNewRank");
  call(1);
  must(flexcclSynchronize(crew.at(1)), "synchronize");
  check();
  CHECK_EQ(state_of(crew.at(1)).diverged, 0u);
  for (const int rank : {1, 2, 3})
    must(ncclBcast(&values[rank][1], 1, ncclFloat32, 3, crew.at(rank), nullptr), "ncclBcast");
  for (const int rank : {1, 2, 3}) must(flexcclSynchronize(crew.at(rank)), "synchronize");
  CHECK_EQ(values[1][1], 31.0f);
  must(flexcclAskAround(crew.at(1)), "flexcclAskAround");
  CHECK(comes([&] { return state_of(crew.at(1)).kept_bytes == 0; }));
}

TEST(kept_memory_is_freed_by_idle_ranks) {
  std::vector<float> values(2 * 20000, 1.0f);
  Crew crew(2, flexcclLoopback);
  add(crew, values, 2);
  crew.run([&](int rank) {
    float* mine = &values[static_cast<std::size_t>(rank) * 20000];
    return rank ? ncclRecv(mine, 20000, ncclFloat32, 0, crew.at(1), nullptr)
                : ncclSend(mine, 20000, ncclFloat32, 1, crew.at(0), nullptr);
  });
  crew.synchronize();
  CHECK(state_of(crew.at(0)).kept_bytes >= 80000);
  for (int rank : {0, 1}) {
    for (int i = 0; i < 5000 && state_of(crew.at(rank)).kept_bytes; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK_EQ(state_of(crew.at(rank)).kept_bytes, 0u);
  }
}

// Last: this process has a content store from here on.
TEST(identical_outputs_are_stored_once) {
  const auto store = std::make_unique<Arena>();
  const auto arenas = std::make_unique<std::array<Arena, 2>>();
  std::vector<float> values(2 * 20000, 1.0f);
  must(flexcclSetContents(store->bytes, sizeof store->bytes, 3), "flexcclSetContents");
  {
    Crew crew(2, flexcclLoopback);
    for (int rank : {0, 1})
      must(flexcclSetRecords(crew.at(rank), (*arenas)[std::size_t(rank)].bytes, 50000), "records");
    add(crew, values, 3);
    for (int rank : {0, 1}) CHECK_EQ(state_of(crew.at(rank)).recorded, 1);
    CHECK_EQ(state_of(crew.at(0)).content_bytes, 3u * 80000);
    must(flexcclCommitted(crew.at(0), 3), "flexcclCommitted");
    CHECK_EQ(state_of(crew.at(0)).content_bytes, 3u * 80000);  // the other rank may go back
    must(flexcclCommitted(crew.at(1), 2), "flexcclCommitted");
    CHECK_EQ(state_of(crew.at(0)).content_bytes, 80000u);
  }
  must(flexcclForget((*arenas)[1].bytes, 50000), "flexcclForget");
  Crew crew(2, flexcclLoopback);
  CHECK_EQ(state_of(crew.at(0)).content_bytes, 0u);
  CHECK(state_of(crew.at(0)).content_room > 900000);
}

CHECK_MAIN
