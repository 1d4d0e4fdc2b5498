// How long a rank waits for others: half as long after each wait that was in vain, up to the whole
// again after each that was not. Pure.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_BACKOFF_H_
#define PYFT_CHECKPOINT_SNAPSHOT_BACKOFF_H_

#include <algorithm>
#include <cstdint>

namespace pyft::checkpoint {

class Backoff {
 public:
  explicit Backoff(uint64_t whole_ns) : whole_ns_(whole_ns), ns_(whole_ns) {}

  uint64_t ns() const { return ns_; }
  // Of the whole; 1 as long as no wait was in vain.
  double share() const {
    return static_cast<double>(ns_) / static_cast<double>(std::max<uint64_t>(whole_ns_, 1));
  }
  void waited(bool in_vain) {
    ns_ = in_vain ? std::max(ns_ / 2, whole_ns_ / kRange) : std::min(ns_ * 2, whole_ns_);
  }

 private:
  static constexpr uint64_t kRange = 1024;

  uint64_t whole_ns_, ns_;
};

// For a cut that waits, and for those of other ranks.
class CommitBackoff {
 public:
  // `audit_ns`: how long a cut that is needed may wait for an auditor, too.
  CommitBackoff(uint64_t whole_ns, uint64_t audit_ns) : decision_(whole_ns), audit_ns_(audit_ns) {}

  // The cut for a decision about the one before it.
  uint64_t decision_ns() const { return decision_.ns(); }
  // Where all ranks have to hold the same cut another one may copy now, as long as this one has, or
  // for the first time.
  uint64_t others_ns() const {
    constexpr uint64_t kOthers = 4;
    return static_cast<uint64_t>(static_cast<double>(kOthers * longest_ns_) * decision_.share());
  }
  // Until the cut that waits is the line of all: the client has no room before that.
  uint64_t line_ns() const { return decision_ns() + others_ns() + audit_ns_; }
  void waited(bool in_vain) { decision_.waited(in_vain); }
  // A snapshot of this rank has taken so long.
  void snapshot_took(uint64_t ns) { longest_ns_ = std::max(longest_ns_, ns); }

 private:
  Backoff decision_;
  const uint64_t audit_ns_;
  uint64_t longest_ns_ = 0;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_BACKOFF_H_
