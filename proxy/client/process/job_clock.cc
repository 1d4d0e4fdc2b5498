#include "client/process/job_clock.h"

#include <link.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "ring/wait.h"

namespace pyft::client {
namespace {

constexpr int kLooks = 64;  // while the agent writes, which takes microseconds unless it dies

std::atomic<uintptr_t> code_begin{0}, code_end{0};

// What recoveries have taken by `real_ns`; nothing while the agent is writing.
std::optional<int64_t> recovered_ns(const ring::ControlPage& page, int64_t real_ns) {
  for (int look = 0; look < kLooks; ++look) {
    const uint32_t before = page.pauses_version.load(std::memory_order_acquire);
    const uint64_t done = page.paused_ns.load(std::memory_order_relaxed);
    const uint64_t since = page.paused_since.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 || before != page.pauses_version.load(std::memory_order_relaxed)) continue;
    const auto now = static_cast<uint64_t>(real_ns);
    const uint64_t running = since && since < now ? now - since : 0;
    // Whatever stands there, this is a time that has passed.
    return static_cast<int64_t>(std::min(std::min(done, now) + running, now));
  }
  return std::nullopt;
}

int find_code(dl_phdr_info* info, size_t, void*) {
  const char* const slash = std::strrchr(info->dlpi_name, '/');
  const char* const name = slash ? slash + 1 : info->dlpi_name;
  constexpr char kLibrary[] = "libtorch_cuda.so";
  if (std::strncmp(name, kLibrary, sizeof kLibrary - 1) != 0) return 0;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || !(part.p_flags & PF_X)) continue;
    begin = std::min<uintptr_t>(begin, info->dlpi_addr + part.p_vaddr);
    end = std::max<uintptr_t>(end, info->dlpi_addr + part.p_vaddr + part.p_memsz);
  }
  if (begin >= end) return 0;
  code_begin.store(begin, std::memory_order_relaxed);
  code_end.store(end, std::memory_order_release);
  return 1;
}

}  // namespace

void JobClock::follow(const ring::ControlPage& page, int64_t real_ns) {
  const auto recovered = recovered_ns(page, real_ns);
  if (!recovered) return;  // the next communicator tries again
  base_ = *recovered;
  last_.store(real_ns, std::memory_order_relaxed);
  page_.store(&page, std::memory_order_release);
}

int64_t JobClock::shown(int64_t real_ns) {
  const ring::ControlPage* const page = page_.load(std::memory_order_acquire);
  if (!page) return real_ns;
  int64_t last = last_.load(std::memory_order_relaxed);
  const auto recovered = recovered_ns(*page, real_ns);
  if (!recovered) return last;
  const int64_t now = real_ns - std::clamp<int64_t>(*recovered - base_, 0, real_ns);
  while (now > last && !last_.compare_exchange_weak(last, now, std::memory_order_relaxed)) {
  }
  return std::max(now, last);
}

JobClock& job_clock() {
  static constinit JobClock clock;
  return clock;
}

void watch(const ring::ControlPage& page) {
  static std::mutex mutex;
  if (job_clock().follows()) return;
  const std::lock_guard lock(mutex);
  if (job_clock().follows()) return;
  // Another program than PyTorch has nothing to follow; one that loads it later makes another
  // communicator.
  if (!dl_iterate_phdr(find_code, nullptr)) return;
  job_clock().follow(page, static_cast<int64_t>(ring::now_ns()));
}

bool is_watched(const void* code) {
  const auto at = reinterpret_cast<uintptr_t>(code);
  return at < code_end.load(std::memory_order_acquire) &&
         at >= code_begin.load(std::memory_order_relaxed);
}

}  // namespace pyft::client
