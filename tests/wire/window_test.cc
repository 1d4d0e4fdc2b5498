#include "client/window.h"

#include "check.h"

using pyft::client::Region;
using pyft::client::Window;

constexpr uint64_t kBase = 0x7000'0000'0000, kGranule = 2 << 20;

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

TEST(impossible_sizes_fail) {
  Window window = make();
  Region map;
  CHECK_EQ(window.allocate(UINT64_MAX, &map), 0u);
  CHECK_EQ(window.allocate(17 * kGranule, &map), 0u);
}

CHECK_MAIN
