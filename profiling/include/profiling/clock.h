// Moments that another process has taken down, in the time of this one's records.
#ifndef PROFILING_CLOCK_H_
#define PROFILING_CLOCK_H_

#include <cstdint>

namespace profiling {

// The host's real time, in nanoseconds.
uint64_t real_time();

// One moment on both clocks: the host's real time, and that of records (now() in activities.h).
struct Moment {
  uint64_t real_time = 0, time = 0;
};

Moment moment();
// Called when the first kind of records becomes wanted.
void remember_first_moment();

// Converts by that first moment and the one at which this is made: both clocks run evenly.
class RecordTime {
 public:
  RecordTime();
  RecordTime(Moment first, Moment last);
  uint64_t of(uint64_t real_time) const;

 private:
  Moment last_;
  double speed_ = 1;
};

}  // namespace profiling

#endif  // PROFILING_CLOCK_H_
