// What a server lets snapshots do, and how long they may wait.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_OPTIONS_H_
#define PYFT_CHECKPOINT_SNAPSHOT_OPTIONS_H_

#include <atomic>
#include <cstdint>

#include "checkpoint/snapshot/interval.h"

namespace pyft::checkpoint {

struct SnapshotOptions {
  uint64_t drain_timeout_ns =
      2'000'000'000;                         // without progress: a stream may wait for another rank
  uint64_t every = 0;                        // each K-th cut; 0: as the cost allows
  double budget = 0.01;                      // of the time between two cuts
  uint64_t drain_limit_ns = 60'000'000'000;  // with progress
  Late late = Late::kAsCostSays;
  uint64_t hold_ns = 1'000'000'000;         // collectives wait so long for a comparison
  uint64_t hold_limit_ns = 60'000'000'000;  // with an agent that is busy, or ends meanwhile
  uint64_t answer_ns = 2'000'000'000;       // for an agent that has to decide about a cut
  bool audits = false;                      // a cut that waits may wait for an auditor, too
  uint64_t audit_wait_ns = 0;               // one that is due waits so long for it
  bool defers = false;                      // cuts, while only reads follow
  bool jit = false;                         // what other ranks have as well stays on the device
  uint64_t arbitrates = 0;  // step about whose cut this server's replay decides; 0: none
  // The step of the last cut that the agent has compared with other ranks'; nullptr: it does not.
  const std::atomic<uint64_t>* agreed = nullptr;
  // The last that is to become the committed snapshot; nullptr: the same as is compared.
  const std::atomic<uint64_t>* committed = nullptr;
  // The last that can be no line of all ranks.
  const std::atomic<uint64_t>* aborted = nullptr;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_OPTIONS_H_
