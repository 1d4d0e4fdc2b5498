// The log of one client, as snapshots see it: what it has written, and what it is told.
#ifndef PYFT_CHECKPOINT_SNAPSHOT_LOG_H_
#define PYFT_CHECKPOINT_SNAPSHOT_LOG_H_

#include "checkpoint/recovery/recovery.h"
#include "ring/channel.h"
#include "ring/wait.h"

namespace pyft::checkpoint {

// All of it outlives the object that has this.
struct Log {
  ring::Channel& channel;
  const ring::Liveness& liveness;  // of client and agent: there is nothing to wait for without them
  Recovery& recovery;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_LOG_H_
