// What the workers of ccl_repair share, be they processes or threads: a barrier, flags, clocks, and
// the small messages that a control plane would carry. No wait is longer than kDeadlineS.
#ifndef PYFT_BENCH_CCL_BOARD_H_
#define PYFT_BENCH_CCL_BOARD_H_

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <span>

#include "flexccl.h"

constexpr int kDeadlineS = 60;

[[noreturn]] inline void give_up(const char* what) {
  std::fprintf(stderr, "ccl_repair: %s\n", what);
  std::_Exit(1);
}

inline double clock_ms(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// A counter that others can wait for.
struct Flag {
  std::atomic<std::uint32_t> value = 0;

  void raise() {
    value.fetch_add(1, std::memory_order_release);
    syscall(SYS_futex, &value, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }
  void wait_past(std::uint32_t old) {
    const double end = clock_ms(CLOCK_MONOTONIC) + kDeadlineS * 1e3;
    while (value.load(std::memory_order_acquire) == old) {
      const timespec second{1, 0};
      syscall(SYS_futex, &value, FUTEX_WAIT, old, &second, nullptr, 0);
      if (clock_ms(CLOCK_MONOTONIC) > end) give_up("a worker waits for others that do not come");
    }
  }
};

struct Barrier {
  std::atomic<std::uint32_t> arrived = 0;
  Flag released;

  void wait_for(std::uint32_t members) {
    const std::uint32_t round = released.value.load(std::memory_order_acquire);
    if (arrived.fetch_add(1) + 1 == members) {
      arrived = 0;
      released.raise();
    } else {
      released.wait_past(round);
    }
  }
  // Until so many wait here, and some time more, in which they fall asleep.
  void watch_until(std::uint32_t sleepers) const {
    const double end = clock_ms(CLOCK_MONOTONIC) + kDeadlineS * 1e3;
    while (arrived.load() < sleepers) {
      usleep(100);
      if (clock_ms(CLOCK_MONOTONIC) > end) give_up("the workers do not fall asleep");
    }
    usleep(300);
  }
};

// `start_ms` 0: took no part.
struct Clocks {
  double start_ms, end_ms, cpu_start_ms, cpu_end_ms;
};

struct Board {
  static constexpr int kMaxWorkers = 1026;
  Barrier all, few;
  Flag exported, answered;
  ncclUniqueId id;
  flexcclInfo_t survivor_info, newcomer_info;
  Clocks clocks[2][kMaxWorkers];

  static Board* make() {
    void* memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) give_up("no shared memory");
    return ::new (memory) Board;
  }
};

struct Sample {
  double wall_ms, cpu_ms;
};

// From the release of the barrier until the last worker was done; processor time of all of them.
inline Sample sample_of(std::span<const Clocks> clocks) {
  double start = INFINITY, end = 0, cpu = 0;
  for (const Clocks& one : clocks) {
    if (one.start_ms > 0) start = std::min(start, one.start_ms);
    if (one.start_ms > 0) end = std::max(end, one.end_ms);
    cpu += one.cpu_end_ms - one.cpu_start_ms;
  }
  return {end - start, cpu};
}

#endif  // PYFT_BENCH_CCL_BOARD_H_
