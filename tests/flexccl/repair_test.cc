// Ranks that die and are replaced, between operations and at every frame of one: the results are
// those of a run that nothing disturbed, bit for bit, and everything ends.
#include <dirent.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>

#include "crew.h"

namespace {

constexpr flexcclTransport_t kAll[] = {flexcclLoopback, flexcclShm, flexcclTcp};
constexpr std::size_t kCount = 1003, kLarge = 150001;  // kLarge: two slices per chunk

Task all_reduce(bool in_place, std::size_t count = kCount) {
  return {"all-reduce", 4, count, count, in_place, [count](Task& task, int rank, ncclComm_t comm) {
            return ncclAllReduce(task.input(rank), task.output(rank), count, ncclFloat32, ncclSum,
                                 comm, nullptr);
          }};
}

Task reduce_scatter(bool in_place, std::size_t count = kCount) {
  return {"reduce-scatter",
          4,
          4 * count,
          count,
          in_place,
          [count, in_place](Task& task, int rank, ncclComm_t comm) {
            float* out = task.output(rank);
            if (in_place) out += static_cast<std::size_t>(rank) * count;
            return ncclReduceScatter(task.input(rank), out, count, ncclFloat32, ncclAvg, comm,
                                     nullptr);
          }};
}

// One rank sends to and receives from every other one.
ncclResult_t exchange(Task& task, int rank, ncclComm_t comm) {
  ncclGroupStart();
  for (int peer = 0; peer < task.nranks; ++peer) {
    if (peer == rank) continue;
    const std::size_t at = static_cast<std::size_t>(peer) * kCount;
    ncclSend(task.input(rank) + at, kCount, ncclFloat32, peer, comm, nullptr);
    ncclRecv(task.output(rank) + at, kCount, ncclFloat32, peer, comm, nullptr);
  }
  return ncclGroupEnd();
}

std::vector<Task> other_tasks() {
  constexpr std::size_t kAllBlocks = 4 * kCount;
  return {
      {"all-gather", 4, kCount, kAllBlocks, false,
       [](Task& task, int rank, ncclComm_t comm) {
         return ncclAllGather(task.input(rank), task.output(rank), kCount, ncclFloat32, comm,
                              nullptr);
       }},
      {"broadcast", 4, kCount, kCount, true,
       [](Task& task, int rank, ncclComm_t comm) {
         return ncclBcast(task.output(rank), kCount, ncclFloat32, 1, comm, nullptr);
       }},
      {"reduce", 4, kCount, kCount, false,
       [](Task& task, int rank, ncclComm_t comm) {
         return ncclReduce(task.input(rank), task.output(rank), kCount, ncclFloat32, ncclSum, 3,
                           comm, nullptr);
       }},
      {"all-to-all", 4, kAllBlocks, kAllBlocks, false,
       [](Task& task, int rank, ncclComm_t comm) {
         return ncclAlltoAll(task.input(rank), task.output(rank), kCount, ncclFloat32, comm,
                             nullptr);
       }},
      {"gather", 4, kCount, kAllBlocks, false,
       [](Task& task, int rank, ncclComm_t comm) {
         return ncclGather(task.input(rank), task.output(rank), kCount, ncclFloat32, 0, comm,
                           nullptr);
       }},
      {"scatter", 4, kAllBlocks, kCount, false,
       [](Task& task, int rank, ncclComm_t comm) {
         return ncclScatter(task.input(rank), task.output(rank), kCount, ncclFloat32, 2, comm,
                            nullptr);
       }},
      {"send and receive", 4, kAllBlocks, kAllBlocks, false, exchange},
  };
}

// Cuts rank 2 off at a frame and replaces it. `disturb` replaces instead of the plain call. Returns
// whether the fault struck.
bool kill_and_redo(Task& task, flexcclTransport_t transport, const std::string& rule,
                   const std::vector<std::vector<float>>& expected,
                   const std::function<void(Crew&)>& repair) {
  CHECK_EQ(flexcclSetFault(rule.c_str()), ncclSuccess);
  Crew crew(task.nranks, transport);
  for (int rank = 0; rank < task.nranks; ++rank) task.prepare(rank);
  crew.run([&](int rank) { return task.run(rank, crew.at(rank)); });
  const bool struck = flexcclSynchronize(crew.at(2)) != ncclSuccess;
  CHECK_EQ(flexcclSetFault(nullptr), ncclSuccess);
  if (struck) repair(crew);
  crew.synchronize();
  const bool same = same_bits(task.out, expected);
  if (!same) std::cerr << task.name << " over " << transport << " with " << rule << "\n";
  CHECK(same);
  // And it goes on as if nothing had happened.
  for (int rank = 0; rank < task.nranks; ++rank) task.prepare(rank);
  crew.run([&](int rank) { return task.run(rank, crew.at(rank)); });
  crew.synchronize();
  CHECK(same_bits(task.out, expected));
  return struck;
}

void replace_and_repeat(Task& task, Crew& crew, int slot) {
  const std::uint64_t done = crew.kill(slot);
  CHECK_EQ(done, 0u);
  crew.replace(slot, 0);
  task.prepare(slot);
  must(task.run(slot, crew.at(slot)), task.name);
}

// Every frame, whole and cut in two; returns how many faults struck.
int sweep(Task task, flexcclTransport_t transport, const std::string& more = "") {
  const auto expected = task.reference(transport);
  int struck = 0;
  for (int frame = 1;; ++frame) {
    const std::string rule = "cut:rank=2,frame=" + std::to_string(frame) + more;
    if (!kill_and_redo(task, transport, rule, expected,
                       [&](Crew& crew) { replace_and_repeat(task, crew, 2); }))
      return struck;
    ++struck;
  }
}

std::size_t open_files() {
  DIR* folder = opendir("/proc/self/fd");
  std::size_t count = 0;
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

}  // namespace

TEST(replace_between_operations) {
  for (const auto transport : kAll)
    for (const std::uint64_t repair_ms : {std::uint64_t{0}, Crew::kRepairMs}) {
      Task task = all_reduce(true);
      const auto expected = task.reference(transport);
      Crew crew(4, transport, repair_ms);
      for (int round = 0;; ++round) {
        for (int rank = 0; rank < 4; ++rank) task.prepare(rank);
        crew.run([&](int rank) { return task.run(rank, crew.at(rank)); });
        crew.synchronize();
        CHECK(same_bits(task.out, expected));
        // A survivor that was told before the step was decided takes it in its next operation.
        for (int rank = 0; rank < 4; ++rank)
          CHECK_EQ(state_of(crew.at(rank)).epoch, static_cast<std::uint32_t>(round));
        if (round == 3) break;
        const int slot = (round + 3) % 4;
        crew.kill(slot);
        crew.replace(slot);
        CHECK_EQ(state_of(crew.at(slot)).nranks, 4);
      }
    }
}

TEST(kill_at_every_frame_of_an_all_reduce) {
  for (const auto transport : kAll) {
    CHECK(sweep(all_reduce(true), transport) >= 6);
    CHECK(sweep(all_reduce(false), transport, ",on=receive") >= 6);
    CHECK(sweep(all_reduce(true, kLarge), transport, ",bytes=192") >= 12);
  }
}

TEST(kill_at_every_frame_of_a_reduce_scatter) {
  for (const auto transport : kAll) {
    CHECK(sweep(reduce_scatter(false), transport) >= 3);
    CHECK(sweep(reduce_scatter(true), transport, ",on=receive") >= 3);
  }
}

TEST(kill_in_every_other_operation) {
  for (const Task& task : other_tasks())
    for (const auto transport : kAll) CHECK(sweep(task, transport) >= 1);
}

TEST(second_kill_during_the_repair) {
  for (const auto transport : kAll) {
    Task task = all_reduce(true);
    const auto expected = task.reference(transport);
    for (int frame = 1; frame <= 6; ++frame) {
      const std::string rule = "cut:rank=2,frame=" + std::to_string(frame);
      // The new rank dies when half of the survivors have taken it.
      CHECK(kill_and_redo(task, transport, rule, expected, [&](Crew& crew) {
        crew.kill(2);
        flexcclInfo_t info;
        ncclComm_t fresh = crew.recruit(2, &info, 0);
        must(ncclReplaceNode(crew.at(1), 2, &info), "ncclReplaceNode");
        CHECK_EQ(ncclCommAbort(fresh), ncclSuccess);
        CHECK_EQ(ncclReplaceNode(crew.at(3), 2, &info), ncclRemoteError);  // does not answer
        CHECK_EQ(state_of(crew.at(3)).epoch, 0u);
        crew.replace(2, 0);
        task.prepare(2);
        must(task.run(2, crew.at(2)), task.name);
      }));
      // A survivor dies while the others redo.
      CHECK(kill_and_redo(task, transport, rule, expected, [&](Crew& crew) {
        replace_and_repeat(task, crew, 2);
        const bool done = crew.kill(1) && crew.all_done();
        crew.replace(1, done ? 1 : 0);
        if (done) return;
        task.prepare(1);
        must(task.run(1, crew.at(1)), task.name);
      }));
    }
  }
}

TEST(without_a_repair_the_operation_ends) {
  for (const auto transport : kAll) {
    Task task = all_reduce(true);
    Crew crew(4, transport, 200);
    for (int rank = 0; rank < 4; ++rank) task.prepare(rank);
    crew.kill(2);
    for (const int rank : {0, 1, 3}) must(task.run(rank, crew.at(rank)), task.name);
    CHECK(comes([&] { return state_of(crew.at(1)).paused == 1; }));
    CHECK_EQ(state_of(crew.at(1)).suspect, 2);
    CHECK_EQ(flexcclSynchronize(crew.at(1)), ncclRemoteError);
    const std::string sentence = ncclGetLastError(crew.at(1));
    CHECK(sentence.find("rank [2]") != std::string::npos);
    CHECK(sentence.find("no repair came within [200] ms") != std::string::npos);
    // The error of rank 1 is final, so a repair is refused there.
    flexcclInfo_t info;
    CHECK_EQ(ncclCommExportInfo(crew.at(1), 2, &info), ncclRemoteError);
  }
}

TEST(a_paused_operation_can_be_aborted) {
  Task task = all_reduce(true);
  Crew crew(4, flexcclShm);
  for (int rank = 0; rank < 4; ++rank) task.prepare(rank);
  crew.kill(2);
  for (const int rank : {0, 1, 3}) must(task.run(rank, crew.at(rank)), task.name);
  CHECK(comes([&] { return state_of(crew.at(1)).paused == 1; }));
  for (const int rank : {0, 1, 3}) crew.kill(rank);
}

TEST(idle_ranks_forget_what_nobody_needs) {
  for (Task task : {all_reduce(true), reduce_scatter(false), other_tasks().back()}) {
    Crew crew(4, flexcclShm);
    for (int rank = 0; rank < 4; ++rank) task.prepare(rank);
    crew.run([&](int rank) { return task.run(rank, crew.at(rank)); });
    crew.synchronize();
    for (int rank = 0; rank < 4; ++rank)
      CHECK(comes([&] { return state_of(crew.at(rank)).kept_bytes == 0; }));
  }
}

// It had not met the sender when the next step came, which does not make the message its
// predecessor's.
TEST(a_message_to_a_new_rank_outlives_the_next_repair) {
  for (const auto transport : kAll) {
    Crew crew(3, transport);
    const float values[] = {4.0f, 5.0f, 6.0f};
    float got = 0.0f;
    const auto send = [&](const float* value) {
      must(ncclSend(value, 1, ncclFloat32, 1, crew.at(0), nullptr), "send");
      must(flexcclSynchronize(crew.at(0)), "synchronize");
    };
    send(&values[0]);  // not received yet when its rank dies
    crew.kill(1), crew.replace(1);
    send(&values[1]);
    crew.kill(2), crew.replace(2);
    send(&values[2]);
    must(ncclRecv(&got, 1, ncclFloat32, 0, crew.at(1), nullptr), "receive");
    must(flexcclSynchronize(crew.at(1)), "synchronize");
    CHECK_EQ(got, 5.0f);
  }
}

TEST(add_and_remove) {
  for (const auto transport : kAll)
    for (const std::uint64_t repair_ms : {std::uint64_t{0}, Crew::kRepairMs}) {
      Crew crew(3, transport, repair_ms);
      const auto sum = [&](float expected) {
        std::vector<float> values(crew.comms.size(), 1.0f);
        ncclGroupStart();
        for (std::size_t slot = 0; slot < values.size(); ++slot)
          if (crew.comms[slot])
            must(ncclAllReduce(&values[slot], &values[slot], 1, ncclFloat32, ncclSum,
                               crew.comms[slot], nullptr),
                 "ncclAllReduce");
        must(ncclGroupEnd(), "group");
        for (std::size_t slot = 0; slot < values.size(); ++slot) {
          if (!crew.comms[slot]) continue;
          must(flexcclSynchronize(crew.comms[slot]), "synchronize");
          CHECK_EQ(values[slot], expected);
        }
      };
      sum(3);
      crew.kill(1);
      for (const int slot : {0, 2}) {
        must(ncclRemoveNode(crew.at(slot), 1), "ncclRemoveNode");
        must(ncclRemoveNode(crew.at(slot), 1), "ncclRemoveNode, again");
      }
      sum(2);
      int rank = -1, count = -1;
      ncclCommUserRank(crew.at(2), &rank);
      ncclCommCount(crew.at(2), &count);
      CHECK_EQ(rank, 2);
      CHECK_EQ(count, 2);
      CHECK_EQ(state_of(crew.at(2)).position, 1);
      crew.comms.resize(5, nullptr);
      for (const int slot : {4, 1}) {  // a reserved slot, and the one that became free
        flexcclInfo_t info;
        ncclComm_t fresh = crew.recruit(slot, &info);
        for (int other = 0; other < 5; ++other)
          if (crew.at(other)) must(ncclAddNode(crew.at(other), &info), "ncclAddNode");
        must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank");
        crew.at(slot) = fresh;
        sum(slot == 4 ? 3 : 4);
      }
      flexcclInfo_t info;
      CHECK_EQ(ncclCommExportInfo(crew.at(0), 7, &info), ncclInvalidArgument);
      CHECK_EQ(ncclRemoveNode(crew.at(0), 3), ncclInvalidUsage);
    }
}

namespace {

// What the others of four ranks have, which call this with ones while rank 2 is dead, and remove it
// once they have come as far.
std::vector<float> without_rank_2(flexcclTransport_t transport,
                                  const std::function<ncclResult_t(float*, ncclComm_t)>& call,
                                  const std::function<bool(Crew&)>& have_come) {
  Crew crew(4, transport);
  std::vector<float> values(4, 1.0f);
  crew.kill(2);
  for (const int rank : {0, 1, 3})
    must(call(&values[static_cast<std::size_t>(rank)], crew.at(rank)), "call");
  CHECK(comes([&] { return have_come(crew); }));
  for (const int rank : {0, 1, 3}) must(ncclRemoveNode(crew.at(rank), 2), "ncclRemoveNode");
  for (const int rank : {0, 1, 3}) must(flexcclSynchronize(crew.at(rank)), "synchronize");
  return values;
}

}  // namespace

TEST(remove_in_the_middle_of_an_operation) {
  const auto call = [](float* value, ncclComm_t comm) {
    return ncclAllReduce(value, value, 1, ncclFloat32, ncclAvg, comm, nullptr);
  };
  for (const auto transport : kAll) {
    const auto values = without_rank_2(transport, call,
                                       [](Crew& crew) { return state_of(crew.at(1)).paused == 1; });
    for (const std::size_t rank : {0, 1, 3}) CHECK_EQ(values[rank], 1.0f);  // the average of three
  }
}

// Ranks 0 and 1 have done their part among four; the root asks them for their inputs among three.
TEST(remove_after_others_have_completed_an_average) {
  const auto call = [](float* value, ncclComm_t comm) {
    return ncclReduce(value, value, 1, ncclFloat32, ncclAvg, 3, comm, nullptr);
  };
  for (const auto transport : kAll) {
    const auto values = without_rank_2(
        transport, call, [](Crew& crew) { return state_of(crew.at(0)).operation == 1; });
    CHECK_EQ(values[3], 1.0f);
  }
}

// What others have decided since then does not keep a rank from following, nor from being told once
// more.
TEST(a_removal_is_followed_after_later_steps) {
  Crew crew(6, flexcclLoopback);
  std::vector<float> values(6, 1.0f);
  crew.kill(5);
  must(ncclRemoveNode(crew.at(0), 5), "ncclRemoveNode");
  crew.kill(2);
  flexcclInfo_t info;
  crew.at(2) = crew.recruit(2, &info);
  for (const int rank : {1, 3}) must(ncclReplaceNode(crew.at(rank), 2, &info), "ncclReplaceNode");
  must(ncclCommSetupNewRank(crew.at(2)), "ncclCommSetupNewRank");
  for (const int rank : {0, 1, 3, 4}) must(ncclRemoveNode(crew.at(rank), 5), "ncclRemoveNode");
  for (int rank = 0; rank < 5; ++rank) {
    float* value = &values[static_cast<std::size_t>(rank)];
    must(ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, crew.at(rank), nullptr), "call");
  }
  for (int rank = 0; rank < 5; ++rank) {
    must(flexcclSynchronize(crew.at(rank)), "synchronize");
    CHECK_EQ(values[static_cast<std::size_t>(rank)], 5.0f);
    CHECK_EQ(state_of(crew.at(rank)).epoch, 2u);
  }
}

