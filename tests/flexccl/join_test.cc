// How a new rank gets its place: it is enough to tell its neighbours; until it decides, none has
// moved; whichever rank ends at whichever message of the repair, all survivors are in one epoch,
// the next attempt succeeds, and the bits are right. Nothing is left behind.
#include <dirent.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "crew.h"

namespace {

constexpr flexcclTransport_t kAll[] = {flexcclLoopback, flexcclShm, flexcclTcp};
constexpr std::size_t kCount = 1003;

Task all_reduce(int ranks) {
  return {"all-reduce", ranks, kCount, kCount, true, [](Task& task, int rank, ncclComm_t comm) {
            return ncclAllReduce(task.input(rank), task.output(rank), kCount, ncclFloat32, ncclSum,
                                 comm, nullptr);
          }};
}

Task reduce_scatter(int ranks) {
  return {"reduce-scatter",
          ranks,
          static_cast<std::size_t>(ranks) * kCount,
          kCount,
          false,
          [](Task& task, int rank, ncclComm_t comm) {
            return ncclReduceScatter(task.input(rank), task.output(rank), kCount, ncclFloat32,
                                     ncclSum, comm, nullptr);
          }};
}

void begin(Task& task, Crew& crew) {
  for (int rank = 0; rank < task.nranks; ++rank) task.prepare(rank);
  crew.run([&](int rank) { return task.run(rank, crew.at(rank)); });
}

// A new rank, of which only the nearest live ones are told.
ncclComm_t replace_quietly(Crew& crew, int slot, std::int64_t replay_from = -1) {
  flexcclInfo_t info;
  ncclComm_t fresh = crew.recruit(slot, &info, replay_from);
  const int n = crew.size();
  for (const int way : {1, n - 1}) {
    int other = (slot + way) % n;
    while (!crew.at(other)) other = (other + way) % n;
    must(ncclReplaceNode(crew.at(other), slot, &info), "ncclReplaceNode");
  }
  must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank");
  return crew.at(slot) = fresh;
}

std::set<std::uint32_t> epochs(Crew& crew, int without) {
  std::set<std::uint32_t> all;
  for (int slot = 0; slot < crew.size(); ++slot)
    if (slot != without && crew.at(slot)) all.insert(state_of(crew.at(slot)).epoch);
  return all;
}

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

struct Held {
  std::size_t files, threads, bytes;
};
Held held() {
  return {entries("/proc/self/fd"), entries("/proc/self/task"), mallinfo2().uordblks};
}

// Rank 2 is cut off in the operation; in its repair `victim` (2: the new one) ends at a message.
// Returns whether it did.
bool fail_and_retry(Task task, flexcclTransport_t transport, int victim, int message,
                    const std::vector<std::vector<float>>& expected) {
  must(flexcclSetFault(("cut:rank=2,frame=2;cut:on=repair,rank=" + std::to_string(victim) +
                        ",frame=" + std::to_string(message))
                           .c_str()),
       "flexcclSetFault");
  Crew crew(task.nranks, transport);
  begin(task, crew);
  CHECK(flexcclSynchronize(crew.at(2)) != ncclSuccess);
  crew.kill(2);
  flexcclInfo_t info;
  ncclComm_t fresh = crew.recruit(2, &info, 0);
  for (int other = 0; other < crew.size(); ++other)
    if (crew.at(other)) must(ncclReplaceNode(crew.at(other), 2, &info), "ncclReplaceNode");
  const bool placed = ncclCommSetupNewRank(fresh) == ncclSuccess;
  must(flexcclSetFault(nullptr), "flexcclSetFault");  // the next rank in the slot is not cut off
  const bool struck = !placed || victim != 2;
  // All on the old one or, as soon as their operations look up, all on the new one.
  if (!placed) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    // A rank that asks for news may ask one first that does not answer, for seconds.
    CHECK(comes([&] { return epochs(crew, victim).size() == 1; }));
  }
  crew.at(2) = fresh;
  if (victim != 2) {
    crew.kill(victim);
    if (!placed) {  // it may try again: the dead neighbour is passed over
      for (int other = 0; other < crew.size(); ++other)
        if (crew.at(other) && other != 2)
          must(ncclReplaceNode(crew.at(other), 2, &info), "ncclReplaceNode, again");
      must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank, again");
    }
    task.prepare(2);
    must(task.run(2, fresh), task.name);
    crew.replace(victim, 0);
    task.prepare(victim);
    must(task.run(victim, crew.at(victim)), task.name);
  } else {
    if (!placed) {
      crew.kill(2);
      crew.replace(2, 0);
    }
    task.prepare(2);
    must(task.run(2, crew.at(2)), task.name);
  }
  crew.synchronize();
  if (!same_bits(task.out, expected))
    std::cerr << task.name << " over " << transport << ", rank " << victim << " ended at message "
              << message << "\n";
  CHECK(same_bits(task.out, expected));
  CHECK_EQ(epochs(crew, -1).size(), 1u);
  return struck;
}

