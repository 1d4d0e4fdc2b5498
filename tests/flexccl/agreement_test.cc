// What ranks do between their agreement to a repair and the decision of the new rank, and what a
// new rank finds that comes in vain.
#include <algorithm>
#include <string>
#include <thread>

#include "crew.h"
#include "membership/membership.h"
#include "transport/endpoint.h"

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

// Its block has a place in the result, and the operation is made for as many ranks.
TEST(blocks_wait_for_a_rank_that_is_added) {
  for (const auto transport : kAll) {
    Crew crew(4, transport);
    flexcclInfo_t info;
    ncclComm_t fresh = crew.recruit(4, &info);
    for (int rank = 0; rank < 4; ++rank) must(ncclAddNode(crew.at(rank), &info), "ncclAddNode");
    crew.comms.push_back(fresh);
    float in[] = {1, 2, 3, 4, 5}, out[5][5] = {};
    const auto gather = [&](int rank) {
      must(ncclAllGather(in + rank, out[rank], 1, ncclFloat32, crew.at(rank), nullptr), "gather");
    };
    for (int rank = 0; rank < 4; ++rank) gather(rank);
    must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank");
    gather(4);
    crew.synchronize();
    for (const auto& got : out) CHECK(std::equal(got, got + 5, in));
  }
}

// An agent may tell a rank twice: it does not wait for the decision then, either.
TEST(to_agree_twice_is_to_agree_once) {
  for (const auto transport : kAll) {
    Crew crew(4, transport);
    crew.kill(2);
    flexcclInfo_t info;
    ncclComm_t fresh = crew.recruit(2, &info);
    for (int time = 0; time < 2; ++time)
      for (const int rank : {0, 1, 3})
        must(ncclReplaceNode(crew.at(rank), 2, &info), "ncclReplaceNode");
    for (const int rank : {0, 1, 3}) CHECK_EQ(state_of(crew.at(rank)).epoch, 0u);
    must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank");
    crew.at(2) = fresh;
    // And when it is decided: it has taken the step when it returns.
    for (const int rank : {0, 1, 3}) {
      must(ncclReplaceNode(crew.at(rank), 2, &info), "ncclReplaceNode, again");
      CHECK_EQ(state_of(crew.at(rank)).epoch, 1u);
    }
    Sum sum(crew);
    for (int rank = 0; rank < 4; ++rank) sum.begin(rank);
    sum.is(4);
  }
}

// Those that are further away leave it to the neighbours to find out.
TEST(both_neighbours_make_sure_that_the_new_rank_is_there) {
  for (const auto transport : kAll) {
    Crew crew(5, transport);
    crew.kill(2);
    flexcclInfo_t info;
    CHECK_EQ(ncclCommAbort(crew.recruit(2, &info)), ncclSuccess);
    for (const int rank : {0, 1, 3, 4}) {
      const bool asks = rank == 1 || rank == 3;
      CHECK_EQ(ncclReplaceNode(crew.at(rank), 2, &info), asks ? ncclRemoteError : ncclSuccess);
      if (asks) CHECK(says(nullptr, "the new rank [2] does not answer"));
    }
    crew.replace(2);
    Sum sum(crew);
    for (int rank = 0; rank < 5; ++rank) sum.begin(rank);
    sum.is(5);
  }
}

namespace {

// Behind the address of a new rank is one of another epoch.
struct Other : flexccl::Responder {
  flexccl::Answer answer(const flexccl::Question&, std::shared_ptr<const void>*,
                         std::span<const std::byte>*) override {
    return {.epoch = 9};
  }
};

}  // namespace

TEST(a_new_rank_that_is_in_another_epoch_is_not_there) {
  Crew crew(4, flexcclLoopback);
  crew.kill(2);
  flexcclInfo_t exported, raw{};
  must(ncclCommExportInfo(crew.at(1), 2, &exported), "ncclCommExportInfo");
  flexccl::Endpoint& here = flexccl::Endpoint::process();
  std::uint64_t position = 0;
  const auto joined = flexccl::join_as(exported, 2, here.address(), &position);
  const flexccl::Info info = flexccl::new_node_info(joined);
  std::memcpy(&raw, &info, sizeof info);
  const auto inbox =
      std::make_shared<flexccl::Inbox>(fingerprint(joined.key), 1, std::make_shared<Other>());
  here.add({joined.comm, 1, 2}, inbox);
  CHECK_EQ(ncclReplaceNode(crew.at(1), 2, &raw), ncclRemoteError);
  CHECK(says(nullptr, "it is in epoch [9], not in [1]"));
  here.remove({joined.comm, 1, 2}, inbox);
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