TEST(nothing_is_owed_to_a_rank_that_was_removed) {
  Crew crew(3, flexcclLoopback);
  const float value = 1.0f;
  must(ncclSend(&value, 1, ncclFloat32, 2, crew.at(0), nullptr), "send");
  must(flexcclSynchronize(crew.at(0)), "synchronize");
  CHECK_EQ(state_of(crew.at(0)).owed, 1u);
  crew.kill(2);
  for (const int rank : {0, 1}) must(ncclRemoveNode(crew.at(rank), 2), "ncclRemoveNode");
  CHECK_EQ(state_of(crew.at(0)).owed, 0u);
  CHECK_EQ(state_of(crew.at(0)).kept_bytes, 0u);
}

// Nothing comes of it any more, so nothing is waited for.
TEST(a_receive_from_a_rank_that_was_removed_ends) {
  Crew crew(3, flexcclLoopback);
  float value = 1.0f;
  const auto begun = std::chrono::steady_clock::now();
  crew.kill(2);
  must(ncclRecv(&value, 1, ncclFloat32, 2, crew.at(0), nullptr), "receive");
  for (const int rank : {0, 1}) must(ncclRemoveNode(crew.at(rank), 2), "ncclRemoveNode");
  CHECK_EQ(flexcclSynchronize(crew.at(0)), ncclInvalidArgument);
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(Crew::kRepairMs));
}

