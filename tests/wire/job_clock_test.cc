// The clock of the program's own deadlines, asked by a library of PyTorch's name and by others.
#include <sys/mman.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "check.h"
#include "client/process/job_clock.h"
#include "ring/wait.h"

using namespace pyft;
using client::JobClock;
using ring::ControlPage;

extern "C" {
int64_t torch_now();
void torch_wait(int milliseconds);
bool torch_future(int milliseconds);
}

namespace {

constexpr int64_t kSecond = 1'000'000'000;

ControlPage& new_page() {
  void* const memory =
      mmap(nullptr, ring::kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return *static_cast<ControlPage*>(memory);
}

// As pyft/agent/lifecycle/pauses.py does.
void tell(ControlPage& page, int64_t done, int64_t since) {
  page.pauses_version |= 1;
  page.paused_ns = static_cast<uint64_t>(done);
  page.paused_since = static_cast<uint64_t>(since);
  ++page.pauses_version;
}

int64_t real_now() {
  return static_cast<int64_t>(ring::now_ns());
}

int64_t processor_ns() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto of = [](timeval time) { return time.tv_sec * kSecond + time.tv_usec * 1000; };
  return of(used.ru_utime) + of(used.ru_stime);
}

}  // namespace

TEST(it_is_the_real_clock_until_it_follows_a_page) {
  JobClock clock;
  CHECK_EQ(clock.shown(5), 5);
  CHECK_EQ(clock.shown(7), 7);
}

TEST(it_stands_still_during_recoveries_only) {
  JobClock clock;
  ControlPage& page = new_page();
  tell(page, 3, 0);  // of before
  clock.follow(page, 100);
  CHECK_EQ(clock.shown(110), 110);
  tell(page, 3, 120);
  CHECK_EQ(clock.shown(119), 119);
  CHECK_EQ(clock.shown(120), 120);
  CHECK_EQ(clock.shown(500), 120);
  tell(page, 3 + 400, 0);
  CHECK_EQ(clock.shown(520), 120);
  CHECK_EQ(clock.shown(530), 130);
  CHECK_EQ(clock.behind(530), 400);
  tell(page, 3 + 400, 600);
  CHECK_EQ(clock.shown(650), 200);
  tell(page, 3 + 400 + 60, 0);
  CHECK_EQ(clock.shown(700), 240);
}

TEST(a_recovery_that_has_begun_before_counts_from_now_on) {
  JobClock clock;
  ControlPage& page = new_page();
  tell(page, 10, 40);
  clock.follow(page, 100);
  CHECK_EQ(clock.shown(100), 100);
  CHECK_EQ(clock.shown(200), 100);
  tell(page, 10 + 210, 0);  // over at 250
  CHECK_EQ(clock.shown(250), 100);
  CHECK_EQ(clock.shown(260), 110);
}

TEST(it_never_goes_back_whatever_is_written_there) {
  JobClock clock;
  ControlPage& page = new_page();
  clock.follow(page, 1000);
  const std::pair<uint64_t, uint64_t> words[] = {{0, UINT64_MAX},          {UINT64_MAX, 0},
                                                 {UINT64_MAX, UINT64_MAX}, {0, 1},
                                                 {uint64_t{1} << 63, 990}, {0, 0}};
  int64_t last = 1000, real = 1000;
  for (int round = 0; round < 3; ++round)
    for (const auto& [done, since] : words) {
      tell(page, static_cast<int64_t>(done), static_cast<int64_t>(since));
      const int64_t shown = clock.shown(real += 10);
      CHECK(shown >= last);
      CHECK(shown <= real);
      last = shown;
    }
  CHECK_EQ(clock.shown(5000), 5000);
}

TEST(an_agent_that_dies_while_it_writes_stops_it_until_the_next_one_has_written) {
  JobClock clock;
  ControlPage& page = new_page();
  clock.follow(page, 100);
  CHECK_EQ(clock.shown(150), 150);
  ++page.pauses_version;
  CHECK_EQ(clock.shown(200), 150);
  ++page.pauses_version;
  CHECK_EQ(clock.shown(210), 210);
}

TEST(only_pytorch_sees_it) {
  ControlPage& page = new_page();
  client::watch(page);
  CHECK(client::job_clock().follows());
  CHECK(torch_now() > real_now() - kSecond);
  const int64_t since = real_now();
  tell(page, 0, since);
  const int64_t stopped = torch_now();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK_EQ(torch_now(), stopped);
  CHECK(std::chrono::steady_clock::now().time_since_epoch().count() >= since + 300'000'000);
  const int64_t took = real_now() - since;
  tell(page, took, 0);
  CHECK(torch_now() >= stopped);
  CHECK(torch_now() <= real_now() - took);
  CHECK(client::job_clock().behind(real_now()) >= 300'000'000);
}

// It is 300 ms behind since the test before: the deadline of each wait here has passed by the real
// clock when it begins. None must end at once, or be looked at all the time.
TEST(waits_last_as_long_as_ever_when_the_clock_is_behind) {
  const auto lasts = [](const auto& wait) {
    const int64_t begin = real_now(), used = processor_ns();
    wait();
    CHECK(processor_ns() - used < kSecond / 20);
    return real_now() - begin;
  };
  CHECK(lasts([] { torch_wait(100); }) >= kSecond / 10);
  CHECK(lasts([] { CHECK(!torch_future(100)); }) >= kSecond / 10);
}

CHECK_MAIN
