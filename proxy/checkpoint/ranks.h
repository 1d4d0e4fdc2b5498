// The agent, and by way of it the other ranks, as snapshots and restores see them. By default there
// is no other rank.
#ifndef PYFT_CHECKPOINT_RANKS_H_
#define PYFT_CHECKPOINT_RANKS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ring/layout.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

// What the agent learns of snapshots.
class AgentChannel {
 public:
  virtual ~AgentChannel() = default;
  // The table of the cut of this step, its entry is `seq`, lies here in the store; 0: the cut is
  // passed over.
  virtual void staged(uint64_t /*step*/, uint64_t /*offset*/, uint64_t /*seq*/) {}
  // It is whole as well, and other ranks need nothing from before it.
  virtual void prepared(uint64_t /*step*/, uint64_t /*seq*/) {}
  // It must not wait any longer: the agent commits or aborts it.
  virtual void request_decision(uint64_t /*step*/) {}
  // Where all ranks have to hold the same cut: no more than so many lie between two snapshots of
  // this rank; and the least that another one has said, 0: none has.
  virtual void tell_pace(uint64_t /*cuts*/) {}
  virtual uint64_t pace_of_others() { return 0; }
};

// What the agent is told of this process. Any thread.
class RecoveryReports {
 public:
  virtual ~RecoveryReports() = default;
  // Why it is about to end.
  virtual void ends(ring::FaultKind kind, int code, uint64_t seq, const std::string& text) = 0;
  // It serves: there is nothing (more) to replay.
  virtual void live() {}
};

class BlockCheck {
 public:
  virtual ~BlockCheck() = default;
  // Which of these blocks the device has now with their contents.
  virtual std::vector<bool> right(std::span<const ring::ManifestBlock> blocks) = 0;
};

// Contents that other ranks have, for a restore.
class RemoteBlocks {
 public:
  virtual ~RemoteBlocks() = default;
  // The content of a block that another rank's store keeps, of the right digest; else nullptr, and
  // why.
  virtual const std::byte* content(const ring::ManifestBlock&, std::string* problem) {
    *problem = "no other rank's store can be looked at";
    return nullptr;
  }
  // Where such a content was the last time that it was looked for, or is said to be, whatever its
  // digest is now; nullptr: nothing is known.
  virtual const std::byte* likely_content(const ring::ManifestBlock&) { return nullptr; }
  // Before anything is written: copies what other ranks' GPUs have as well, and marks what `check`
  // has found right; what is marked already is not wanted. Empty, or why the restore cannot go on.
  virtual std::string from_peers(std::span<const ring::ManifestBlock>, BlockCheck& /*check*/,
                                 std::vector<bool>* /*there*/) {
    return {};
  }
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_RANKS_H_