// Their buffers have a block for the rank that is gone: a rank that has begun one cannot finish it,
// and must not think that it did. What is left of the communicator can be shrunk into a new one.
TEST(remove_ends_operations_with_blocks) {
  for (const auto transport : kAll)
    for (Task task : {reduce_scatter(false), other_tasks()[0], other_tasks()[3]}) {
      Crew crew(4, transport);
      for (int rank = 0; rank < 4; ++rank) task.prepare(rank);
      crew.kill(2);
      for (const int rank : {0, 1, 3}) must(task.run(rank, crew.at(rank)), task.name);
      for (const int rank : {0, 1, 3})
        CHECK(comes([&] { return state_of(crew.at(rank)).entered == 1; }));
      for (const int rank : {0, 1, 3}) must(ncclRemoveNode(crew.at(rank), 2), "ncclRemoveNode");
      int gone = 2;
      std::vector<ncclComm_t> smaller(4);
      for (const int rank : {0, 1, 3}) {
        CHECK_EQ(flexcclSynchronize(crew.at(rank)), ncclInvalidUsage);
        CHECK(std::string(ncclGetLastError(crew.at(rank)))
                  .find("changed the number of ranks from [4] to [3]") != std::string::npos);
      }
      for (const int rank : {0, 1, 3})
        must(ncclCommShrink(crew.at(rank), &gone, 1, &smaller[static_cast<std::size_t>(rank)],
                            nullptr, NCCL_SHRINK_ABORT),
             "ncclCommShrink");
      std::erase(smaller, nullptr);
      std::vector<float> values(3, 1.0f);
      ncclGroupStart();
      for (std::size_t i = 0; i < 3; ++i)
        ncclAllReduce(&values[i], &values[i], 1, ncclFloat32, ncclSum, smaller[i], nullptr);
      must(ncclGroupEnd(), "all-reduce among those that stay");
      for (std::size_t i = 0; i < 3; ++i) {
        must(flexcclSynchronize(smaller[i]), "flexcclSynchronize");
        CHECK_EQ(values[i], 3.0f);
        ncclCommDestroy(smaller[i]);
      }
    }
}

