#include "client/device/window.h"

#include "check.h"
#include "ring/layout.h"

using pyft::client::Region;
using pyft::client::Window;

constexpr uint64_t kBase = pyft::ring::kDeviceWindowBase, kGranule = 2 << 20;

static Window make() {
  return Window(kBase, 16 * kGranule, kGranule, kGranule / 2, 512);
}

TEST(small_blocks_share_a_slab) {
  Window window = make();
  Region map;
  const uint64_t a = window.allocate(100, &map);
  CHECK_EQ(map.address, kBase);
  CHECK_EQ(map.bytes, kGranule);
  const uint64_t b = window.allocate(513, &map);
  CHECK_EQ(map.bytes, 0u);
  CHECK_EQ(b - a, 512u);
  uint64_t start = 0, bytes = 0;
  CHECK(window.find(b + 512, &start, &bytes));
  CHECK_EQ(start, b);
  CHECK_EQ(bytes, 513u);
  Region unmap;
  CHECK(window.release(a, &unmap, &bytes));
  CHECK_EQ(unmap.bytes, 0u);
  CHECK(window.release(b, &unmap, &bytes));
  CHECK_EQ(unmap.address, kBase);
  CHECK_EQ(unmap.bytes, kGranule);
  CHECK(!window.release(b, &unmap, &bytes));
}

TEST(large_blocks_are_best_fit_and_merge) {
  Window window = make();
  Region map;
  uint64_t blocks[4];
  for (uint64_t& block : blocks) block = window.allocate(4 * kGranule, &map);
  CHECK_EQ(window.allocate(kGranule, &map), 0u);  // full
  Region unmap;
  uint64_t bytes = 0;
  CHECK(window.release(blocks[1], &unmap, &bytes));
  CHECK(window.release(blocks[2], &unmap, &bytes));
  CHECK_EQ(window.allocate(8 * kGranule, &map), blocks[1]);
  CHECK_EQ(map.bytes, 8 * kGranule);
}

TEST(reserved_addresses_are_aligned_and_given_back_whole) {
  Window window = make();
  Region map, unmap;
  uint64_t bytes = 0;
  const uint64_t block = window.allocate(kGranule, &map);
  const uint64_t aligned = window.reserve(2 * kGranule, 4 * kGranule, 0);
  CHECK_EQ(aligned, kBase + 4 * kGranule);
  const uint64_t wanted = kBase + 8 * kGranule;
  CHECK_EQ(window.reserve(kGranule, 0, wanted), wanted);
  // Taken, or no granule's start: the best fit.
  CHECK_EQ(window.reserve(kGranule, 0, wanted), kBase + 6 * kGranule);
  CHECK_EQ(window.reserve(kGranule, 0, kBase + 1), kBase + 7 * kGranule);
  CHECK_EQ(window.reserve(16 * kGranule, 0, 0), 0u);
  CHECK_EQ(window.reserve(UINT64_MAX - kGranule + 1, 4 * kGranule, 0), 0u);
  CHECK(!window.release(aligned, &unmap, &bytes));  // no allocation
  window.unreserve(aligned, 2 * kGranule);
  window.unreserve(wanted, kGranule);
  window.unreserve(kBase + 6 * kGranule, kGranule);
  window.unreserve(kBase + 7 * kGranule, kGranule);
  CHECK(window.release(block, &unmap, &bytes));
  CHECK_EQ(window.allocate(16 * kGranule, &map), kBase);
}

TEST(impossible_sizes_fail) {
  Window window = make();
  Region map;
  CHECK_EQ(window.allocate(UINT64_MAX, &map), 0u);
  CHECK_EQ(window.allocate(17 * kGranule, &map), 0u);
}

CHECK_MAIN
