// Three functions of libstdc++ and libc, in front of theirs: for PyTorch's CUDA library they show
// the clock that stands still during recoveries (proxy/client/process/job_clock.h), for all
// else they do what they always do.
//
// Where libstdc++ was built for an old C library, as PyTorch's wheels are, a wait with a deadline
// asks steady_clock how long it still is and waits so long. Elsewhere it hands the deadline itself
// to the kernel, which has the real clock: so that is translated.
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

#include "client/process/job_clock.h"
#include "ring/wait.h"

#define PYFT_EXPORT extern "C" __attribute__((visibility("default"), noinline))

namespace {

using pyft::client::is_watched;
using pyft::client::job_clock;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLongestS = INT64_MAX / kSecond - 1;

int64_t real_ns() {
  return static_cast<int64_t>(pyft::ring::now_ns());
}

timespec time_of(int64_t ns) {
  return {ns / kSecond, ns % kSecond};
}

// A deadline on the clock that is shown, as one on the real clock.
timespec real_deadline(int64_t seconds, int64_t ns) {
  if (seconds >= kLongestS / 2) return {seconds, ns};
  return time_of(seconds * kSecond + ns + job_clock().behind(real_ns()));
}

bool is_past(int64_t seconds, int64_t ns) {
  const int64_t shown = job_clock().shown(real_ns());
  return seconds < shown / kSecond || (seconds == shown / kSecond && ns <= shown % kSecond);
}

}  // namespace

// std::chrono::steady_clock::now()
PYFT_EXPORT int64_t pyft_steady_now() noexcept __asm__("_ZNSt6chrono3_V212steady_clock3nowEv");
PYFT_EXPORT int64_t pyft_steady_now() noexcept {
  const int64_t now = real_ns();
  return is_watched(__builtin_return_address(0)) ? job_clock().shown(now) : now;
}

// Of std::condition_variable::wait_for.
PYFT_EXPORT int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                       clockid_t clock, const timespec* deadline) {
  using Function = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static std::atomic<Function> real{nullptr};
  Function call = real.load(std::memory_order_relaxed);
  if (!call) {
    call = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_cond_clockwait"));
    if (!call) return EINVAL;  // it is unknown where the C library has none
    real.store(call, std::memory_order_relaxed);
  }
  if (clock != CLOCK_MONOTONIC || !is_watched(__builtin_return_address(0)))
    return call(condition, mutex, clock, deadline);
  const timespec translated = real_deadline(deadline->tv_sec, deadline->tv_nsec);
  return call(condition, mutex, clock, &translated);
}

// Of std::future::wait_for: std::__atomic_futex_unsigned_base::_M_futex_wait_until_steady. It waits
// itself: the function behind it is in a library that a search from here need not find.
PYFT_EXPORT bool pyft_futex_wait(void*, unsigned* word, unsigned value, bool has_deadline,
                                 int64_t seconds, int64_t ns) noexcept
    __asm__(
        "_ZNSt28__atomic_futex_unsigned_base26_M_futex_wait_until_steadyEPjjbNSt6chrono8durati"
        "onIlSt5ratioILl1ELl1EEEENS2_IlS3_ILl1ELl1000000000EEEE");
PYFT_EXPORT bool pyft_futex_wait(void*, unsigned* word, unsigned value, bool has_deadline,
                                 int64_t seconds, int64_t ns) noexcept {
  // Not FUTEX_PRIVATE_FLAG: the thread that wakes does not use it either.
  const auto wait = [&](const timespec* until) {
    return syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, until, nullptr,
                   FUTEX_BITSET_MATCH_ANY);
  };
  if (!has_deadline) {
    wait(nullptr);
    return true;
  }
  if (seconds < 0) return false;
  if (!is_watched(__builtin_return_address(0))) {
    const timespec until{seconds, ns};
    return wait(&until) == 0 || errno != ETIMEDOUT;
  }
  do {
    const timespec until = real_deadline(seconds, ns);
    if (wait(&until) == 0 || errno != ETIMEDOUT) return true;
  } while (!is_past(seconds, ns));  // a recovery has begun meanwhile
  return false;
}
