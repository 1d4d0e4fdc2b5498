// What ranks do between their agreement to a repair and the decision of the new rank, and what a
// new rank finds that comes in vain.
#include <string>
#include <thread>

#include "crew.h"

namespace {

constexpr flexcclTransport_t kAll[] = {flexcclLoopback, flexcclShm, flexcclTcp};

int count_of(ncclComm_t comm) {
  int count = -1;
  must(ncclCommCount(comm, &count), "ncclCommCount");
  return count;
}

bool says(ncclComm_t comm, const char* words) {
  const std::string sentence = ncclGetLastError(comm);
  const bool found = sentence.find(words) != std::string::npos;
  if (!found) std::cerr << sentence << "\n";
  return found;
}

// Adds one for each rank.
struct Sum {
  explicit Sum(Crew& crew) : crew(crew), values(static_cast<std::size_t>(crew.size()), 1.0f) {}
  void begin(int rank) {
    float* value = &values[static_cast<std::size_t>(rank)];
    must(ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, crew.at(rank), nullptr), "sum");
  }
  void is(float expected) {
    crew.synchronize();
    for (int rank = 0; rank < crew.size(); ++rank)
      if (crew.at(rank)) CHECK_EQ(values[static_cast<std::size_t>(rank)], expected);
  }
  Crew& crew;
  std::vector<float> values;
};

}  // namespace

// Its part is in the result: without it the operation would be over when it comes.
TEST(operations_wait_for_a_rank_that_is_added) {
  for (const auto transport : kAll)
    for (const int ranks : {3, 4}) {
      Crew crew(ranks, transport);
      flexcclInfo_t info;
      ncclComm_t fresh = crew.recruit(ranks, &info);
      for (int rank = 0; rank < ranks; ++rank)
        must(ncclAddNode(crew.at(rank), &info), "ncclAddNode");
      for (int rank = 0; rank < ranks; ++rank) CHECK_EQ(count_of(crew.at(rank)), ranks + 1);
      crew.comms.push_back(fresh);
      Sum sum(crew);
      for (int rank = 0; rank < ranks; ++rank) sum.begin(rank);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      for (int rank = 0; rank < ranks; ++rank) CHECK_EQ(state_of(crew.at(rank)).epoch, 0u);
      must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank");
      sum.begin(ranks);
      sum.is(static_cast<float>(ranks + 1));
      for (int rank = 0; rank <= ranks; ++rank) CHECK_EQ(state_of(crew.at(rank)).epoch, 1u);
    }
}

TEST(an_aborted_rank_waits_for_no_decision) {
  for (const auto transport : kAll) {
    Crew crew(4, transport);
    flexcclInfo_t info;
    ncclComm_t fresh = crew.recruit(4, &info);
    for (int rank = 0; rank < 4; ++rank) must(ncclAddNode(crew.at(rank), &info), "ncclAddNode");
    Sum sum(crew);
    for (int rank = 0; rank < 4; ++rank) sum.begin(rank);
    for (int rank = 0; rank < 4; ++rank) crew.kill(rank);
    CHECK_EQ(ncclCommAbort(fresh), ncclSuccess);
  }
}

TEST(the_decision_is_not_waited_for_without_an_end) {
  flexcclSetTimeout(20000);
  Cluster cluster(4, flexcclShm, 400, 300, 1);
  flexcclInfo_t exported, info;
  ncclComm_t fresh = nullptr;
  must(ncclCommExportInfo(cluster.at(0), 4, &exported), "ncclCommExportInfo");
  must(ncclInitNewNode(&fresh, &exported, 4, &info), "ncclInitNewNode");
  for (ncclComm_t comm : cluster.comms) must(ncclAddNode(comm, &info), "ncclAddNode");
  float value = 1;
  must(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, cluster.at(1), nullptr), "sum");
  CHECK_EQ(flexcclSynchronize(cluster.at(1)), ncclRemoteError);
  CHECK(says(cluster.at(1), "rank [1] waited [700] ms for the new rank"));
  CHECK_EQ(ncclCommAbort(fresh), ncclSuccess);
}

// Nor does it take itself for one of them.
TEST(a_new_rank_that_reaches_no_other_one_says_so) {
  for (const auto transport : kAll) {
    Crew crew(3, transport);
    crew.kill(2);
    flexcclInfo_t info;
    ncclComm_t fresh = crew.recruit(2, &info);
    for (const int rank : {0, 1}) crew.kill(rank);
    CHECK_EQ(ncclCommSetupNewRank(fresh), ncclRemoteError);
    CHECK(says(nullptr, "the new rank [2] reaches none of the others"));
    CHECK_EQ(ncclCommAbort(fresh), ncclSuccess);
  }
}

// Of two ranks one is on both sides of the other: it is told once.
TEST(the_only_other_rank_is_both_neighbours) {
  for (const auto transport : kAll)
    for (const std::uint64_t repair_ms : {std::uint64_t{0}, Crew::kRepairMs}) {
      Crew crew(2, transport, repair_ms);
      for (const int slot : {1, 0}) {
        crew.kill(slot);
        crew.replace(slot);
        Sum sum(crew);
        for (const int rank : {0, 1}) sum.begin(rank);
        sum.is(2);
      }
    }
}

CHECK_MAIN
