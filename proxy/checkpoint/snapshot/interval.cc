#include "checkpoint/snapshot/interval.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kUnweighed = 3;  // snapshots whose cost is that of new memory
constexpr double kMuch = 0.5;       // of the budget

void average(double* value, double next) {
  *value = *value > 0 ? 0.75 * *value + 0.25 * next : next;
}

}  // namespace

// Both numbers are averages over some snapshots, and the interval becomes shorter only when that is
// clear.
void Interval::snapshot_taken(uint64_t cuts, uint64_t began_ns, uint64_t spent_ns) {
  const auto period = static_cast<double>(began_ns - last_began_ns_) /
                      static_cast<double>(std::max<uint64_t>(1, cuts));
  last_began_ns_ = began_ns;
  if (++weighed_ <= kUnweighed) return;
  average(&cost_ns_, static_cast<double>(spent_ns));
  average(&period_ns_, period);
  const double allowed = budget_ * period_ns_;
  if (may_ == Late::kAsCostSays && cost_ns_ > kMuch * allowed) late_ = true;
  if (fixed_) return;
  const double wanted = std::min(static_cast<double>(most_), cost_ns_ / allowed);
  if (wanted > static_cast<double>(every_) || wanted < 0.7 * static_cast<double>(every_ - 1))
    every_ = std::bit_ceil(std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(wanted))));
}

}  // namespace pyft::checkpoint
