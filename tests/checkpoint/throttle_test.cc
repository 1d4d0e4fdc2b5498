// Copies that take as large a share of a step as those of a large model: never shorter than asked
// for, and seen by the process that looks whether the server stands still.
#include "checkpoint/throttle.h"

#include <cstdlib>
#include <thread>

#include "check.h"
#include "checkpoint/bytes_passed.h"
#include "ring/wait.h"

namespace {

using namespace pyft;  // NOLINT: a test

// Before it is read for the first time.
const int asked_for = setenv("PYFT_COPY_MB_S", "1000", 1);

constexpr uint64_t kBytes = 5'000'000, kMs = 1'000'000;

TEST(lengths_follow_from_the_rate) {
  CHECK_EQ(asked_for, 0);
  CHECK_EQ(checkpoint::bus_ns(kBytes, 1000), 5 * kMs);
  CHECK_EQ(checkpoint::bus_ns(kBytes, 0), uint64_t{0});
  CHECK_EQ(checkpoint::bus_ns(0, 1000), uint64_t{0});
}

TEST(threads_share_the_bus) {
  const uint64_t began = ring::now_ns(), passed = checkpoint::bytes_passed;
  {
    const std::jthread other([] { checkpoint::throttle(kBytes); });
    checkpoint::throttle(kBytes);
  }
  CHECK(ring::now_ns() - began >= 10 * kMs);
  CHECK(checkpoint::bytes_passed > passed);
}

TEST(new_pages_take_longer) {
  const uint64_t began = ring::now_ns();
  checkpoint::throttle_new(kBytes);
  CHECK(ring::now_ns() - began >= 10 * kMs);
}

}  // namespace

CHECK_MAIN
