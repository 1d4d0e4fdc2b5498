// Which devices come to rest, which are waited for, and what is said of the others.
#include "checkpoint/snapshot/quiescence.h"

#include <time.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "check.h"

// In front of those of the C library, for all of this process: time passes as it is looked at and
// in sleeps, and on a busy machine as on any other.
namespace {
constexpr uint64_t kLookNs = 100;  // so long does it take to look at the clock
uint64_t time_ns = 1'000'000'000;
std::vector<useconds_t> pauses;
}  // namespace

extern "C" int clock_gettime(clockid_t, timespec* now) noexcept {
  time_ns += kLookNs;
  now->tv_sec = static_cast<time_t>(time_ns / 1'000'000'000);
  now->tv_nsec = static_cast<long>(time_ns % 1'000'000'000);
  return 0;
}

extern "C" int usleep(useconds_t microseconds) {
  pauses.push_back(microseconds);
  time_ns += uint64_t{microseconds} * 1000;
  return 0;
}

namespace {

using namespace pyft;  // NOLINT: a test
using checkpoint::Quiescence;

// A device that works until it has been looked at so often.
struct Device : checkpoint::DeviceState {
  explicit Device(uint64_t ends_at = ~uint64_t{0}) : ends_at(ends_at) {}
  int idle() override { return ++looks < ends_at ? checkpoint::kNotReady : code; }
  bool work() override { return ++asked_for_work, on_work && on_work(); }
  uint64_t progress() override { return on_progress ? on_progress() : 0; }
  bool waits() override { return may_wait; }
  bool capturing() override { return captures; }
  void mapped(std::vector<checkpoint::MemoryRange>*) override {}
  void variables(std::vector<ring::ManifestPlace>*) override {}
  uint64_t ends_at, looks = 0, asked_for_work = 0;
  int code = 0;
  bool may_wait = true, captures = false;
  std::function<bool()> on_work;
  std::function<uint64_t()> on_progress;
};

// One that gets on is looked at for much longer than one that stands still is waited for.
constexpr uint64_t kStillNs = 1'000'000, kMoreNs = 2'000'000, kLimitNs = 20'000'000'000;
constexpr uint64_t kLooks = 60;

checkpoint::SnapshotOptions options(uint64_t limit_ns = kLimitNs) {
  checkpoint::SnapshotOptions made;
  made.drain_timeout_ns = kStillNs;
  made.drain_limit_ns = limit_ns;
  return made;
}

void quiesces(Device& device) {
  const auto given = options();
  const Quiescence::Drained drained = Quiescence(device, given).drain(0);
  CHECK_EQ(drained.problem, "");
  CHECK(!drained.stood_still);
  CHECK_EQ(device.looks, device.ends_at);
}

TEST(a_device_at_rest_is_looked_at_once) {
  Device device(1);
  quiesces(device);
  CHECK_EQ(device.asked_for_work, 1u);
}

TEST(a_device_that_makes_progress_is_waited_for) {
  Device device(kLooks);
  device.on_progress = [&] { return device.looks; };
  quiesces(device);
}

TEST(a_device_whose_work_this_thread_does_is_waited_for) {
  Device device(kLooks);
  bool done = false;
  device.on_work = [&] { return done = !done; };  // a piece at each look
  quiesces(device);
}

TEST(a_device_that_waits_for_nobody_is_waited_for) {
  Device device(kLooks);
  device.may_wait = false;
  quiesces(device);
}

TEST(a_device_that_stands_still_is_not_waited_for) {
  const auto given = options();
  for (const uint64_t more : {uint64_t{0}, kMoreNs}) {
    Device device;
    const Quiescence::Drained drained = Quiescence(device, given).drain(more);
    const char* const ms = more ? "[3]" : "[1]";
    CHECK_EQ(drained.problem,
             "for " + std::string(ms) + " ms a stream has stood still before its end");
    CHECK(drained.stood_still);
  }
}

TEST(progress_counts_once) {
  const auto given = options(2'000'000'000);
  Device device;
  device.on_progress = [&] { return device.looks ? 5 : 4; };
  CHECK(Quiescence(device, given).drain(0).stood_still);
}

TEST(a_device_that_never_ends_is_left_after_the_limit) {
  const auto given = options(20'000'000);
  for (const bool by_work : {false, true}) {
    Device device;
    if (by_work) device.on_work = [] { return true; };
    device.on_progress = [&] { return device.looks; };
    const Quiescence::Drained drained = Quiescence(device, given).drain(0);
    CHECK_EQ(drained.problem, "after [0] s the device still works on what it was given before");
    CHECK(!drained.stood_still);
  }
}

TEST(a_device_that_fails_is_not_waited_for) {
  const auto given = options();
  Device device(3);
  device.code = 719;
  const Quiescence::Drained drained = Quiescence(device, given).drain(0);
  CHECK_EQ(drained.problem, "the device fails with code [719] before the cut");
  CHECK(!drained.stood_still);
  CHECK_EQ(device.looks, 3u);
}

TEST(a_device_that_takes_long_is_looked_at_more_and_more_seldom) {
  pauses.clear();
  Device device(9);
  quiesces(device);
  const std::vector<useconds_t> longer = {10, 20, 40, 80, 160, 200, 200, 200};
  CHECK(pauses == longer);
}

// Of two looks at the clock each is later than the one before.
TEST(at_the_limit_itself_it_is_looked_at_once_more) {
  const auto given = options(3 * kLookNs + 10'000 + 20'000 + kLookNs);
  Device device;
  device.on_progress = [&] { return device.looks; };
  Quiescence(device, given).drain(0);
  CHECK_EQ(device.looks, 4u);
}

TEST(this_thread_works_for_the_device_no_longer_than_the_limit) {
  const auto given = options(10 * kLookNs);
  Device device;
  device.on_work = [] { return true; };
  Quiescence(device, given).drain(0);
  CHECK_EQ(device.asked_for_work, 9u);  // the time since when it stands still was looked at as well
}

TEST(a_gate_waits_for_a_device_that_stands_still_as_long_as_a_cut_and_no_longer) {
  auto given = options();
  given.drain_timeout_ns = 2 * kLookNs + 10'000 - 1;
  Device device;
  CHECK(!Quiescence(device, given).rests_at_gate());
  CHECK_EQ(device.looks, 2u);
}

TEST(a_stream_that_captures_is_not_looked_at) {
  const auto given = options();
  Device device(1);
  Quiescence quiescence(device, given);
  device.captures = true;
  CHECK(!quiescence.rests_at_gate());
  CHECK_EQ(device.looks, 0u);
  device.captures = false;
  CHECK(quiescence.rests_at_gate());
}

TEST(gates_at_which_it_does_not_rest_are_looked_at_more_and_more_seldom) {
  const auto given = options();
  Device device;
  Quiescence quiescence(device, given);
  for (const int left_out : {2, 4, 8}) {
    const uint64_t before = device.looks;
    CHECK(!quiescence.rests_at_gate());
    const uint64_t looked = device.looks;
    CHECK(looked > before);
    for (int gate = 0; gate < left_out; ++gate) CHECK(!quiescence.rests_at_gate());
    CHECK_EQ(device.looks, looked);
  }
  device.ends_at = 0;
  for (int gate = 0; gate < 3; ++gate) CHECK(quiescence.rests_at_gate());
}

}  // namespace

CHECK_MAIN
