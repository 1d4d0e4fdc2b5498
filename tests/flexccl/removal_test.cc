// Ranks that are removed, and what the others still have of them.
#include <chrono>
#include <memory>
#include <string>

#include "crew.h"

namespace {

constexpr flexcclTransport_t kAll[] = {flexcclLoopback, flexcclShm, flexcclTcp};
constexpr int kRoot = 2;

ncclResult_t broadcast(Crew& crew, int rank, float* value) {
  return ncclBcast(value, 1, ncclFloat32, kRoot, crew.at(rank), nullptr);
}

void remove_root(Crew& crew) {
  for (const int rank : {0, 1, 3}) must(ncclRemoveNode(crew.at(rank), kRoot), "ncclRemoveNode");
}

}  // namespace

// Rank 3 has the result, rank 1 waits for it, and rank 0 has not begun when the root goes.
TEST(a_broadcast_of_a_rank_that_was_removed_is_taken_from_who_has_it) {
  for (const auto transport : kAll) {
    Crew crew(4, transport);
    float values[] = {0.0f, 0.0f, 5.0f, 0.0f};
    for (const int rank : {kRoot, 3, 1}) must(broadcast(crew, rank, &values[rank]), "ncclBcast");
    for (const int rank : {kRoot, 3}) must(flexcclSynchronize(crew.at(rank)), "synchronize");
    CHECK(comes([&] { return state_of(crew.at(1)).entered == 1; }));
    crew.kill(kRoot);
    remove_root(crew);
    must(broadcast(crew, 0, &values[0]), "ncclBcast, after the removal");
    for (const int rank : {0, 1}) must(flexcclSynchronize(crew.at(rank)), "synchronize");
    for (const float value : values) CHECK_EQ(value, 5.0f);
    // And they go on together.
    float sums[] = {1.0f, 1.0f, 0.0f, 1.0f};
    for (const int rank : {0, 1, 3})
      must(ncclAllReduce(&sums[rank], &sums[rank], 1, ncclFloat32, ncclSum, crew.at(rank), nullptr),
           "ncclAllReduce");
    for (const int rank : {0, 1, 3}) must(flexcclSynchronize(crew.at(rank)), "synchronize");
    for (const int rank : {0, 1, 3}) CHECK_EQ(sums[rank], 3.0f);
  }
}

// Also one that had begun before, and one that begins afterwards. The first to find out closes its
// links, so the others get no answer from it, and do not wait for its repair.
TEST(a_broadcast_that_no_rank_has_names_the_root_that_was_removed) {
  for (const auto transport : kAll) {
    Crew crew(4, transport);
    float values[4] = {};
    for (const int rank : {1, 3}) must(broadcast(crew, rank, &values[rank]), "ncclBcast");
    for (const int rank : {1, 3})
      CHECK(comes([&] { return state_of(crew.at(rank)).entered == 1; }));
    crew.kill(kRoot);
    remove_root(crew);
    const auto begun = std::chrono::steady_clock::now();
    must(broadcast(crew, 0, &values[0]), "ncclBcast, after the removal");
    for (const int rank : {0, 1, 3}) {
      CHECK_EQ(flexcclSynchronize(crew.at(rank)), ncclInvalidUsage);
      CHECK(std::string(ncclGetLastError(crew.at(rank))).find("the root, rank [2], was removed") !=
            std::string::npos);
    }
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(Crew::kRepairMs));
  }
}

// A replacement of a rank that took it so finds the same call in its records.
TEST(a_broadcast_that_was_taken_so_is_replayed) {
  struct alignas(64) Arena {
    std::byte bytes[1 << 16] = {};
  };
  const auto arena = std::make_unique<Arena>();
  Crew crew(4, flexcclLoopback);
  must(flexcclSetRecords(crew.at(0), arena->bytes, sizeof arena->bytes), "flexcclSetRecords");
  float values[] = {0.0f, 0.0f, 5.0f, 0.0f};
  for (const int rank : {kRoot, 3}) must(broadcast(crew, rank, &values[rank]), "ncclBcast");
  for (const int rank : {kRoot, 3}) must(flexcclSynchronize(crew.at(rank)), "synchronize");
  crew.kill(kRoot);
  remove_root(crew);
  must(broadcast(crew, 0, &values[0]), "ncclBcast");
  must(flexcclSynchronize(crew.at(0)), "synchronize");
  crew.kill(0);
  flexcclInfo_t info;
  ncclComm_t fresh = crew.recruit(0, &info);
  must(flexcclReplay(fresh, arena->bytes, sizeof arena->bytes, 0), "flexcclReplay");
  for (const int rank : {1, 3}) must(ncclReplaceNode(crew.at(rank), 0, &info), "ncclReplaceNode");
  must(ncclCommSetupNewRank(fresh), "ncclCommSetupNewRank");
  crew.at(0) = fresh;
  values[0] = 0.0f;
  must(broadcast(crew, 0, &values[0]), "ncclBcast, again");
  must(flexcclSynchronize(crew.at(0)), "synchronize");
  CHECK_EQ(values[0], 5.0f);
  must(broadcast(crew, 1, &values[1]), "ncclBcast");
  must(flexcclSynchronize(crew.at(1)), "synchronize");
  CHECK_EQ(values[1], 5.0f);
}

CHECK_MAIN
