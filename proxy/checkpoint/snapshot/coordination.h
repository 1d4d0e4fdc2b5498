// What the agent has to do with this rank's cuts, and what it has said about them so far: it is the
// coordinator of the two-phase commit. Any thread.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_COORDINATION_H_
#define PYFT_CHECKPOINT_SNAPSHOT_COORDINATION_H_

#include <atomic>
#include <cstdint>

#include "checkpoint/snapshot/cut_states.h"
#include "checkpoint/snapshot/options.h"
#include "ring/layout.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

class Coordination {
 public:
  // Both must outlive this.
  Coordination(const SnapshotOptions& options, const ring::StoreHeader& store)
      : options_(options), store_(store) {}

  bool compares() const { return options_.agreed && store_.compares.load(); }
  // Snapshots of this rank and of others name each other.
  bool shares() const { return compares() && !is_coordinated() && store_.shares.load(); }
  // All ranks that go back together have to hold a cut: there is no other way to a committed
  // snapshot.
  bool is_coordinated() const { return options_.agreed && store_.compares.load() == 2; }
  CutRules rules() const { return {compares(), shares(), is_coordinated()}; }

  // What the agent and this rank call a cut. Of those for want of space there are several in a
  // step.
  uint64_t name_of(const ring::CutMark& cut) const {
    return is_coordinated() ? cut.number : cut.step;
  }
  CutFacts facts(const ring::CutMark& cut, uint64_t seq = 0) const {
    return {cut.number, seq, name_of(cut), cut.forced != 0};
  }

  // The cut of this name has been compared with those of other ranks.
  bool is_agreed(uint64_t name) const {
    return options_.agreed && options_.agreed->load(std::memory_order_acquire) >= name;
  }
  CutDecisions decisions() const {
    const auto last = [](const std::atomic<uint64_t>* of) {
      return of ? of->load(std::memory_order_acquire) : 0;
    };
    return {last(options_.committed ? options_.committed : options_.agreed),
            last(options_.aborted)};
  }

 private:
  const SnapshotOptions& options_;
  const ring::StoreHeader& store_;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_COORDINATION_H_
