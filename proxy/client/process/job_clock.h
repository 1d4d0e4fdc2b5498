// The clock by which PyTorch's NCCL watchdog measures: it stands still while any rank of the job is
// being recovered, so that a program's own deadlines end what is stuck, and no recovery.
//
// Threads: any. Nothing here waits or allocates, so it may be called at any time.
#ifndef PYFT_CLIENT_PROCESS_JOB_CLOCK_H_
#define PYFT_CLIENT_PROCESS_JOB_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "ring/layout.h"

namespace pyft::client {

class JobClock {
 public:
  // From now on the recoveries count that the agent writes down in `page`, which lives as long as
  // this. Only the first page counts: the agent writes the same into all.
  void follow(const ring::ControlPage& page, int64_t real_ns);
  bool follows() const { return page_.load(std::memory_order_acquire) != nullptr; }
  // CLOCK_MONOTONIC less what recoveries have taken since follow(). Never goes back.
  int64_t shown(int64_t real_ns);
  // By how much a time that was shown lies behind CLOCK_MONOTONIC.
  int64_t behind(int64_t real_ns) { return real_ns - shown(real_ns); }

 private:
  std::atomic<const ring::ControlPage*> page_{nullptr};
  int64_t base_ = 0;  // of what the page says, this was before follow()
  std::atomic<int64_t> last_{0};
};

// The clock of this process. `watch` is called when a communicator is made: PyTorch's library is
// loaded then, and has no deadline that runs.
JobClock& job_clock();
void watch(const ring::ControlPage& page);
// Whether code of PyTorch's CUDA library lies at this address.
bool is_watched(const void* code);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_PROCESS_JOB_CLOCK_H_
