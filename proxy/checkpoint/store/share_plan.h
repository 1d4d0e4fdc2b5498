// Which blocks of this rank other ranks' stores keep (docs/concepts/sharing.md): what the agent
// has written into the store last. Only a hint: whether the other one has the same content turns
// out when the agent compares the digests of the cut.
#ifndef PYFT_CHECKPOINT_STORE_SHARE_PLAN_H_
#define PYFT_CHECKPOINT_STORE_SHARE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "checkpoint/memory_range.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

class SharePlan {
 public:
  // Reads the rows if there are new ones. While they are being written the old ones are kept.
  void update(const std::byte* store, const ring::StoreHeader& header);
  // The id of the member whose store keeps the block; nothing: this rank's own does.
  std::optional<uint64_t> owner(const MemoryRange& block) const {
    const auto found = rows_.find(block.address);
    if (found == rows_.end() || found->second.bytes != block.bytes) return {};
    return found->second.owner;
  }

 private:
  uint64_t version_ = 0;
  std::unordered_map<uint64_t, ring::SharedBlock> rows_;  // by address
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_STORE_SHARE_PLAN_H_
