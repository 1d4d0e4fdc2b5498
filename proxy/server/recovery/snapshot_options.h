// What the environment says about snapshots.
#ifndef PYFT_SERVER_RECOVERY_SNAPSHOT_OPTIONS_H_
#define PYFT_SERVER_RECOVERY_SNAPSHOT_OPTIONS_H_

#include "checkpoint/snapshot/options.h"

namespace pyft::server {

// PYFT_CUT_EVERY, PYFT_BACKGROUND_COPIES, PYFT_ARBITRATE, PYFT_PROTECT
checkpoint::SnapshotOptions snapshot_options();

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_SNAPSHOT_OPTIONS_H_
