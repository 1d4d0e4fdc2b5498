// What snapshots may cost the program, and what follows from what they do cost: whether their
// copies are made behind its back, and how many cuts lie between two of them.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_INTERVAL_H_
#define PYFT_CHECKPOINT_SNAPSHOT_INTERVAL_H_

#include <algorithm>
#include <bit>
#include <cstdint>

namespace pyft::checkpoint {

// Copies that are made while the program goes on.
enum class Late { kNever, kAsCostSays, kAlways };

class Interval {
 public:
  // Each `fixed`-th cut; 0: as the cost allows. `budget`: share of the time.
  Interval(uint64_t fixed, double budget, Late late)
      : fixed_(fixed), budget_(budget), every_(fixed ? fixed : 1), may_(late) {
    late_ = late == Late::kAlways;
  }

  uint64_t every() const { return every_; }
  // Background copies are more work in all, and a death meanwhile means a longer replay: they are
  // made when snapshots that copy at the cut take much of the budget, and then for good.
  bool late() const { return late_; }
  // A cut that was snapshotted, `cuts` after the last one that was. `spent_ns`: for how long the
  // program's commands were kept waiting for it.
  void snapshot_taken(uint64_t cuts, uint64_t began_ns, uint64_t spent_ns);
  // So many cuts between two snapshots are too many for what has to be kept meanwhile. For good.
  void too_seldom() { at_most(every_ / 2); }
  // What has to be kept of more cuts finds no room. A power of two, as K always is: ranks have cuts
  // in common then.
  void at_most(uint64_t cuts) {
    most_ = std::min(most_, std::bit_floor(std::max<uint64_t>(1, cuts)));
    every_ = std::min(every_, most_);
  }

 private:
  uint64_t fixed_;
  double budget_;
  uint64_t every_;
  uint64_t most_ = 64;
  Late may_;
  bool late_;
  uint64_t last_began_ns_ = 0;
  uint64_t weighed_ = 0;                // snapshots
  double period_ns_ = 0, cost_ns_ = 0;  // of a cut and of a snapshot; averages
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_INTERVAL_H_
