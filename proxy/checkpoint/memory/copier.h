// Copies of a cut's contents that are made while the device goes on (docs/concepts/snapshot.md), in
// a thread of low priority: the dispatch thread helps where it has to wait.
//
// The device may change what is being copied. So every copy is compared with the digest which the
// block had at the cut, and a copy that differs says so: it is never taken for the block.
#ifndef PYFT_CHECKPOINT_MEMORY_COPIER_H_
#define PYFT_CHECKPOINT_MEMORY_COPIER_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/device.h"
#include "checkpoint/digest/digest.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

struct CopyJob {
  uint64_t address, bytes;
  std::byte* to;
  ring::Digest digest;  // at the cut
};

// The next job, asked for ahead of the end of the one before; nullptr: there is none.
using NextCopy = FunctionRef<const CopyJob*()>;
// A job is done: whether the copy has the digest that it should have.
using CopyDone = FunctionRef<void(const CopyJob&, bool same)>;
// As DeviceMemory::read, and read_hashed.
struct Reads {
  FunctionRef<int(const NextRange& next, const TakePiece& take)> plain;
  FunctionRef<int(const NextRange& next, const TakePiece& take, const TakeDigest& hashed)> hashed;
};
// Copies device memory as it is now, until there is no job, and compares what has been copied. The
// device hashes it on its way, or else the host hashes the copies. 0, or the code of the first that
// cannot be copied, which are not the same. Any thread.
int copy_by_reading(const Reads& reads, DigestKey key, const NextCopy& next,
                    const CopyDone& copied);

class Copier {
 public:
  // Jobs whose copies are not what was there at the cut; of the first that could not be copied, the
  // code; and the time that all copies took.
  struct Outcome {
    std::vector<CopyJob> changed;
    int code = 0;
    uint64_t spent_ns = 0;
    // Empty, or in words why the cut is none.
    std::string problem() const;
  };
  // What the copies are for.
  class User {
   public:
    virtual ~User() = default;
    // What has been started is done. Once, in the copier's thread.
    virtual void copied(const Outcome& outcome) = 0;
  };

  // Both outlive the object.
  Copier(BackgroundReads& device, DigestKey key, User& user);
  ~Copier();  // what has been started is finished first
  Copier(const Copier&) = delete;

  // Begins. Precondition: nothing is under way.
  void start(std::vector<CopyJob> jobs);
  // Returns when the user has been told, at once if nothing is under way. Takes part in the
  // copying, so that a thread of low priority keeps no other one waiting for longer than what it
  // has begun takes it.
  void finish();

 private:
  void run(const std::stop_token& stop);
  void copy_some();
  const CopyJob* next();
  int copy();
  void copied(const CopyJob& job, bool same);

  BackgroundReads& device_;
  const DigestKey key_;
  User& user_;
  const bool peeks_;  // asked once, in the thread that has made this
  std::vector<CopyJob> jobs_;
  std::atomic<size_t> next_{0};  // job
  std::mutex mutex_;             // guards what follows
  std::condition_variable_any begun_;
  std::condition_variable copied_, ended_;
  size_t copying_ = 0;  // threads
  bool busy_ = false;
  Outcome outcome_;
  std::jthread thread_;
};

// BackgroundReads::peek for memory of this process.
bool peek_own_memory(uint64_t address, std::byte* to, uint64_t bytes);
// Whether the system lets it.
bool can_peek_own_memory();

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_MEMORY_COPIER_H_
