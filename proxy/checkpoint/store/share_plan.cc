#include "checkpoint/store/share_plan.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace pyft::checkpoint {

void SharePlan::update(const std::byte* store, const ring::StoreHeader& header) {
  const uint64_t version = header.shares_version.load(std::memory_order_acquire);
  if (version == version_ || version % 2) return;
  const uint64_t count =
      std::min(header.shares_rows.load(), header.shares_bytes / sizeof(ring::SharedBlock));
  std::vector<ring::SharedBlock> rows(count);
  if (count)
    std::memcpy(rows.data(), store + header.shares_offset, count * sizeof(ring::SharedBlock));
  std::atomic_thread_fence(std::memory_order_acquire);
  if (header.shares_version.load(std::memory_order_relaxed) != version) return;
  version_ = version;
  rows_.clear();
  for (const ring::SharedBlock& row : rows)
    if (row.owner < ring::kElsewhere) rows_[row.address] = row;
}

}  // namespace pyft::checkpoint
