// Captures: what is live at a cut goes to the store, outside the fault domain of the device.
//
// At a cut the server waits until all streams have come to their ends, so that the state is that
// after all entries before the cut (design-recovery.md, A11). Then every live block is hashed, and
// what is known to stay as it is until the next optimizer step is copied while the program goes on
// (stage.h); the cut is the recovery point when that is done. A cut that cannot be captured is
// cancelled, which is always safe: the log before it stays until a later one is captured.
//
// Dispatch thread, unless it says otherwise. While copies are under way the store and what is open
// here belong to the copier's thread.
#ifndef PYFT_SERVER_RECOVERY_CAPTURE_H_
#define PYFT_SERVER_RECOVERY_CAPTURE_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/recovery/calls.h"
#include "server/recovery/copier.h"
#include "server/recovery/live_set.h"
#include "server/recovery/pace.h"
#include "server/recovery/stage.h"
#include "server/recovery/store.h"
#include "server/session.h"

namespace pyft::server {

struct CaptureOptions {
  uint64_t join_timeout_ns = 2'000'000'000;  // without progress: a stream may wait for another rank
  uint64_t every = 0;                        // each K-th cut; 0: as the cost allows
  double budget = 0.02;                      // of the time between two cuts
  uint64_t join_limit_ns = 60'000'000'000;   // with progress
  Late late = Late::kAsCostSays;
};
// PYFT_CUT_EVERY, PYFT_LATE_COPIES
CaptureOptions capture_options();

class Capture {
 public:
  Capture(Session& session, Store& store, RecoveryCalls calls, const CaptureOptions& options);

  // The entry is a cut; `position` is the ring position after it. The cut is decided about
  // (captured or cancelled), which is published and wakes who waits for it: before this returns, or
  // when its copies are made. Broken: the entry is no cut.
  Status take(const ring::EntryHeader& header, std::span<const std::byte> body,
              std::span<const std::byte> payload, uint64_t position);
  // The entry is a gate: what follows may change what is being copied. Returns when it is not.
  Status gate();

 private:
  // A cut that is neither captured nor cancelled.
  struct Open {
    ring::Manifest manifest{};
    std::vector<ring::ManifestPlace> places;
    LiveSet live;
    uint64_t cuts = 0;  // since the last one that was captured
    uint64_t later_bytes = 0;
    uint64_t began_ns = 0, join_ns = 0, spent_ns = 0;  // spent: at the cut, without waiting
    bool captured = false;
  };
  bool is_due(const ring::CutMark& cut);
  std::string begin(const ring::CutMark& cut, const ring::EntryHeader& header,
                    std::span<const std::byte> scope, uint64_t position);
  std::string join();
  void copied(const Copier::Outcome& outcome);
  std::string publish();
  void close(const std::string& problem);
  void settle();
  void decided(uint64_t cut, bool captured);
  void cancelled(const std::string& why);

  Session& session_;
  Store& store_;
  RecoveryCalls calls_;
  CaptureOptions options_;
  Stage stage_;
  Pace pace_;
  uint64_t last_captured_ = 0;  // cut
  std::optional<Open> open_;
  bool said_ = false;
  std::optional<Copier> copier_;  // last: its thread ends first
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_CAPTURE_H_
