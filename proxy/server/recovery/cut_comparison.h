// A cut that an earlier server had hashed whole before it died is taken again: are the contents the
// same? (design-recovery.md, invariant I9)
#ifndef PYFT_SERVER_RECOVERY_CUT_COMPARISON_H_
#define PYFT_SERVER_RECOVERY_CUT_COMPARISON_H_

#include <span>

#include "server/recovery/recovery.h"
#include "server/recovery/store.h"

namespace pyft::server {

// Compares the blocks of the cut of entry `seq` with those of `before`, the same cut. Only blocks
// that `from`, the recovery point of the replay, has as well: all of their bytes were defined then.
// One that was allocated since may have bytes that nobody has written, which no program relies on.
void compare_cut(Recovery& recovery, uint64_t seq, const RecoveryPoint& from,
                 const RecoveryPoint& before, std::span<const ring::ManifestBlock> now);

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_CUT_COMPARISON_H_
