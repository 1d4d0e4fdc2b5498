// Captures: what is live at a cut goes to the store, outside the fault domain of the device.
//
// At a cut the server waits until all streams have come to their ends, so that the state is that
// after all entries before the cut (design-recovery.md, A11). Then every live block is hashed, and
// copied unless the store has that content. A cut that cannot be captured is cancelled, which is
// always safe: the log before it stays until a later one is captured. Dispatch thread only.
#ifndef PYFT_SERVER_RECOVERY_CAPTURE_H_
#define PYFT_SERVER_RECOVERY_CAPTURE_H_

#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "server/recovery/calls.h"
#include "server/recovery/digest.h"
#include "server/recovery/live_set.h"
#include "server/recovery/store.h"
#include "server/session.h"

namespace pyft::server {

struct CaptureOptions {
  uint64_t join_timeout_ns = 2'000'000'000;  // without progress: a stream may wait for another rank
  uint64_t every = 0;                        // each K-th cut; 0: as the cost allows
  double budget = 0.02;                      // of the time between two cuts
  uint64_t join_limit_ns = 60'000'000'000;   // with progress
};
// PYFT_CUT_EVERY
CaptureOptions capture_options();

class Capture {
 public:
  Capture(Session& session, Store& store, RecoveryCalls calls, const CaptureOptions& options);

  // The entry is a cut; `position` is the ring position after it. Decides about the cut (captured
  // or cancelled), publishes that and wakes who waits for it. Broken: the entry is no cut.
  Status take(const ring::EntryHeader& header, std::span<const std::byte> body,
              std::span<const std::byte> payload, uint64_t position);

 private:
  bool is_due(const ring::CutMark& cut);
  std::string capture(const ring::CutMark& cut, const ring::EntryHeader& header,
                      std::span<const std::byte> scope, uint64_t position);
  std::string join();
  std::string store_block(const MemoryRange& block, const ring::ManifestBlock* before);
  bool add_untouched(const MemoryRange& block);
  std::string copy_block(const MemoryRange& block, const ring::ManifestBlock* before);
  std::string read(const MemoryRange& block, std::byte* copy, ring::Digest* digest);
  void decided(uint64_t cut, bool captured);
  void cancelled(const std::string& why);
  void weigh(uint64_t cut, uint64_t began_ns, uint64_t spent_ns);

  Session& session_;
  Store& store_;
  RecoveryCalls calls_;
  CaptureOptions options_;
  Hasher hasher_;
  std::vector<std::byte> staging_;
  std::unordered_set<uint64_t> volatile_;  // addresses of blocks that changed between two cuts
  uint64_t every_ = 1;
  uint64_t last_captured_ = 0;          // cut
  uint64_t last_began_ns_ = 0;          // of the last capture
  uint64_t weighed_ = 0;                // captures
  double period_ns_ = 0, cost_ns_ = 0;  // of a capture; averages
  bool said_ = false;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_CAPTURE_H_
