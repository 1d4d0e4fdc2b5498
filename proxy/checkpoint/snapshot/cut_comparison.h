// A cut that an earlier server had hashed whole before it died is taken again: are the contents the
// same? (I9)
#ifndef PYFT_CHECKPOINT_SNAPSHOT_CUT_COMPARISON_H_
#define PYFT_CHECKPOINT_SNAPSHOT_CUT_COMPARISON_H_

#include <span>

#include <vector>

#include "checkpoint/recovery/recovery.h"
#include "checkpoint/store/store.h"

namespace pyft::checkpoint {

// One that has other contents.
struct OtherContent {
  ring::ManifestBlock now;
  ring::Digest before;
};
struct CutComparison {
  uint64_t compared = 0;
  std::vector<OtherContent> others;
};

// Compares the blocks of a cut with those of `before`, the same cut. Only blocks that `from`, the
// committed snapshot of the replay, has as well: all of their bytes were defined then. One that was
// allocated since may have bytes that nothing has written, which no program relies on.
CutComparison compare_cut(const StoredSnapshot& from, const StoredSnapshot& before,
                          std::span<const ring::ManifestBlock> now);

// Counts it, and does about what differs what is to be done. `seq`: the cut's entry.
void judge_cut(Recovery& recovery, uint64_t seq, const CutComparison& comparison);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_CUT_COMPARISON_H_
