// Where a rank gets an operation that others have completed: from whom, and how long it waits.
#include <chrono>
#include <string>

#include "crew.h"

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
