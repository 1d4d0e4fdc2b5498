// How the server copies memory of a device that it cannot look at: at cuts and in restores while
// the device stands still, and in background copies beside the program's work.
//
// All of it passes page-locked pieces (pinned_ring.h). There are two rings of them, so that the
// thread that dispatches can help that of background copies when it has to wait for it, and more in
// a restore, which several threads do: one fills pieces at a tenth of the bus's rate.
#ifndef PYFT_SERVER_RECOVERY_DEVICE_COPIES_H_
#define PYFT_SERVER_RECOVERY_DEVICE_COPIES_H_

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/memory/threads.h"
#include "server/digest/device_digests.h"
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
  // Before anything is copied: the device hashes what it copies, by these.
  void hash_by(std::shared_ptr<DeviceDigests> digests) { digests_ = std::move(digests); }

  // Codes of the calls, 0: all is copied. Nothing else works on the device. Dispatch thread.
  int read(const checkpoint::NextRange& next, const checkpoint::TakePiece& take);
  // In so many threads at once as prepare_writers() has said, each with a call of its own.
  int read_hashed(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                  const checkpoint::TakeDigest& hashed);
  int write(const checkpoint::NextContent& next);
  unsigned prepare_writers(unsigned wanted);
  // Gives back memory of the device through which copies pass, unless some are under way: the host
  // hashes from then on. False: nothing is given back. Dispatch thread.
  bool make_room();
  // At a cut: gets ready what copies beside the device's work need. False: there can be none.
  bool ready_beside();
  // Beside the device's work, which may change what is read meanwhile. At most two threads at a
  // time. An error of the device is one as at any other call, and may end this process.
  int read_beside(const checkpoint::NextRange& next, const checkpoint::TakePiece& take) {
    return read_beside(next, take, nullptr);
  }
  int read_beside_hashed(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                         const checkpoint::TakeDigest& hashed) {
    return read_beside(next, take, &hashed);
  }

 private:
  struct Slot {
    std::unique_ptr<PinnedRing> ring;
    bool busy = false;
  };
  bool make(Slot* slot);
  std::shared_ptr<Staging> staging_of(const Slot* slot) const;
  int read_beside(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                  const checkpoint::TakeDigest* hashed);
  int read_pageable(const checkpoint::NextRange& next, const checkpoint::TakePiece& take);
  int write_pageable(const checkpoint::NextContent& next);
  Slot* take_slot();
  void give_back(Slot* slot);
  void give_up_beside();

  Session& session_;
  const Patience patience_;
  std::shared_ptr<DeviceDigests> digests_;
  std::mutex mutex_;  // guards Slot::busy
  std::array<Slot, checkpoint::kMostThreads> slots_;
  bool refused_;                   // no pages are locked, or no more
  std::atomic<bool> late_{false};  // a copy beside the device's work has not come in time
  std::vector<std::byte> staging_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_DEVICE_COPIES_H_
