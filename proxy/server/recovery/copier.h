// Copies of a cut's contents that are made while the device goes on (design-recovery.md, "Cut",
// step 3): a thread of low priority that nobody waits for unless somebody has to.
//
// The device may change what is being copied. So every copy is compared with the digest which the
// block had at the cut, and a copy that differs says so: it is never taken for the block.
#ifndef PYFT_SERVER_RECOVERY_COPIER_H_
#define PYFT_SERVER_RECOVERY_COPIER_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "ring/store_layout.h"
#include "server/recovery/calls.h"
#include "server/recovery/digest.h"

namespace pyft::server {

struct CopyJob {
  uint64_t address, bytes;
  std::byte* to;
  ring::Digest digest;  // at the cut
};

class Copier {
 public:
  // The next job, asked for ahead of the end of the one before; nullptr: there is none.
  using Next = std::function<const CopyJob*()>;
  // A job is done: whether the copy has the digest that it should have.
  using Copied = std::function<void(const CopyJob&, bool same)>;
  // Copies device memory as it is now, and hashes the copies, until there is no job. 0, or the
  // code of the first that cannot be copied, which are not the same. Any thread.
  using Copy = std::function<int(const Next&, const Copied&)>;
  // Jobs whose copies are not what was there at the cut; of the first that could not be copied, the
  // code; and the time that all copies took.
  struct Outcome {
    std::vector<CopyJob> changed;
    int code = 0;
    uint64_t spent_ns = 0;
  };

  // The copier's thread calls `enter` first, if there is one.
  explicit Copier(Copy copy, std::function<void()> enter = {});
  ~Copier();  // what has been started is finished first
  Copier(const Copier&) = delete;

  // Begins; `done` is called once, in the copier's thread. Precondition: nothing is under way.
  void start(std::vector<CopyJob> jobs, std::function<void(const Outcome&)> done);
  // Returns when `done` has returned, at once if nothing is under way. Takes part in the copying,
  // so that a thread of low priority keeps nobody waiting for longer than what it has begun takes
  // it.
  void finish();

 private:
  void run(const std::stop_token& stop);
  void copy_some();
  const CopyJob* next();
  void copied(const CopyJob& job, bool same);

  Copy copy_;
  std::function<void()> enter_;
  std::vector<CopyJob> jobs_;
  std::atomic<size_t> next_{0};  // job
  std::mutex mutex_;             // guards what follows
  std::condition_variable_any begun_;
  std::condition_variable copied_, ended_;
  size_t copying_ = 0;  // threads
  bool busy_ = false;
  Outcome outcome_;
  std::function<void(const Outcome&)> done_;
  std::jthread thread_;
};

// How memory is copied that this process can look at itself, and by way of the device.
Copier::Copy copy_by_looking(decltype(RecoveryCalls::peek) peek, DigestKey key);
Copier::Copy copy_by_reading(decltype(RecoveryCalls::read) read, DigestKey key);

// RecoveryCalls::peek for memory of this process.
bool peek_own_memory(uint64_t address, std::byte* to, uint64_t bytes);
// Whether the system lets it.
bool can_peek_own_memory();

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_COPIER_H_
