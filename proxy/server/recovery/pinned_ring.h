// Copies between the device's memory and memory that is not page-locked, by way of a few pieces
// that are: while one travels, the one before it is taken, or the next one is filled. What is read
// may pass memory of the device where that hashes it (server/digest/staging.h).
//
// They travel in a stream of the server's own that does not synchronise with the program's, and no
// other stream is looked at: so a capture of the program is not disturbed by them, from whichever
// thread (C5). One thread at a time, which works on the device.
#ifndef PYFT_SERVER_RECOVERY_PINNED_RING_H_
#define PYFT_SERVER_RECOVERY_PINNED_RING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/device.h"
#include "checkpoint/memory_range.h"
#include "server/digest/staging.h"
#include "server/recovery/wait_for.h"

namespace pyft::server {

class PinnedRing {
 public:
  static constexpr uint64_t kPieceBytes = Staging::kPieceBytes;
  static constexpr unsigned kPieces = Staging::kPieces;
  static constexpr int kLate = checkpoint::kNotReady;

  // nullptr, and why. `staging`: where the device hashes what is read; nullptr: nowhere. Page-locks
  // memory, for which a driver may wait for the device: only while that stands still.
  static std::unique_ptr<PinnedRing> make(const backend::Table& table,
                                          std::shared_ptr<Staging> staging, std::string* why);
  ~PinnedRing();
  PinnedRing(const PinnedRing&) = delete;

  // Both return the code of the call that fails, or 0: then the device has copied everything.
  // kLate: a piece has not come for so long. It may come yet, so that the next thread gets kLate
  // at once, until it has. Small ranges share a piece.
  int read(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
           uint64_t patience_ns);
  // As read, and `hashed` gets the digest of each range; kNotOnDevice: nothing is read.
  int read_hashed(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                  const checkpoint::TakeDigest& hashed, uint64_t patience_ns);
  int write(const checkpoint::NextContent& next, uint64_t patience_ns);
  // Lets go of the staging, if nothing is under way there.
  bool stop_hashing();
  // 0: nothing is under way that an earlier call has given up; kLate; or the device's error.
  int rests();

 private:
  struct Part {
    uint64_t at, bytes;
    bool last;  // of its range
  };
  struct Piece {
    unsigned number = 0;
    std::byte* memory = nullptr;
    CUevent there = nullptr;
    std::vector<Part> parts;  // of ranges that are read
  };
  PinnedRing(const backend::Table& table, std::shared_ptr<Staging> staging)
      : table_(table), staging_(std::move(staging)) {}
  std::string prepare();
  int pass(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
           const checkpoint::TakeDigest* hashed, uint64_t patience_ns);
  int pass_down(const checkpoint::NextContent& next, uint64_t patience_ns);
  int fill(const checkpoint::NextRange& next, bool hashes, checkpoint::MemoryRange* left,
           Piece* piece);
  int add(const checkpoint::MemoryRange& part, uint64_t at, bool hashes, const Piece& piece);
  static uint64_t end_of(const Piece& piece);
  int send(const Piece& piece);
  int end(int code, uint64_t patience_ns);
  int wait(const Piece& piece, uint64_t patience_ns) const;

  const backend::Table& table_;
  CUstream stream_ = nullptr;
  void* memory_ = nullptr;
  bool locked_ = false, under_way_ = false;
  std::shared_ptr<Staging> staging_;
  bool hashes_ = true;  // as far as is known
  std::array<Piece, kPieces> pieces_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_PINNED_RING_H_
