// Background copies, made while the device goes on: when they count, and when they do not because
// something has changed meanwhile or a process has died.
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <latch>
#include <thread>

#include "check.h"
#include "checkpoint/resources/device_memory.h"
#include "pyft/fault.h"
#include "recovery/server.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

constexpr uint64_t kBytes = 1'000'000;
constexpr uint64_t kLearned = 6;  // cuts

// A parameter, which changes behind gates, and a buffer, which changes anywhere.
struct Training : Bench {
  Training() {
    memory.peeks = true;
    memory.allocate(kBytes, 1);
    memory.allocate(kBytes, 2);
  }
  std::byte& parameter(size_t at = 7) { return memory.blocks[0][at]; }
  std::byte& buffer() { return memory.blocks[1][7]; }
  // From one cut to the next.
  void step(Server& server, uint64_t cut) {
    buffer() = static_cast<std::byte>(50 + cut);
    server.snapshotter->gate();
    parameter() = static_cast<std::byte>(100 + cut);
    server.take(cut);
  }
  // Cuts with snapshots until it is known what changes when. The last is kLearned.
  void learn(Server& server) {
    server.take(1);
    for (uint64_t cut = 2; cut <= kLearned; ++cut) step(server, cut);
    server.snapshotter->gate();
    server.snapshotter->poll();
    CHECK(server.snapshotted(kLearned));
  }
  void restore(Server& server) {
    for (auto& block : memory.blocks) std::fill(block.begin(), block.end(), std::byte{255});
    CHECK_EQ(server.restore(), "");
  }
};

TEST(what_changes_only_behind_gates_is_copied_behind_the_cut) {
  Training training;
  Server server(*training.channel, training.object, training.memory, true);
  training.learn(server);
  const ring::StoreHeader& figures = server.store->header();
  for (uint64_t cut = 7; cut < 20; ++cut) {
    const uint64_t copied = figures.copied_bytes, later = figures.later_bytes;
    training.step(server, cut);
    server.snapshotter->gate();
    CHECK(server.snapshotted(cut));
    CHECK_EQ(figures.copied_bytes - copied, 2 * kBytes);
    CHECK_EQ(figures.later_bytes - later, kBytes);
    const auto wanted = training.memory.blocks;
    training.restore(server);
    CHECK(training.memory.blocks == wanted);
  }
  CHECK_EQ(figures.cancelled.load(), 0u);
}

// The device lags behind: what a buffer contains at a gate may be overwritten by what came before.
TEST(nothing_is_learned_at_a_gate_that_the_device_has_not_come_to) {
  Training training;
  Server server(*training.channel, training.object, training.memory, true);
  server.take(1);
  for (uint64_t cut = 2; cut < 12; ++cut) {
    training.memory.idle = 600;
    server.snapshotter->gate();
    training.memory.idle = 0;
    training.buffer() = static_cast<std::byte>(50 + cut);
    training.parameter() = static_cast<std::byte>(100 + cut);
    CHECK(server.cut(cut));
  }
  CHECK_EQ(server.store->header().later_bytes.load(), 0u);
}

TEST(a_gate_returns_when_the_copies_are_made) {
  Training training;
  Server server(*training.channel, training.object, training.memory, true);
  training.learn(server);
  training.memory.on_peek = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  for (uint64_t cut = 7; cut < 12; ++cut) {
    training.step(server, cut);
    server.snapshotter->gate();
    CHECK(server.snapshotted(cut));
    CHECK_EQ(server.store->committed().manifest.cut, cut);
  }
  CHECK(server.store->header().gate_ns > 0u);
}

// The journal's records are needed until the cut behind them is snapshotted, and no longer.
TEST(a_later_cut_waits_for_the_copies_of_the_one_before) {
  Training training;
  Server server(*training.channel, training.object, training.memory, true);
  training.learn(server);
  training.step(server, 7);
  server.take(8);
  CHECK(training.channel->control().snapshot_cut >= 7u);
  server.snapshotter->gate();
  CHECK(server.snapshotted(8));
}

// The client waits for a decision about it.
TEST(a_forced_cut_is_decided_about_at_once) {
  Training training;
  Server server(*training.channel, training.object, training.memory, true);
  training.learn(server);
  training.parameter() = std::byte{200};
  CHECK(server.cut(7, {}, true));
}

TEST(a_change_without_a_gate_cancels_the_cut_and_nothing_else) {
  Training training;
  Server server(*training.channel, training.object, training.memory, true);
  training.learn(server);
  const auto before = training.memory.blocks;
  std::latch reached(1), changed(1);
  std::atomic<bool> first{true};
  training.memory.on_peek = [&] {
    if (!first.exchange(false)) return;
    reached.count_down();
    changed.wait();
  };
  training.parameter() = std::byte{50};
  server.take(7);
  reached.wait();
  training.parameter(kBytes - 1) = std::byte{51};  // no gate
  const auto now = training.memory.blocks;
  changed.count_down();
  server.snapshotter->gate();
  CHECK(!server.snapshotted(7));
  CHECK_EQ(server.store->header().cancelled.load(), 1u);
  CHECK_EQ(server.store->committed().manifest.cut, kLearned);
  training.restore(server);
  CHECK(training.memory.blocks == before);
  // Copied at the cut from now on.
  training.memory.blocks = now;
  const uint64_t later = server.store->header().later_bytes;
  CHECK(server.cut(8));
  CHECK_EQ(server.store->header().later_bytes.load(), later);
  training.restore(server);
  CHECK(training.memory.blocks == now);
}

