// One server's captures, with a device that is this process's memory.
#ifndef PYFT_TESTS_RECOVERY_SERVER_H_
#define PYFT_TESTS_RECOVERY_SERVER_H_

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "recovery/memory.h"
#include "server/recovery/capture.h"

namespace recovery_test {

inline constexpr uint64_t kRoom = uint64_t{64} << 20;

struct AlwaysAlive : ring::Liveness {
  ring::WaitStatus check() const override { return ring::WaitStatus::kOk; }
};

// One server's life: store, session, capture. The memory object and the channel outlive it.
struct Server {
  Server(ring::Channel& channel, const Object& object, Memory& memory, bool views,
         server::CaptureOptions options = {50'000'000, 1, 0.02, 60'000'000'000,
                                           server::Late::kAlways})
      : channel(channel),
        session(channel, nullptr, alive, memory.device()),
        calls(memory.calls(views)) {
    std::string error;
    store = object.open(&error);
    CHECK_EQ(error, "");
    capture.emplace(session, *store, calls, options);
  }
  // The cut may be undecided when this returns.
  void take(uint64_t number, const std::vector<std::byte>& scope = {}, bool forced = false) {
    ring::CutMark mark{number, 0, 0, forced, 0, 0, static_cast<uint32_t>(number)};
    ring::EntryHeader header{};
    header.seq = number * 10;
    CHECK(capture->take(header, std::as_bytes(std::span(&mark, 1)), scope, number * 100).ok());
  }
  // True: captured.
  bool captured(uint64_t number) const {
    const ring::ControlPage& page = channel.control();
    CHECK(store->waiting() || page.decided_cut >= number);
    return page.captured_cut == number;
  }
  bool cut(uint64_t number, const std::vector<std::byte>& scope = {}, bool forced = false) {
    take(number, scope, forced);
    return captured(number);
  }
  ring::Channel& channel;
  AlwaysAlive alive;
  server::Session session;
  server::RecoveryCalls calls;
  std::unique_ptr<server::Store> store;
  std::optional<server::Capture> capture;
};

struct Bench {
  Bench() : object(kBeforeHeap + kRoom) {
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
                      server::Late late = server::Late::kNever)
      : Server(*bench.channel, bench.object, bench.memory, true) {
    calls.captured = [this](uint64_t step, uint64_t offset, uint64_t) {
      told.push_back({step, offset});
    };
    calls.delivered = [this](uint64_t) { return is_delivered.load(); };
    server::CaptureOptions options;
    options.join_timeout_ns = 50'000'000;
    options.every = 1;
    options.late = late;
    options.hold_ns = 1'000'000;
    options.arbitrates = arbitrates;
    options.settled = &settled;
    capture.emplace(session, *store, calls, options);
    store->header().compares = 1;
    store->header().taken_step = UINT64_MAX;
  }
  std::atomic<uint64_t> settled{0};
  std::atomic<bool> is_delivered{true};
  std::vector<std::pair<uint64_t, uint64_t>> told;
};

}  // namespace recovery_test

#endif  // PYFT_TESTS_RECOVERY_SERVER_H_
