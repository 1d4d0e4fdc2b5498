// One server's snapshots, with a device that is this process's memory.
#ifndef PYFT_TESTS_RECOVERY_SERVER_H_
#define PYFT_TESTS_RECOVERY_SERVER_H_

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alive.h"
#include "check.h"
#include "checkpoint/resources/device_memory.h"
#include "checkpoint/snapshot/snapshotter.h"
#include "recovery/memory.h"

namespace recovery_test {

inline constexpr uint64_t kMemoryFreed = uint64_t{64} << 20;

// One server's life: store, log, snapshot. The memory object and the channel outlive it.
struct Server {
  Server(ring::Channel& channel, const Object& object, Memory& memory, bool views,
         checkpoint::SnapshotOptions options = {50'000'000, 1, 0.02, 60'000'000'000,
                                                checkpoint::Late::kAlways})
      : channel(channel), recovery(channel), fake(memory.calls(views)) {
    std::string error;
    store = object.open(&error);
    CHECK_EQ(error, "");
    restart(options);
  }
  // With what `calls` has now.
  void restart(const checkpoint::SnapshotOptions& options) {
    snapshotter.emplace(checkpoint::Log{channel, alive, recovery}, *store, fake.device(), fake,
                        fake, options);
  }
  std::string restore() {
    return checkpoint::restore_memory(channel.control(), *store, fake, fake);
  }
  // The cut may be undecided when this returns.
  void take(uint64_t number, const std::vector<std::byte>& scope = {}, bool forced = false) {
    ring::CutMark mark{number, 0, 0, forced, 0, 0, static_cast<uint32_t>(number)};
    ring::EntryHeader header{};
    header.seq = number * 10;
    snapshotter->take(header, mark, scope, number * 100);
  }
  // True: snapshotted.
  bool snapshotted(uint64_t number) const {
    const ring::ControlPage& page = channel.control();
    CHECK(store->waiting() || page.decided_cut >= number);
    return page.snapshot_cut == number;
  }
  bool cut(uint64_t number, const std::vector<std::byte>& scope = {}, bool forced = false) {
    take(number, scope, forced);
    return snapshotted(number);
  }
  ring::Channel& channel;
  AlwaysAlive alive;
  checkpoint::Recovery recovery;
  Fake fake;
  FakeCalls& calls = fake.calls;
  std::unique_ptr<checkpoint::Store> store;
  std::optional<checkpoint::Snapshotter> snapshotter;
};

struct Bench {
  Bench() : object(kBeforeHeap + kMemoryFreed) {
    ring::ChannelShape shape;
    shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
    std::string error;
    channel = ring::Channel::create(shape, &error);
  }
  Object object;
  Memory memory;
  std::unique_ptr<ring::Channel> channel;
};

// Cuts that wait until the agent has compared them with those of other ranks.
struct HeldServer : Server {
  explicit HeldServer(Bench& bench, uint64_t arbitrates = 0,
                      checkpoint::Late late = checkpoint::Late::kNever)
      : Server(*bench.channel, bench.object, bench.memory, true) {
    calls.staged = [this](uint64_t step, uint64_t offset, uint64_t) {
      told.push_back({step, offset});
    };
    calls.acknowledged = [this](uint64_t) { return is_acknowledged.load(); };
    checkpoint::SnapshotOptions options;
    options.drain_timeout_ns = 50'000'000;
    options.every = 1;
    options.late = late;
    options.hold_ns = 1'000'000;
    options.arbitrates = arbitrates;
    options.agreed = &agreed;
    restart(options);
    store->header().compares = 1;
    store->header().taken_step = UINT64_MAX;
  }
  std::atomic<uint64_t> agreed{0};
  std::atomic<bool> is_acknowledged{true};
  std::vector<std::pair<uint64_t, uint64_t>> told;
};

}  // namespace recovery_test

#endif  // PYFT_TESTS_RECOVERY_SERVER_H_
