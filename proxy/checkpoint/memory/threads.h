// The same work in several threads at once, for as long as a call lasts.
#ifndef PYFT_CHECKPOINT_MEMORY_THREADS_H_
#define PYFT_CHECKPOINT_MEMORY_THREADS_H_

#include <sched.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#include "pyft/function_ref.h"

namespace pyft::checkpoint {

// More do not copy faster than a bus does, and other ranks of the host copy as well.
inline constexpr unsigned kMostThreads = 4;

// How many of this process's threads can work at once, kMostThreads at most.
inline unsigned threads_at_once() {
  cpu_set_t cores;
  const int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return std::clamp<unsigned>(static_cast<unsigned>(count), 1, kMostThreads);
}

// Calls work(i) for each i below `threads`, 0 in this thread, and returns when all have returned.
// If the system gives no more threads those that there are have to do: 0 is always one.
inline void in_threads(unsigned threads, FunctionRef<void(unsigned)> work) {
  std::vector<std::jthread> others;
  try {
    for (unsigned i = 1; i < threads; ++i) others.emplace_back([work, i] { work(i); });
  } catch (const std::system_error&) {
  }
  work(0);
}

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_MEMORY_THREADS_H_
