#include "runner/reclaimer.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "runner/operation_runner.h"

namespace flexccl {
namespace {

constexpr std::chrono::milliseconds kTick(200);
constexpr std::uint64_t kMuchBytes = 64 << 20;  // asked about even when busy

struct Watch {
  std::mutex mutex;
  std::map<OperationRunner*, std::uint64_t> operations;  // at the last tick
  bool started = false;
  std::mutex urgent_mutex;  // never held while a rank is asked
  std::condition_variable hurried;
  std::set<OperationRunner*> urgent;
};

// Never destroyed: its thread serves until the process ends.
Watch& watch() {
  static Watch* const all = std::make_unique<Watch>().release();
  return *all;
}

void tick() {
  const std::scoped_lock lock(watch().mutex);
  for (auto& [runner, operations] : watch().operations) {
    const Counters now = runner->counters();
    if (now.kept_bytes && (now.operations == operations || now.kept_bytes > kMuchBytes))
      runner->flush();
    operations = now.operations;
  }
}

void flush(const std::set<OperationRunner*>& runners) {
  const std::scoped_lock lock(watch().mutex);
  for (OperationRunner* runner : runners)
    if (watch().operations.contains(runner)) runner->flush();
}

void serve() {
  auto next = std::chrono::steady_clock::now() + kTick;
  for (;;) {
    std::set<OperationRunner*> urgent;
    {
      std::unique_lock lock(watch().urgent_mutex);
      watch().hurried.wait_until(lock, next, [] { return !watch().urgent.empty(); });
      urgent.swap(watch().urgent);
    }
    flush(urgent);
    if (std::chrono::steady_clock::now() < next) continue;
    tick();
    next = std::chrono::steady_clock::now() + kTick;
  }
}

}  // namespace

void keep_watch(OperationRunner* runner) {
  const std::scoped_lock lock(watch().mutex);
  watch().operations[runner] = 0;
  if (std::exchange(watch().started, true)) return;
  std::thread(serve).detach();
}

void hurry(OperationRunner* runner) {
  {
    const std::scoped_lock lock(watch().urgent_mutex);
    watch().urgent.insert(runner);
  }
  watch().hurried.notify_one();
}

void end_watch(OperationRunner* runner) {
  const std::scoped_lock lock(watch().mutex);
  watch().operations.erase(runner);
}

}  // namespace flexccl
