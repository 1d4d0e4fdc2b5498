// Ranks that leave for good: a rank that needs more of them than they have sent gets an error at
// once, although it would wait for a repair of any other rank; one that does not, goes on.
#include <string>
#include <thread>

#include "crew.h"

namespace {

constexpr flexcclTransport_t kAll[] = {flexcclLoopback, flexcclShm, flexcclTcp};
constexpr std::size_t kCount = 1003;

Task all_reduce() {
  return {"all-reduce", 4, kCount, kCount, true, [](Task& task, int rank, ncclComm_t comm) {
            return ncclAllReduce(task.input(rank), task.output(rank), kCount, ncclFloat32, ncclSum,
                                 comm, nullptr);
          }};
}

std::uint64_t number_of(ncclComm_t comm) {
  return state_of(comm).comm;
}

// Ends a rank as its process and program would.
void leave(Crew& crew, int slot) {
  const std::uint64_t number = number_of(crew.at(slot));
  crew.kill(slot);
  must(flexcclRankLeft(number, slot), "flexcclRankLeft");
}

void check_error(ncclComm_t comm, int slot) {
  CHECK_EQ(flexcclSynchronize(comm), ncclRemoteError);
  const std::string sentence = ncclGetLastError(comm);
  const bool named =
      sentence.find("rank [" + std::to_string(slot) + "] has ended") != std::string::npos;
  if (!named) std::cerr << sentence << "\n";
  CHECK(named);
}

}  // namespace

TEST(who_needs_more_of_a_rank_that_has_left_gets_an_error) {
  for (const auto transport : kAll)
    for (const bool early : {true, false}) {
      Crew crew(4, transport);
      Task task = all_reduce();
      for (int rank = 0; rank < 4; ++rank) task.prepare(rank);
      const std::uint64_t number = number_of(crew.at(2));
      early ? leave(crew, 2) : void(crew.kill(2));
      for (const int rank : {0, 1, 3}) must(task.run(rank, crew.at(rank)), task.name);
      if (!early) {
        CHECK(comes([&] { return state_of(crew.at(1)).paused == 1; }));
        must(flexcclRankLeft(number, 2), "flexcclRankLeft");
      }
      for (const int rank : {1, 3}) check_error(crew.at(rank), 2);
      // Rank 0 has no link with it. That its neighbours have failed for good it is told as well.
      must(flexcclRankLeft(number, 1), "flexcclRankLeft");
      must(flexcclRankLeft(number, 3), "flexcclRankLeft");
      CHECK_EQ(flexcclSynchronize(crew.at(0)), ncclRemoteError);
    }
}

TEST(who_has_done_its_part_may_leave) {
  for (const auto transport : kAll) {
    Crew crew(4, transport);
    Task task = all_reduce();
    const auto expected = task.reference(transport);
    for (int rank = 0; rank < 4; ++rank) task.prepare(rank);
    crew.run([&](int rank) { return task.run(rank, crew.at(rank)); });
    must(flexcclSynchronize(crew.at(2)), "flexcclSynchronize");
    leave(crew, 2);
    for (const int rank : {0, 1, 3}) must(flexcclSynchronize(crew.at(rank)), "flexcclSynchronize");
    CHECK(same_bits(task.out, expected));
  }
}

