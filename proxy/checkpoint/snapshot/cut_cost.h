// What the snapshot of one cut has cost the program. Dispatch thread, but for copied().
#ifndef PYFT_CHECKPOINT_SNAPSHOT_CUT_COST_H_
#define PYFT_CHECKPOINT_SNAPSHOT_CUT_COST_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/memory/copier.h"
#include "ring/layout.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

class CutCost {
 public:
  // The streams were waited for so long, from then on. The device stands still now.
  void quiesced(uint64_t came_ns, uint64_t drain_ns, const ring::CutMark& cut,
                const ring::EntryHeader& header);
  // The work in this thread begins, and ends. `by_processor`: it is the processor's.
  void begin();
  void end(bool by_processor);
  // These copies are made while the program goes on; they have taken so long. In the copier's
  // thread, before this one looks.
  void leave(const std::vector<CopyJob>& later);
  void copied(uint64_t spent_ns) { later_ns_ = spent_ns; }
  uint64_t later_bytes() const { return later_bytes_; }

  // The entry that comes next was appended then; 0: long before. The first one counts.
  void next_entry(uint64_t appended_ns);
  // True: the work has ended, and no entry has waited for it yet.
  bool has_ended() const { return ended_ns_ != 0; }
  bool is_accounted() const { return kept_ns_.has_value(); }

  uint64_t came_ns() const { return came_ns_; }
  // The longest part of it.
  uint64_t longest_ns() const;
  // Adds it to the report's figures; `waited_ns`: for the copies, at its end. How long the
  // program's commands were kept waiting.
  uint64_t add_to(ring::StoreHeader& figures, uint64_t waited_ns) const;

 private:
  uint64_t later_bytes_ = 0, later_ns_ = 0;
  uint64_t came_ns_ = 0, drain_ns_ = 0;   // when the cut was taken; until the streams had ended
  uint64_t began_ns_ = 0, ended_ns_ = 0;  // the work in this thread, without waiting
  uint64_t used_ns_ = 0;                  // processor time of that, where it is the processor's
  std::optional<uint64_t> kept_ns_;       // how long entries waited for it
  uint64_t scope_ns_ = 0;  // the client has found out what is live, with no work for the server
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_SNAPSHOT_CUT_COST_H_
