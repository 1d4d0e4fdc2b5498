// What an agent sees of a server that copies a large model: a number that moves with every piece,
// and stands still with what stands still.
#include <algorithm>
#include <atomic>
#include <utility>

#include "check.h"
#include "checkpoint/resources/device_memory.h"
#include "recovery/server.h"
#include "server/session/session.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

constexpr uint64_t kBlock = uint64_t{5} << 20;  // more than one piece
constexpr int kBlocks = 6;

// As the heartbeat does it, looked at from outside.
uint64_t seen(Server& server) {
  server::Session(server.channel, nullptr, server.alive).show_activity();
  return server.channel.control().passed_bytes.load();
}

// Looks whenever something is asked of the device: as often as not has it moved since.
struct Looks {
  void look(Server& server) {
    const uint64_t now = seen(server);
    ++count;
    if (now == last) ++same;
    last = now;
  }
  uint64_t last = 0, count = 0, same = 0;
};

struct Model : Bench {
  explicit Model(bool peeks = false) {
    memory.peeks = peeks;
    for (int i = 0; i < kBlocks; ++i) memory.allocate(kBlock, i);
  }
  void change(int value) {
    for (auto& block : memory.blocks)
      std::fill(block.begin(), block.end(), static_cast<std::byte>(value++));
  }
};

// Has the server's calls look first.
void watch(Server& server, const checkpoint::SnapshotOptions& options, Looks& looks) {
  if (const auto view = server.calls.view)
    server.calls.view = [&looks, &server, view](uint64_t address, uint64_t bytes) {
      looks.look(server);
      return view(address, bytes);
    };
  server.calls.read = [&looks, &server, read = server.calls.read](const auto& next,
                                                                  const auto& take) {
    return read(next, [&](const std::byte* piece, uint64_t bytes) {
      looks.look(server);
      take(piece, bytes);
    });
  };
  server.calls.write = [&looks, &server, write = server.calls.write](
                           uint64_t address, const std::byte* from, uint64_t bytes) {
    looks.look(server);
    return write(address, from, bytes);
  };
  server.restart(options);
}

checkpoint::SnapshotOptions at_cuts() {
  return {50'000'000, 1, 0.02, 60'000'000'000, checkpoint::Late::kNever};
}

TEST(each_piece_of_a_snapshot_and_of_a_restore_moves_it) {
  for (const bool views : {true, false}) {
    Model model;
    Server server(*model.channel, model.object, model.memory, views);
    Looks looks;
    watch(server, at_cuts(), looks);
    for (uint64_t cut = 1; cut <= 2; ++cut) {  // pages that are new, and pages that are there
      model.change(static_cast<int>(cut));
      looks.count = 0;
      CHECK(server.cut(cut));
      CHECK(looks.count >= kBlocks);
      CHECK_EQ(looks.same, 0u);
    }
    model.change(99);
    looks.count = 0;
    CHECK_EQ(server.restore(), "");
    CHECK(looks.count >= kBlocks);
    CHECK_EQ(looks.same, 0u);
  }
}

TEST(copies_behind_a_cut_and_at_its_gate_move_it) {
  Model model(true);
  Server server(*model.channel, model.object, model.memory, true);
  server.take(1);
  for (uint64_t cut = 2; cut <= 6; ++cut) {
    server.snapshotter->gate();
    model.change(static_cast<int>(20 * cut));
    server.take(cut);
  }
  server.snapshotter->gate();
  model.change(200);
  std::atomic<int> looks{0}, same{0};
  model.memory.on_peek = [&] {
    thread_local uint64_t last = 0;  // two threads copy, and each has copied since its last look
    const uint64_t now = seen(server);
    same += now == std::exchange(last, now);
    ++looks;
  };
  server.take(7);
  server.snapshotter->gate();
  CHECK(server.snapshotted(7));
  CHECK(looks >= kBlocks);
  CHECK_EQ(same.load(), 0);
}

TEST(a_cut_whose_streams_quiesce_does_not_move_it) {
  Model model;
  Server server(*model.channel, model.object, model.memory, true);
  const uint64_t before = seen(server);
  uint64_t looks = 0;
  server.calls.idle = [&] {
    CHECK_EQ(seen(server), before);
    return ++looks < 20 ? 600 : 0;
  };
  checkpoint::SnapshotOptions options = at_cuts();
  options.drain_timeout_ns = options.drain_limit_ns;
  server.restart(options);
  CHECK(server.cut(1));
  CHECK(looks >= 20);
}

// It ends by itself, after hold_ns.
TEST(waiting_for_the_agent_moves_it) {
  Bench bench;
  bench.memory.allocate(1000, 1);
  HeldServer server(bench);
  checkpoint::SnapshotOptions options = at_cuts();
  options.hold_ns = 100'000'000;
  options.agreed = &server.agreed;
  server.restart(options);
  server.take(1);
  const uint64_t before = seen(server);
  server.snapshotter->commit_output();
  CHECK(seen(server) > before);
}

}  // namespace

CHECK_MAIN
