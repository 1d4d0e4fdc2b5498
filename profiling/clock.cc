#include "profiling/clock.h"

#include <time.h>

#include <atomic>

#include "profiling/activities.h"

namespace profiling {
namespace {

std::atomic<uint64_t> first_real_time{0}, first_time{0};

}  // namespace

uint64_t real_time() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// The closest of a few looks: a thread may lose its core between the two clocks.
Moment moment() {
  Moment best;
  uint64_t closest = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = real_time(), time = now(), after = real_time();
    if (after - before >= closest) continue;
    closest = after - before;
    best = {before + closest / 2, time};
  }
  return best;
}

void remember_first_moment() {
  const Moment first = moment();
  first_real_time.store(first.real_time);
  first_time.store(first.time);
}

RecordTime::RecordTime() : RecordTime({first_real_time.load(), first_time.load()}, moment()) {}

RecordTime::RecordTime(Moment first, Moment last) : last_(last) {
  if (last.real_time > first.real_time)
    speed_ = static_cast<double>(last.time - first.time) /
             static_cast<double>(last.real_time - first.real_time);
}

uint64_t RecordTime::of(uint64_t real_time) const {
  const auto since = static_cast<double>(static_cast<int64_t>(real_time - last_.real_time));
  return last_.time + static_cast<uint64_t>(static_cast<int64_t>(since * speed_));
}

}  // namespace profiling
