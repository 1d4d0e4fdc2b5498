// Moments of another process's clock in the time of records.
#include "profiling/clock.h"

#include "check.h"
#include "profiling/activities.h"

namespace {

using profiling::Moment;
using profiling::RecordTime;

TEST(time_runs_as_fast_as_between_the_two_moments) {
  // Three ticks a nanosecond, from 5000 on.
  const RecordTime time(Moment{1'000'000, 5000}, Moment{2'000'000, 3'005'000});
  CHECK_EQ(time.of(1'000'000), 5000u);
  CHECK_EQ(time.of(1'500'000), 1'505'000u);
  CHECK_EQ(time.of(2'000'000), 3'005'000u);
  CHECK_EQ(time.of(2'000'010), 3'005'030u);
}

TEST(without_a_clock_of_the_programs_nothing_changes) {
  profiling::remember_first_moment();
  const RecordTime time;
  const uint64_t now = profiling::now();
  const uint64_t same = time.of(now);
  CHECK(same - now + 1000 < 2000);  // no more than a look at the clock may take
}

TEST(the_programs_clock_counts_from_its_registration) {
  CHECK(profiling::register_timestamp([]() -> uint64_t { return 42; }) == CUPTI_SUCCESS);
  profiling::remember_first_moment();
  const Moment seen = profiling::moment();
  CHECK_EQ(seen.time, 42u);
  CHECK_EQ(RecordTime().of(seen.real_time + 1'000'000), 42u);
}

}  // namespace

CHECK_MAIN
