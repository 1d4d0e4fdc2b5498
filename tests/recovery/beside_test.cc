// Background copies of memory that the server cannot look at: the device hashes it at the cut,
// and it is read through the device beside the device's work.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <thread>

#include "check.h"
#include "checkpoint/resources/device_memory.h"
#include "recovery/server.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

constexpr uint64_t kBytes = 1'000'000, kPiece = 300'000, kFew = 100;
constexpr uint64_t kLearned = 6;  // cuts

// Its memory is this process's. It hashes it, and copies it in pieces.
struct Device : Server {
  explicit Device(Bench& bench, bool hashes = true)
      : Server(*bench.channel, bench.object, bench.memory, false) {
    CHECK_EQ(store->set_digests(ring::DigestKind::kNh), "");
    if (hashes)
      calls.digests = [this](std::span<const checkpoint::MemoryRange> ranges, ring::Digest* out) {
        for (const checkpoint::MemoryRange& range : ranges)
          *out++ = checkpoint::digest(reinterpret_cast<const void*>(range.address), range.bytes,
                                      store->digest_key());
        return 0;
      };
    calls.ready_beside = [this] { return ready; };
    calls.enter = [this] { entered = true; };
    calls.read_beside = [this](const checkpoint::NextRange& next,
                               const checkpoint::TakePiece& take) {
      int failed = 0;
      for (checkpoint::MemoryRange range; !failed && next(&range);)
        failed = copy(range.address, range.bytes, take);
      return failed;
    };
    restart(checkpoint::SnapshotOptions{50'000'000, 1, 0.02, 60'000'000'000,
                                        checkpoint::Late::kAlways});
  }
  int copy(uint64_t address, uint64_t bytes, const checkpoint::TakePiece& take) {
    ++copies;
    if (before_copy) before_copy();
    if (const int now = code) return now;
    for (uint64_t at = 0; at < bytes; at += kPiece)
      take(reinterpret_cast<const std::byte*>(address) + at, std::min(kPiece, bytes - at));
    ++copied;
    return 0;
  }
  const ring::StoreHeader& figures() const { return store->header(); }

  bool ready = true;
  std::atomic<bool> entered{false};
  std::atomic<int> code{0}, copies{0}, copied{0};
  std::function<void()> before_copy;  // in any thread
};

// A large parameter and a small one, which change behind gates, and a buffer, which does anywhere.
struct Training : Bench {
  Training() {
    memory.allocate(kBytes, 1);
    memory.allocate(kFew, 2);
    memory.allocate(kBytes, 3);
  }
  void change_parameters(uint64_t value) {
    memory.blocks[0][7] = memory.blocks[0][kBytes - 1] = memory.blocks[1][7] =
        static_cast<std::byte>(100 + value);
  }
  // From one cut to the next.
  void step(Server& server, uint64_t cut) {
    memory.blocks[2][7] = static_cast<std::byte>(50 + cut);
    server.snapshotter->gate();
    change_parameters(cut);
    server.take(cut);
  }
  void learn(Server& server) {
    server.take(1);
    for (uint64_t cut = 2; cut <= kLearned; ++cut) step(server, cut);
    server.snapshotter->gate();
    CHECK(server.snapshotted(kLearned));
  }
  void restore(Server& server) {
    for (auto& block : memory.blocks) std::fill(block.begin(), block.end(), std::byte{255});
    CHECK_EQ(server.restore(), "");
  }
};

TEST(parameters_of_any_size_are_copied_behind_the_cut) {
  Training training;
  Device server(training);
  training.learn(server);
  const uint64_t reads = training.memory.reads;
  const ring::StoreHeader& figures = server.figures();
  for (uint64_t cut = 7; cut < 12; ++cut) {
    const uint64_t copied = figures.copied_bytes, later = figures.later_bytes;
    training.step(server, cut);
    server.snapshotter->gate();
    CHECK(server.snapshotted(cut));
    CHECK_EQ(figures.copied_bytes - copied, 2 * kBytes + kFew);
    CHECK_EQ(figures.later_bytes - later, kBytes + kFew);
    const auto wanted = training.memory.blocks;
    training.restore(server);
    CHECK(training.memory.blocks == wanted);
  }
  CHECK_EQ(training.memory.reads - reads, 5u);  // the buffer
  CHECK_EQ(figures.fetched_bytes.load(), figures.copied_bytes.load());
  CHECK_EQ(figures.cancelled.load(), 0u);
  CHECK(server.entered);
}

TEST(what_stays_until_the_gate_is_learned_by_the_devices_digests) {
  Training training;
  Device server(training);
  server.take(1);
  for (uint64_t cut = 2; cut < 5; ++cut) {
    const uint64_t reads = training.memory.reads, fetched = server.figures().fetched_bytes;
    server.snapshotter->gate();
    CHECK_EQ(training.memory.reads, reads);
    CHECK_EQ(server.figures().fetched_bytes.load(), fetched);
    training.change_parameters(cut);
    server.take(cut);
  }
}

TEST(without_digests_of_the_device_nothing_is_copied_behind_the_cut) {
  Training training;
  Device server(training, false);
  training.learn(server);
  training.step(server, 7);
  CHECK(server.snapshotted(7));
  const uint64_t asked = training.memory.idle_asked;
  server.snapshotter->gate();  // nothing is to be learned: it waits for nothing
  CHECK_EQ(training.memory.idle_asked.load(), asked);
  CHECK_EQ(server.copies.load(), 0);
  CHECK_EQ(server.figures().later_bytes.load(), 0u);
}

