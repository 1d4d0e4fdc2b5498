#include "checkpoint/throttle.h"

#include <time.h>

#include <algorithm>
#include <atomic>

#include "checkpoint/bytes_passed.h"
#include "pyft/settings.h"
#include "ring/wait.h"

namespace pyft::checkpoint {

namespace {

constexpr uint64_t kNewPages = 2;        // times as long as a copy, beside the copy itself
constexpr uint64_t kTurnNs = 1'000'000;  // after which it is seen that something moves

std::atomic<uint64_t> bus_free_ns{0};

// Until the bus is free again, and then for as long as these bytes take.
uint64_t take_bus(uint64_t length_ns) {
  uint64_t free_at = bus_free_ns.load(), end = 0;
  do end = std::max(free_at, ring::now_ns()) + length_ns;
  while (!bus_free_ns.compare_exchange_weak(free_at, end));
  return end;
}

}  // namespace

uint64_t bus_ns(uint64_t bytes, double mb_per_s) {
  return mb_per_s > 0 ? static_cast<uint64_t>(static_cast<double>(bytes) * 1e3 / mb_per_s) : 0;
}

void throttle(uint64_t bytes) {
  const uint64_t length = bus_ns(bytes, settings::copy_mb_s());
  if (!length) return;
  const uint64_t end = take_bus(length);
  for (uint64_t now = ring::now_ns(); now < end; now = ring::now_ns()) {
    pass_turn();
    const timespec nap{0, static_cast<long>(std::min(end - now, kTurnNs))};
    nanosleep(&nap, nullptr);
  }
}

void throttle_new(uint64_t bytes) {
  throttle(kNewPages * bytes);
}

}  // namespace pyft::checkpoint
