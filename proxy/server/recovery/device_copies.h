// How the server copies memory of a device that it cannot look at: at cuts and in restores while
// the device stands still, and in background copies beside the program's work.
//
// All of it passes page-locked pieces (pinned_ring.h): two rings of them, so that the thread that
// dispatches can help that of background copies when it has to wait for it.
#ifndef PYFT_SERVER_RECOVERY_DEVICE_COPIES_H_
#define PYFT_SERVER_RECOVERY_DEVICE_COPIES_H_

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/recovery/pinned_ring.h"
#include "server/session/session.h"

namespace pyft::server {

class DeviceCopies {
 public:
  // At cuts and in restores a piece is waited for as long as an entry may take. Behind a cut less:
  // the copy may be queued behind work that waits for another rank, which may wait for this one.
  struct Patience {
    uint64_t at_cuts_ns = 60'000'000'000, beside_ns = 10'000'000'000;
  };
  // The session must outlive this. Without `locks_pages` all goes through memory that is not
  // page-locked, and nothing is copied beside the device's work.
  DeviceCopies(Session& session, bool locks_pages) : DeviceCopies(session, locks_pages, {}) {}
  DeviceCopies(Session& session, bool locks_pages, Patience patience)
      : session_(session), patience_(patience), refused_(!locks_pages) {}
  DeviceCopies(const DeviceCopies&) = delete;

  // Codes of the calls, 0: all is copied. Dispatch thread, nothing else works on the device.
  int read(const checkpoint::NextRange& next, const checkpoint::TakePiece& take);
  int write(uint64_t address, const std::byte* from, uint64_t bytes);
  // At a cut: gets ready what copies beside the device's work need. False: there can be none.
  bool ready_beside();
  // Beside the device's work, which may change what is read meanwhile. At most two threads at a
  // time. An error of the device is one as at any other call, and may end this process.
  int read_beside(const checkpoint::NextRange& next, const checkpoint::TakePiece& take);

 private:
  struct Slot {
    std::unique_ptr<PinnedRing> ring;
    bool busy = false;
  };
  bool make(Slot* slot);
  int read_pageable(const checkpoint::NextRange& next, const checkpoint::TakePiece& take);
  int write_pageable(uint64_t address, const std::byte* from, uint64_t bytes);
  Slot* take_slot();
  void give_up_beside();

  Session& session_;
  const Patience patience_;
  std::mutex mutex_;  // guards Slot::busy
  std::array<Slot, 2> slots_;
  bool refused_;                   // no pages are locked, or no more
  std::atomic<bool> late_{false};  // a copy beside the device's work has not come in time
  std::vector<std::byte> staging_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_DEVICE_COPIES_H_