TEST(a_device_that_cannot_copy_beside_its_work_copies_at_the_cut) {
  Training training;
  Device server(training);
  training.learn(server);
  server.ready = false;
  const int copies = server.copies;
  training.step(server, 7);
  CHECK(server.snapshotted(7));
  CHECK_EQ(server.copies.load(), copies);
}

// The gate holds what follows until the device has finished its copies.
TEST(a_gate_returns_when_the_device_has_copied) {
  Training training;
  Device server(training);
  training.learn(server);
  server.before_copy = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  for (uint64_t cut = 7; cut < 17; ++cut) {
    training.step(server, cut);
    const int began = server.copies, copied = server.copied;
    server.snapshotter->gate();
    CHECK_EQ(server.copies.load(), server.copied.load());
    CHECK(began == server.copies || copied < server.copied);
    CHECK(server.snapshotted(cut));
  }
  CHECK_EQ(server.figures().cancelled.load(), 0u);
  CHECK(server.figures().gate_ns > 0u);
}

TEST(so_does_what_takes_memory_away) {
  Bench bench;
  const uint64_t bytes = 1 << 20;
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const at = static_cast<std::byte*>(mapped);
  bench.memory.foreign = {{reinterpret_cast<uint64_t>(at), bytes}};
  Device server(bench);
  for (uint64_t cut = 1; cut <= kLearned; ++cut) {
    at[5] = static_cast<std::byte>(cut);
    server.take(cut);
    server.snapshotter->gate();
    CHECK(server.snapshotted(cut));
  }
  server.before_copy = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  at[5] = std::byte{99};
  server.take(7);
  server.snapshotter->before_unmapping();
  munmap(mapped, bytes);  // or the device would fault
  bench.memory.foreign.clear();
  CHECK(server.snapshotted(7));
  CHECK(server.cut(8));
  CHECK_EQ(server.store->committed().blocks.size(), 0u);
}

TEST(a_change_without_a_gate_cancels_the_cut_and_nothing_else) {
  for (const size_t at : {size_t{7}, size_t{kBytes - 1}}) {  // in the first piece, and the last
    Training training;
    Device server(training);
    training.learn(server);
    const auto before = training.memory.blocks;
    std::latch reached(1), changed(1);
    std::atomic<bool> first{true};
    server.before_copy = [&] {
      if (!first.exchange(false)) return;
      reached.count_down();
      changed.wait();
    };
    training.change_parameters(7);
    server.take(7);
    reached.wait();
    training.memory.blocks[0][at] = std::byte{51};  // no gate
    const auto now = training.memory.blocks;
    changed.count_down();
    server.snapshotter->gate();
    CHECK(!server.snapshotted(7));
    CHECK_EQ(server.figures().cancelled.load(), 1u);
    training.restore(server);
    CHECK(training.memory.blocks == before);
    training.memory.blocks = now;
    const uint64_t later = server.figures().later_bytes;
    server.take(8);
    server.snapshotter->gate();
    CHECK(server.snapshotted(8));
    CHECK_EQ(server.figures().later_bytes.load() - later, kFew);  // the other one at the cut
    training.restore(server);
    CHECK(training.memory.blocks == now);
  }
}

// The reader has said what the device's error is; the cut is none, and the gate opens.
TEST(a_copy_that_fails_cancels_the_cut) {
  for (const int code : {1, 600, 700}) {
    Training training;
    Device server(training);
    training.learn(server);
    server.code = code;
    training.step(server, 7);
    server.snapshotter->gate();
    CHECK(!server.snapshotted(7));
    CHECK_EQ(server.store->committed().manifest.cut, kLearned);
    server.code = 0;
    CHECK(server.cut(8));  // all of it at the cut
  }
}

// To ask whether its streams have come to their ends would break the capture.
TEST(a_gate_asks_nothing_of_a_device_whose_stream_captures) {
  Training training;
  Device server(training);
  int asked = 0;
  server.calls.idle = [&] {
    ++asked;
    return 0;
  };
  server.calls.capturing = [&] { return training.memory.capturing; };
  server.restart(
      checkpoint::SnapshotOptions{50'000'000, 1, 0.02, 60'000'000'000, checkpoint::Late::kAlways});
  server.take(1);
  const int before = asked;
  training.memory.capturing = true;
  server.snapshotter->gate();
  CHECK_EQ(asked, before);
  training.memory.capturing = false;
  server.take(2);
  CHECK(server.snapshotted(2));
}

TEST(what_has_been_begun_is_finished_at_the_end_of_the_server) {
  Training training;
  {
    Device server(training);
    training.learn(server);
    server.before_copy = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
    training.step(server, 7);
    server.snapshotter.reset();
    CHECK_EQ(server.copies.load(), server.copied.load());
    CHECK(server.snapshotted(7));
  }
  const auto wanted = training.memory.blocks;
  Device next(training);
  CHECK_EQ(next.store->committed().manifest.cut, 7u);
  training.restore(next);
  CHECK(training.memory.blocks == wanted);
}

// Cuts behind those that an earlier server has decided about are taken in a replay as well.
TEST(a_replay_copies_behind_its_cuts_as_well) {
  Training training;
  Device server(training);
  server.recovery.set_replaying(true);
  training.learn(server);
  training.step(server, 7);
  server.recovery.set_replaying(false);
  server.snapshotter->gate();
  CHECK(server.snapshotted(7));
  CHECK(server.figures().later_bytes > 0u);
}

}  // namespace

CHECK_MAIN