namespace {

// Rank 3 is cut off at this frame that it receives. If rank 2, which it asks first, and one more
// have completed the operation all the same, rank 2 leaves, and a replacement gets what it lacks.
struct CutOff {
  bool struck = false, replaced = false;
};
CutOff cut_off_at(int frame, flexcclTransport_t transport, Task& task) {
  must(flexcclSetFault(("cut,rank=3,on=receive,frame=" + std::to_string(frame)).c_str()), "fault");
  Crew crew(4, transport);
  for (int rank = 0; rank < 4; ++rank) task.prepare(rank);
  crew.run([&](int rank) { return task.run(rank, crew.at(rank)); });
  CutOff cut{flexcclSynchronize(crew.at(3)) != ncclSuccess};
  must(flexcclSetFault(nullptr), "fault");
  const auto has_it = [&](int rank) { return state_of(crew.at(rank)).operation == 1; };
  const auto enough = [&] { return has_it(2) && (has_it(0) || has_it(1)); };
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (cut.struck && !enough() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a rank that can complete it does
  if (cut.struck && enough()) {
    leave(crew, 2);
    crew.kill(3);
    crew.replace(3, 0);
    task.prepare(3);
    must(task.run(3, crew.at(3)), task.name);
    for (const int rank : {0, 1, 3}) must(flexcclSynchronize(crew.at(rank)), "synchronize");
    cut.replaced = true;
  }
  for (int rank = 0; rank < 4; ++rank)
    if (crew.at(rank)) crew.kill(rank);
  return cut;
}

}  // namespace

// Which frame is late enough depends on the order in which links deliver: the frames are gone
// through again until one was.
TEST(a_replaced_rank_gets_what_others_have) {
  constexpr int kRounds = 20;
  for (const auto transport : kAll) {
    Task task = all_reduce();
    const auto expected = task.reference(transport);
    CutOff cut;
    for (int round = 0; round < kRounds && !cut.replaced; ++round)
      for (int frame = 1; !cut.replaced; ++frame) {
        cut = cut_off_at(frame, transport, task);
        if (!cut.struck) break;
      }
    CHECK(cut.replaced);
    CHECK(same_bits(task.out, expected));
  }
}

TEST(messages_that_were_sent_still_come) {
  for (const auto transport : kAll) {
    Crew crew(3, transport);
    float sent[] = {1.5f, 2.5f}, got[] = {0, 0}, more = 0;
    ncclGroupStart();
    ncclSend(sent, 1, ncclFloat32, 0, crew.at(1), nullptr);
    ncclSend(sent + 1, 1, ncclFloat32, 0, crew.at(1), nullptr);
    must(ncclGroupEnd(), "send");
    must(flexcclSynchronize(crew.at(1)), "flexcclSynchronize");
    leave(crew, 1);
    leave(crew, 2);  // without a word
    for (float& one : got) must(ncclRecv(&one, 1, ncclFloat32, 1, crew.at(0), nullptr), "receive");
    must(flexcclSynchronize(crew.at(0)), "flexcclSynchronize");
    CHECK(got[0] == 1.5f && got[1] == 2.5f);
    ncclGroupStart();
    ncclSend(&more, 1, ncclFloat32, 1, crew.at(0), nullptr);
    ncclRecv(&more, 1, ncclFloat32, 2, crew.at(0), nullptr);
    must(ncclGroupEnd(), "group");
    CHECK_EQ(flexcclSynchronize(crew.at(0)), ncclRemoteError);
  }
}

// Nothing shows that nothing comes but that it has been said.
TEST(who_has_never_connected_is_not_waited_for) {
  for (const auto transport : kAll)
    for (const std::uint64_t repair_ms : {std::uint64_t{0}, Crew::kRepairMs}) {
      Crew crew(2, transport, repair_ms);
      float got = 0;
      must(ncclRecv(&got, 1, ncclFloat32, 1, crew.at(0), nullptr), "receive");
      leave(crew, 1);
      CHECK_EQ(flexcclSynchronize(crew.at(0)), ncclRemoteError);
    }
}

TEST(a_new_rank_that_leaves_before_it_decides_is_not_waited_for) {
  for (const auto transport : kAll) {
    Crew crew(4, transport);
    Task task = all_reduce();
    for (int rank = 0; rank < 4; ++rank) task.prepare(rank);
    crew.kill(2);
    flexcclInfo_t info;
    ncclComm_t fresh = crew.recruit(2, &info);
    for (const int rank : {0, 1, 3})
      must(ncclReplaceNode(crew.at(rank), 2, &info), "ncclReplaceNode");
    crew.at(2) = fresh;
    leave(crew, 2);
    for (const int rank : {1, 3}) must(task.run(rank, crew.at(rank)), task.name);
    for (const int rank : {1, 3}) check_error(crew.at(rank), 2);
  }
}

TEST(parts_of_a_communicator_know_it_too) {
  for (const bool before : {true, false}) {
    Crew crew(4, flexcclShm);
    std::vector<ncclComm_t> parts(4);
    crew.run([&](int rank) {
      return ncclCommSplit(crew.at(rank), rank / 2, rank, &parts[static_cast<std::size_t>(rank)],
                           nullptr);
    });
    const std::uint64_t number = number_of(crew.at(3));
    float value = 1;
    const auto sum = [&] {
      must(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, parts[2], nullptr), "sum");
    };
    if (!before) sum();
    must(ncclCommAbort(parts[3]), "ncclCommAbort");
    crew.kill(3);
    must(flexcclRankLeft(number, 3), "flexcclRankLeft");
    if (before) sum();
    check_error(parts[2], 1);
    for (const int rank : {0, 1, 2}) must(ncclCommAbort(parts[static_cast<std::size_t>(rank)]), "");
  }
}

// Rank 0 waits where the ranks meet; `slot` leaves before, or while it waits.
TEST(a_rendezvous_without_hope_ends) {
  for (const auto transport : kAll)
    for (const std::uint64_t repair_ms : {std::uint64_t{0}, Crew::kRepairMs})
      for (const int slot : {1, -1})
        for (const bool before : {true, false}) {
          flexcclSetTransport(transport);
          flexcclSetRepair(repair_ms);
          ncclUniqueId id;
          must(ncclGetUniqueId(&id), "ncclGetUniqueId");
          std::uint64_t number = 0;
          must(flexcclNumberOf(&id, &number), "flexcclNumberOf");
          if (before) must(flexcclRankLeft(number, slot), "flexcclRankLeft");
          ncclResult_t code = ncclSuccess;
          std::string sentence;
          std::thread rank([&] {
            ncclComm_t comm = nullptr;
            code = ncclCommInitRank(&comm, 2, id, 0);
            sentence = ncclGetLastError(nullptr);
          });
          std::this_thread::sleep_for(std::chrono::milliseconds(before ? 0 : 50));
          if (!before) must(flexcclRankLeft(number, slot), "flexcclRankLeft");
          rank.join();
          CHECK_EQ(code, ncclRemoteError);
          CHECK(sentence.find("waits in vain") != std::string::npos);
        }
  CHECK_EQ(flexcclRankLeft(1, -2), ncclInvalidArgument);
}

CHECK_MAIN
