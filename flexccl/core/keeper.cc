#include "core/keeper.h"

#include <map>
#include <mutex>
#include <thread>

#include "core/runner.h"

namespace flexccl {
namespace {

constexpr std::chrono::milliseconds kTick(200);
constexpr std::uint64_t kMuchBytes = 64 << 20;  // asked about even when busy

struct Watch {
  std::mutex mutex;
  std::map<Runner*, std::uint64_t> operations;  // at the last tick
  bool started = false;
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

}  // namespace

void keep_watch(Runner* runner) {
  const std::scoped_lock lock(watch().mutex);
  watch().operations[runner] = 0;
  if (std::exchange(watch().started, true)) return;
  std::thread([] {
    for (;;) {
      std::this_thread::sleep_for(kTick);
      tick();
    }
  }).detach();
}

void end_watch(Runner* runner) {
  const std::scoped_lock lock(watch().mutex);
  watch().operations.erase(runner);
}

}  // namespace flexccl
