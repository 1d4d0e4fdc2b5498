// A cut that is taken again: which of its blocks are compared with those of the first time.
#include "checkpoint/snapshot/cut_comparison.h"

#include "check.h"

namespace {

using namespace pyft;  // NOLINT: a test
using checkpoint::compare_cut;
using checkpoint::CutComparison;
using checkpoint::StoredSnapshot;

ring::ManifestBlock block(uint64_t address, uint64_t bytes, uint64_t content) {
  return {address, bytes, {content, content}, 0};
}

StoredSnapshot of(std::vector<ring::ManifestBlock> blocks) {
  StoredSnapshot snapshot;
  snapshot.blocks = std::move(blocks);
  return snapshot;
}

TEST(a_block_that_differs_is_named_with_both_contents) {
  const StoredSnapshot from = of({block(1000, 64, 1), block(2000, 64, 2)});
  const StoredSnapshot before = of({block(1000, 64, 11), block(2000, 64, 12)});
  const std::vector<ring::ManifestBlock> now = {block(1000, 64, 11), block(2000, 64, 13)};
  const CutComparison found = compare_cut(from, before, now);
  CHECK_EQ(found.compared, 2u);
  CHECK_EQ(found.others.size(), 1u);
  if (found.others.size() != 1) return;
  CHECK_EQ(found.others[0].now.address, 2000u);
  CHECK_EQ(found.others[0].now.digest.low, 13u);
  CHECK_EQ(found.others[0].before.low, 12u);
}

TEST(only_blocks_that_were_live_at_all_three_times_are_compared) {
  const ring::ManifestBlock one = block(1000, 64, 1);
  const auto compared = [](const StoredSnapshot& from, const StoredSnapshot& before,
                           const std::vector<ring::ManifestBlock>& now) {
    const CutComparison found = compare_cut(from, before, now);
    CHECK_EQ(found.others.size(), 0u);
    return found.compared;
  };
  CHECK_EQ(compared(of({one}), of({one}), {one}), 1u);
  CHECK_EQ(compared(of({}), of({one}), {one}), 0u);
  CHECK_EQ(compared(of({one}), of({}), {one}), 0u);
  CHECK_EQ(compared(of({one}), of({one}), {}), 0u);
  const ring::ManifestBlock longer = block(1000, 65, 2);  // is another block
  CHECK_EQ(compared(of({one}), of({one}), {longer}), 0u);
  CHECK_EQ(compared(of({one, longer}), of({one, longer}), {longer, one}), 2u);
}

}  // namespace

CHECK_MAIN
