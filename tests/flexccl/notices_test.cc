// What ends a rank's sleep. It sleeps for a few milliseconds and looks then, as nothing announces
// what appears on the page of its host. Here such a sleep takes long, so that it is seen whether
// something else ends it.
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <cerrno>

#include "neighbour.h"

using namespace members;

namespace {

constexpr long kShortMs = 50, kLongS = 10;
std::atomic<bool> long_sleeps = false;
std::atomic<int> sleeps = 0, long_ones = 0, ended_by_time = 0;

long ms_until(const timespec& then, clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return (then.tv_sec - now.tv_sec) * 1000 + (then.tv_nsec - now.tv_nsec) / 1'000'000;
}

}  // namespace

// In front of that of the C library, for all of this process.
extern "C" int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                      clockid_t clock, const timespec* until) {
  static const auto real = reinterpret_cast<decltype(&pthread_cond_clockwait)>(
      dlsym(RTLD_NEXT, "pthread_cond_clockwait"));
  if (ms_until(*until, clock) > kShortMs) return real(condition, mutex, clock, until);
  ++sleeps;
  if (!long_sleeps) return real(condition, mutex, clock, until);
  timespec then = *until;
  then.tv_sec += kLongS;
  ++long_ones;
  const int code = real(condition, mutex, clock, &then);
  --long_ones;
  ended_by_time += code == ETIMEDOUT;
  return code;
}

namespace {

// As long as it lives, sleeps are long; none of them ends by itself.
struct LongSleeps {
  LongSleeps() { ended_by_time = 0, long_sleeps = true; }
  ~LongSleeps() {
    long_sleeps = false;
    CHECK_EQ(ended_by_time.load(), 0);
  }
  static bool begun() {
    return comes([] { return long_ones > 0; });
  }
};

// A rank of five that has agreed to a step, and does not know whether it is decided.
struct InDoubt {
  InDoubt() { runner.agree({step_to(2, 2)}); }
  const Membership self = membership(0, 5, {step_to(1, 1)});
  OperationRunner runner{self, 0};
};

bool is_in(const OperationRunner& runner, std::uint32_t epoch) {
  return comes([&] { return runner.membership().epoch == epoch; });
}

}  // namespace

TEST(an_operation_that_waits_for_a_repair_hears_of_it) {
  const Membership self = membership(0, 3, {step_to(1, 2)});
  const auto one = Neighbour::at(self, 1);
  OperationRunner runner(self, 0);
  {
    const Sending sending(runner);
    CHECK(comes([&] { return sending.is_done.load(); }));
  }
  one->leave();
  const Sending sending(runner);
  CHECK(comes([&] { return runner.paused().has_value(); }));
  const LongSleeps now;
  CHECK(now.begun());
  tell_of(self, {step_to(2, 1)});
  CHECK(is_in(runner, 2));
}

TEST(a_rank_in_doubt_hears_of_the_decision) {
  InDoubt rank;
  const LongSleeps now;
  const Receiving receiving(rank.runner);
  CHECK(now.begun());
  tell_of(rank.self, {step_to(2, 2)});
  CHECK(is_in(rank.runner, 2));
}

TEST(a_rank_in_doubt_hears_that_it_is_aborted) {
  InDoubt rank;
  const LongSleeps now;
  const Receiving receiving(rank.runner);
  CHECK(now.begun());
  rank.runner.abort();
}

TEST(a_rank_in_doubt_sleeps) {
  InDoubt rank;
  const Receiving receiving(rank.runner);
  const int before = sleeps;
  CHECK(comes([&] { return sleeps > before + 10; }));
}

// Of what an interruption leaves nothing could be repeated.
TEST(a_change_waits_for_an_operation_that_keeps_nothing) {
  Membership self = membership(0, 3, {step_to(1, 2)});
  self.repair_ms = 0;
  const auto one = Neighbour::at(self, 1);
  {
    OperationRunner runner(self, 0);
    const auto bell = Endpoint::process().find({self.comm, 0, 0})->doorbell();
    const Sending sending(runner, 1 << 20);  // more than there is room for
    const auto link = [&] { return one->inbox().find(0); };
    CHECK(comes([&] { return link() && !link()->peek().empty(); }));
    const std::uint32_t before = bell.value();
    const int slept = sleeps;
    {
      const Changing changing(runner, step_to(2, 2));
      CHECK(comes([&] { return sleeps > slept + 10; }));
      CHECK_EQ(bell.value(), before);
      CHECK(!changing.is_done);
      runner.abort();
    }
    CHECK_EQ(runner.membership().epoch, 2u);
  }
  one->leave();
}

// What lies between is decided, and not known here. An operation that is interrupted would find
// nothing to take, and be interrupted without an end.
TEST(a_step_that_does_not_follow_interrupts_nothing) {
  const Membership self = membership(0, 3, {step_to(1, 2)});
  const auto one = Neighbour::at(self, 1);
  {
    OperationRunner runner(self, 0);
    const auto bell = Endpoint::process().find({self.comm, 0, 0})->doorbell();
    const Receiving receiving(runner);
    CHECK(comes([&] { return one->asked == 1; }));
    const std::uint32_t before = bell.value();
    const int slept = sleeps;
    const Changing changing(runner, step_to(3, 2));
    CHECK(comes([&] { return sleeps > slept + 10; }));
    CHECK_EQ(bell.value(), before);
    CHECK(!changing.is_done);
    runner.abort();
  }
  one->leave();
}

CHECK_MAIN