TEST(memory_that_is_unmapped_while_it_is_copied_cancels_the_cut) {
  Bench bench;
  bench.memory.peeks = true;
  const uint64_t bytes = 1 << 20;
  void* const mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const at = static_cast<std::byte*>(mapped);
  bench.memory.foreign = {{reinterpret_cast<uint64_t>(at), bytes}};
  Server server(*bench.channel, bench.object, bench.memory, true);
  for (uint64_t cut = 1; cut <= kLearned; ++cut) {
    at[5] = static_cast<std::byte>(cut);
    server.take(cut);
    server.snapshotter->gate();
    CHECK(server.snapshotted(cut));
  }
  std::latch reached(1), unmapped(1);
  std::atomic<bool> first{true};
  bench.memory.on_peek = [&] {
    if (!first.exchange(false)) return;
    reached.count_down();
    unmapped.wait();
  };
  at[5] = std::byte{99};
  server.take(7);
  reached.wait();
  munmap(mapped, bytes);
  bench.memory.foreign.clear();
  unmapped.count_down();
  server.snapshotter->gate();
  CHECK(!server.snapshotted(7));
  CHECK(server.cut(8));
  CHECK_EQ(server.store->committed().blocks.size(), 0u);
}

// The comparison needs digests only; the cut counts when it is both copied and compared.
TEST(a_cut_is_compared_while_it_is_copied) {
  for (const bool copied_first : {true, false}) {
    Training training;
    HeldServer server(training, 0, checkpoint::Late::kAlways);
    server.agreed = kLearned;
    training.learn(server);
    std::latch go(1);
    training.memory.on_peek = [&] { go.wait(); };
    training.step(server, 7);
    CHECK(server.told.back().first == 7 && server.told.back().second);
    if (copied_first) {
      go.count_down();
      server.snapshotter->gate();
      server.snapshotter->poll();
      CHECK_EQ(server.store->committed().manifest.cut, kLearned);
      server.agreed = 7;
    } else {
      server.agreed = 7;
      server.snapshotter->commit_output();  // not for the copies
      CHECK_EQ(training.channel->control().snapshot_cut.load(), kLearned);
      go.count_down();
      server.snapshotter->gate();
    }
    server.snapshotter->poll();
    CHECK(server.snapshotted(7));
    CHECK_EQ(server.store->header().compared_cuts.load(), 7u);
    const auto wanted = training.memory.blocks;
    training.restore(server);
    CHECK(training.memory.blocks == wanted);
  }
}

TEST(a_cut_that_is_compared_and_cannot_be_copied_is_cancelled) {
  Training training;
  HeldServer server(training, 0, checkpoint::Late::kAlways);
  server.agreed = 100;
  training.learn(server);
  std::latch go(1);
  training.memory.on_peek = [&] { go.wait(); };
  training.step(server, 7);
  training.parameter(kBytes - 1) = std::byte{51};  // no gate
  go.count_down();
  server.snapshotter->gate();
  server.snapshotter->poll();
  CHECK(!server.snapshotted(7));
  CHECK(!server.store->waiting());
  CHECK_EQ(server.store->committed().manifest.cut, kLearned);
  CHECK(server.told.back() == std::pair(uint64_t{7}, uint64_t{0}));  // other ranks need not wait
  server.take(8);
  server.snapshotter->poll();
  CHECK(server.snapshotted(8));
}

// Whichever process dies, and where: the store has one whole snapshot, the last or the one before.
TEST(a_death_at_any_point_of_a_cut_leaves_one_whole_point) {
  for (const char* place : {"cut.after_drain:6", "cut.after_stage:2", "cut.after_release:2",
                            "cut.copying:3", "cut.copying:4", "cut.before_publish:6",
                            "store.before_publish:6", "store.after_publish:6"}) {
    Training training;
    training.memory.allocate(kBytes, 3);  // more than one job
    auto& blocks = training.memory.blocks;
    if (fork() == 0) {
      Server server(*training.channel, training.object, training.memory, true);
      fault::arm(place);
      for (uint64_t cut = 1; cut <= 6; ++cut) {
        server.snapshotter->gate();
        blocks[0][9] = blocks[2][9] = static_cast<std::byte>(cut);
        server.take(cut);
      }
      server.snapshotter->gate();
      _exit(0);
    }
    int status = 0;
    wait(&status);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    Server next(*training.channel, training.object, training.memory, true);
    const uint64_t cut = next.store->committed().manifest.cut;
    CHECK(cut >= 4u && cut <= 6u);
    training.restore(next);
    CHECK(blocks[0][9] == static_cast<std::byte>(cut));
    CHECK(blocks[2][9] == static_cast<std::byte>(cut));
    CHECK(blocks[1][9] == std::byte{2});
    // It goes on from there.
    blocks[0][9] = std::byte{77};
    CHECK(next.cut(10));
  }
}

}  // namespace

CHECK_MAIN
