// Where a rank gets an operation that others have completed: from which one, and how long it waits.
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "crew.h"

namespace {

constexpr std::size_t kSmall = 16, kLarge = 160;
constexpr std::size_t kRecordBytes = 2048;  // room for a large output, not for two

struct alignas(64) Arena {
  std::byte bytes[kRecordBytes] = {};
};

std::vector<float> broadcast(Crew& crew, int rank, std::size_t count, float value) {
  std::vector<float> values(count, rank == 2 ? value : 0.0f);
  must(ncclBcast(values.data(), count, ncclFloat32, 2, crew.at(rank), nullptr), "ncclBcast");
  must(flexcclSynchronize(crew.at(rank)), "synchronize");
  return values;
}

}  // namespace

// Rank 0 has no record of the second operation, and its replacement begins behind the third. Rank
// 1, which lacks all of them, asks it first, and rank 3 has what it does not have.
TEST(a_rank_that_begins_behind_a_gap_is_passed_over) {
  const auto arena = std::make_unique<Arena>();
  Crew crew(4, flexcclLoopback);
  must(flexcclSetRecords(crew.at(0), arena->bytes, sizeof arena->bytes), "flexcclSetRecords");
  const auto one = [&](std::size_t count, float value) {
    for (const int rank : {2, 3, 0}) CHECK_EQ(broadcast(crew, rank, count, value)[0], value);
  };
  one(kLarge, 1.0f);
  CHECK_EQ(state_of(crew.at(0)).recorded, 1);
  one(kLarge, 2.0f);
  CHECK_EQ(state_of(crew.at(0)).recorded, 0);
  must(flexcclCommitted(crew.at(0), 0), "flexcclCommitted");  // it records again from here on
  one(kSmall, 3.0f);
  crew.kill(0);
  flexcclInfo_t info;
  crew.at(0) = crew.recruit(0, &info);
  must(flexcclReplay(crew.at(0), arena->bytes, sizeof arena->bytes, 3), "flexcclReplay");
  for (const int rank : {1, 2, 3}) must(ncclReplaceNode(crew.at(rank), 0, &info), "replace");
  must(ncclCommSetupNewRank(crew.at(0)), "ncclCommSetupNewRank");
  CHECK_EQ(broadcast(crew, 1, kLarge, 0.0f)[0], 1.0f);
  CHECK_EQ(broadcast(crew, 1, kLarge, 0.0f)[0], 2.0f);
  CHECK_EQ(broadcast(crew, 1, kSmall, 0.0f)[0], 3.0f);
}

// Rank 3, which comes after a repair, asks rank 2 first, which is dead and is not replaced.
TEST(a_dead_rank_is_waited_for_once) {
  constexpr std::uint64_t kRepairMs = 1000;
  for (const auto transport : {flexcclLoopback, flexcclShm, flexcclTcp}) {
    Crew crew(4, transport, kRepairMs);
    crew.kill(1);
    crew.replace(1);
    crew.kill(2);
    float value = 0.0f;
    const auto begun = std::chrono::steady_clock::now();
    must(ncclBcast(&value, 1, ncclFloat32, 0, crew.at(3), nullptr), "ncclBcast");
    CHECK_EQ(flexcclSynchronize(crew.at(3)), ncclRemoteError);
    const auto waited = std::chrono::steady_clock::now() - begun;
    const std::string sentence = ncclGetLastError(crew.at(3));
    CHECK(sentence.find("no repair came within [1000] ms") != std::string::npos);
    CHECK(waited >= std::chrono::milliseconds(kRepairMs));
    CHECK(waited < std::chrono::milliseconds(2 * kRepairMs));
  }
}

CHECK_MAIN