// The messages of the new rank: two out, two in, two out. Of a neighbour: out, in, out.
void sweep_messages(const Task& task, flexcclTransport_t transport) {
  Task first = task;
  const auto expected = first.reference(transport);
  for (int message = 1; message <= 6; ++message)
    CHECK(fail_and_retry(task, transport, 2, message, expected));
  for (const int victim : {1, 3 % task.nranks})
    for (int message = 1; message <= 3; ++message)
      fail_and_retry(task, transport, victim, message, expected);
}

}  // namespace

// Survivors that wait ask each other for news, and ask at the dead rank's address as well. Behind
// it is the new rank here, as it may be where a port is given out again: what that one has not
// decided yet is no news, or they would be in an epoch without it when it ends before.
TEST(a_new_rank_tells_nobody_what_it_has_not_decided) {
  for (const auto transport : kAll) {
    Crew crew(4, transport);
    Task task = all_reduce(4);
    const auto expected = task.reference(transport);
    for (int rank = 0; rank < 4; ++rank) task.prepare(rank);
    crew.kill(2);
    for (const int rank : {0, 1, 3}) must(task.run(rank, crew.at(rank)), task.name);
    flexcclInfo_t info;
    ncclComm_t fresh = crew.recruit(2, &info, 0);
    CHECK(comes([&] { return state_of(crew.at(1)).paused == 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // they ask after 40
    CHECK_EQ(*epochs(crew, 2).rbegin(), 0u);
    must(ncclCommAbort(fresh), "ncclCommAbort");
    crew.replace(2, 0);
    task.prepare(2);
    must(task.run(2, crew.at(2)), task.name);
    crew.synchronize();
    CHECK(same_bits(task.out, expected));
  }
}

TEST(it_is_enough_to_tell_the_neighbours) {
  for (const auto transport : kAll)
    for (const std::uint64_t repair_ms : {std::uint64_t{0}, Crew::kRepairMs}) {
      Task task = all_reduce(8);
      const auto expected = task.reference(transport);
      Crew crew(8, transport, repair_ms);
      // A rank that was not told takes the step in the next operation: so the last one follows the
      // last replacement.
      for (int round = 0; round <= 4; ++round) {
        begin(task, crew);
        crew.synchronize();
        CHECK(same_bits(task.out, expected));
        if (round == 4) break;
        crew.kill(3 * round % 8);
        replace_quietly(crew, 3 * round % 8);
      }
      for (int rank = 0; rank < 8; ++rank) CHECK_EQ(state_of(crew.at(rank)).epoch, 4u);
    }
}

TEST(a_running_operation_hears_of_it_too) {
  for (const auto transport : kAll)
    for (Task task : {all_reduce(8), reduce_scatter(8)}) {
      const auto expected = task.reference(transport);
      for (const int frame : {1, 3, 6}) {
        must(flexcclSetFault(("cut:rank=2,frame=" + std::to_string(frame)).c_str()), "fault");
        Crew crew(8, transport);
        begin(task, crew);
        CHECK(flexcclSynchronize(crew.at(2)) != ncclSuccess);
        must(flexcclSetFault(nullptr), "flexcclSetFault");
        crew.kill(2);
        ncclComm_t fresh = replace_quietly(crew, 2, 0);
        task.prepare(2);
        must(task.run(2, fresh), task.name);
        crew.synchronize();
        CHECK(same_bits(task.out, expected));
      }
    }
}

TEST(nobody_moves_before_the_decision) {
  for (const auto transport : kAll) {
    Task task = all_reduce(5);
    const auto expected = task.reference(transport);
    Crew crew(5, transport);
    crew.kill(2);
    flexcclInfo_t info;
    ncclComm_t fresh = crew.recruit(2, &info);
    for (const int other : {0, 1, 3, 4})
      must(ncclReplaceNode(crew.at(other), 2, &info), "ncclReplaceNode");
    CHECK_EQ(*epochs(crew, -1).rbegin(), 0u);
    CHECK_EQ(ncclCommAbort(fresh), ncclSuccess);
    crew.replace(2);
    begin(task, crew);
    crew.synchronize();
    CHECK(same_bits(task.out, expected));
    CHECK_EQ(*epochs(crew, -1).begin(), 1u);
  }
}

TEST(neighbours_that_are_dead_too_are_passed_over) {
  for (const auto transport : kAll) {
    Task task = all_reduce(6);
    const auto expected = task.reference(transport);
    Crew crew(6, transport);
    for (const int slot : {1, 2, 3}) crew.kill(slot);
    for (const int slot : {2, 1, 3}) replace_quietly(crew, slot);
    begin(task, crew);
    crew.synchronize();
    CHECK(same_bits(task.out, expected));
  }
}

TEST(of_two_repairs_for_one_epoch_one_is_refused) {
  Task task = all_reduce(8);
  const auto expected = task.reference(flexcclShm);
  Crew crew(8, flexcclShm);
  crew.kill(2);
  crew.kill(6);
  flexcclInfo_t infos[2];
  ncclComm_t fresh[] = {crew.recruit(2, &infos[0]), crew.recruit(6, &infos[1])};
  for (const int other : {1, 3}) must(ncclReplaceNode(crew.at(other), 2, &infos[0]), "replace");
  for (const int other : {5, 7}) must(ncclReplaceNode(crew.at(other), 6, &infos[1]), "replace");
  must(ncclCommSetupNewRank(fresh[0]), "ncclCommSetupNewRank");
  CHECK_EQ(ncclCommSetupNewRank(fresh[1]), ncclInvalidUsage);
  CHECK_EQ(ncclReplaceNode(crew.at(0), 6, &infos[1]), ncclInvalidUsage);
  CHECK_EQ(ncclCommAbort(fresh[1]), ncclSuccess);
  crew.at(2) = fresh[0];
  replace_quietly(crew, 6);
  begin(task, crew);
  crew.synchronize();
  CHECK(same_bits(task.out, expected));
}

TEST(whoever_ends_at_whichever_message) {
  for (const auto transport : kAll)
    for (const Task& task : {all_reduce(5), reduce_scatter(4), all_reduce(3)})
      sweep_messages(task, transport);
}

TEST(nothing_is_left_behind) {
  for (const auto transport : kAll) {
    sweep_messages(all_reduce(5), transport);
    const Held before = held();
    for (int i = 0; i < 2; ++i) sweep_messages(all_reduce(5), transport);
    const auto gone = [&] {
      const Held now = held();
      return now.files <= before.files && now.threads <= before.threads &&
             now.bytes <= before.bytes + (64 << 10);
    };
    if (!comes(gone)) {
      const Held now = held();
      std::cerr << "transport " << transport << ": files " << before.files << " to " << now.files
                << ", threads " << before.threads << " to " << now.threads << ", bytes "
                << before.bytes << " to " << now.bytes << "\n";
    }
    CHECK(gone());
  }
}

CHECK_MAIN
