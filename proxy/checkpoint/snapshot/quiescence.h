// The device comes to rest: all streams have done what they were given. Dispatch thread, which may
// have to execute the device's work itself.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_QUIESCENCE_H_
#define PYFT_CHECKPOINT_SNAPSHOT_QUIESCENCE_H_

#include <cstdint>
#include <string>

#include "checkpoint/device.h"
#include "checkpoint/snapshot/options.h"

namespace pyft::checkpoint {

class Quiescence {
 public:
  // Both must outlive this.
  Quiescence(DeviceState& device, const SnapshotOptions& options)
      : device_(device), options_(options) {}

  struct Drained {
    std::string problem;       // why the streams have not come to their ends; empty: they have
    bool stood_still = false;  // one of them, before its end
  };
  // Waits for a device that computes or makes progress up to the limit of the options; `more_ns`
  // above their timeout for one that may wait for others.
  Drained drain(uint64_t more_ns);
  // At a gate: what was enqueued before it has been executed.
  bool rests_at_gate();

 private:
  DeviceState& device_;
  const SnapshotOptions& options_;
  uint64_t restless_gates_ = 0, restless_pause_ = 1;  // at so many more nothing is learned
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_QUIESCENCE_H_
