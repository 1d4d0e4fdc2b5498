// What a cut does with each live block: known already, copied now, or left to be copied behind the
// program's back (docs/concepts/snapshot.md).
//
// Every block is hashed at the cut, or the store knows otherwise what it contains. A block that
// changes between cuts is copied later if it stays as it is until the optimizer begins (the GATE
// mark), as parameters do; if it does not, or has not been seen often enough, it is copied at once.
// Which is which is learned, and only a hint: a background copy that is not what was hashed cancels
// the cut. What another rank's store keeps (share_plan.h) is hashed only. Dispatch thread only, or
// no other one meanwhile.
#ifndef PYFT_CHECKPOINT_MEMORY_STAGE_H_
#define PYFT_CHECKPOINT_MEMORY_STAGE_H_

#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/device.h"
#include "checkpoint/digest/digest.h"
#include "checkpoint/memory/copier.h"
#include "checkpoint/store/share_plan.h"
#include "checkpoint/store/store.h"

namespace pyft::checkpoint {

class Stage {
 public:
  // Both must outlive this.
  Stage(Store& store, DeviceMemory& memory);

  // Adds the blocks, sorted by address, to the store's open snapshot. `late`: some copies may be
  // left for later. `plan`: what other ranks keep, nullptr: nothing. Empty, or why it cannot be
  // done.
  std::string add(const std::vector<MemoryRange>& blocks, bool late,
                  const SharePlan* plan = nullptr);
  // Of the planned blocks, leave to others only what stays as it is until the optimizer begins, and
  // find out what does.
  void leave_what_rests(bool only) { only_rests_ = only; }
  // What add() has left: the copies that the open snapshot needs before it counts.
  std::vector<CopyJob> take_later();
  // The optimizer is about to begin: which blocks have stayed as they were since the cut? Whether
  // it matters; `rests`: what came before has been executed, or nothing can be learned.
  bool learns() const { return !unsure_.empty(); }
  void gate(bool rests);
  // What lies at this address has changed before the gate.
  void changed(uint64_t address);

 private:
  struct Habit {
    uint64_t bytes;
    bool between_cuts;    // it was another content at the last cut
    bool before_gate;     // it has been seen to change between a cut and the gate behind it
    uint32_t same_gates;  // how often it has been seen not to
    uint64_t cut;         // at which it was live last
  };
  struct Copied {
    MemoryRange block;
    ring::Digest digest;
  };
  std::string hash_on_device(const std::vector<MemoryRange>& blocks);
  std::string distrust(const MemoryRange& block);
  Habit& habit_of(const MemoryRange& block, bool known);
  std::string add_block(const MemoryRange& block, const ring::ManifestBlock* before);
  std::string add_elsewhere(const MemoryRange& block, uint64_t owner,
                            const ring::ManifestBlock* before, Habit& habit);
  bool is_untouched(const MemoryRange& block, const Habit& habit) const;
  bool may_rest(const MemoryRange& block, const Habit& habit) const;
  bool is_to_be_learned(const MemoryRange& block, const Habit& habit) const;
  bool add_untouched(const MemoryRange& block, Habit& habit);
  std::string copy_now(const MemoryRange& block, const ring::ManifestBlock* before, Habit& habit);
  std::string copy_hashed(const MemoryRange& block, ring::Digest digest,
                          std::vector<CopyJob>* jobs);
  std::string copy_together();
  std::string read(const MemoryRange& block, std::byte* copy, ring::Digest* digest);
  int look(const MemoryRange& block, std::byte* copy, ring::Digest* digest);
  int fetch(const MemoryRange& block, std::byte* copy, ring::Digest* digest);

  Store& store_;
  DeviceMemory& memory_;
  Hasher hasher_;
  std::unordered_map<uint64_t, Habit> habits_;  // by address
  std::vector<ring::Digest> hashed_;     // by the device, of the blocks of this cut; or empty
  const ring::Digest* ahead_ = nullptr;  // of these, the present block's
  bool distrusts_ = false;               // such digests
  uint64_t cut_ = 0;
  // At this cut.
  bool late_ = false;
  bool only_rests_ = false;
  const SharePlan* plan_ = nullptr;
  uint64_t elsewhere_bytes_ = 0;
  std::vector<CopyJob> later_, together_;
  std::vector<Copied> unsure_;  // copied at the last cut, and the gate has not been yet
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_MEMORY_STAGE_H_