TEST(infos_are_checked) {
  Crew crew(3, flexcclTcp), other(3, flexcclTcp);
  flexcclInfo_t info, exported;
  ncclComm_t fresh = nullptr;
  crew.kill(1);
  other.kill(1);
  must(ncclCommExportInfo(crew.at(0), 1, &exported), "ncclCommExportInfo");
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 2, &info), ncclInvalidArgument);
  exported.internal[40] = static_cast<char>(exported.internal[40] ^ 1);
  CHECK_EQ(ncclInitNewNode(&fresh, &exported, 1, &info), ncclInvalidArgument);
  exported.internal[40] = static_cast<char>(exported.internal[40] ^ 1);
  must(ncclInitNewNode(&fresh, &exported, 1, &info), "ncclInitNewNode");
  float value = 1;
  CHECK_EQ(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, fresh, nullptr),
           ncclInvalidUsage);  // not set up yet
  CHECK_EQ(ncclReplaceNode(crew.at(0), 2, &info), ncclInvalidArgument);
  CHECK_EQ(ncclReplaceNode(other.at(0), 1, &info), ncclInvalidArgument);
  CHECK_EQ(ncclAddNode(crew.at(0), &info), ncclInvalidArgument);
  for (const int rank : {0, 2, 0}) must(ncclReplaceNode(crew.at(rank), 1, &info), "replace");
  must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank");
  crew.at(1) = fresh;
}

TEST(nothing_is_left_behind) {
  Task task = all_reduce(true);
  for (const auto transport : kAll) {
    const std::size_t before = open_files();
    sweep(task, transport);
    if (!comes([&] { return open_files() <= before; }))
      std::cerr << "[" << before << "] descriptors before, [" << open_files() << "] after\n";
    CHECK(open_files() <= before);
  }
}

CHECK_MAIN
