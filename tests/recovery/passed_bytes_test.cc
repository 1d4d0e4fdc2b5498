// What an agent sees of a server that copies a large model: a number that moves with every piece,
// and stands still with who stands still.
#include <algorithm>
#include <atomic>
#include <utility>

#include "check.h"
#include "recovery/server.h"
#include "server/recovery/restore.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

constexpr uint64_t kBlock = uint64_t{5} << 20;  // more than one piece
constexpr int kBlocks = 6;

// As the heartbeat does it, looked at from outside.
uint64_t seen(server::Session& session) {
  session.show_activity();
  return session.channel().control().passed_bytes.load();
}

// Looks whenever something is asked of the device: as often as not has it moved since.
struct Looks {
  void look(server::Session& session) {
    const uint64_t now = seen(session);
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
void watch(Server& server, const server::CaptureOptions& options, Looks& looks) {
  if (const auto view = server.calls.view)
    server.calls.view = [&looks, &server, view](uint64_t address, uint64_t bytes) {
      looks.look(server.session);
      return view(address, bytes);
    };
  server.calls.read = [&looks, &server, read = server.calls.read](const auto& next,
                                                                  const auto& take) {
    return read(next, [&](const std::byte* piece, uint64_t bytes) {
      looks.look(server.session);
      take(piece, bytes);
    });
  };
  server.calls.write = [&looks, &server, write = server.calls.write](
                           uint64_t address, const std::byte* from, uint64_t bytes) {
    looks.look(server.session);
    return write(address, from, bytes);
  };
  server.capture.emplace(server.session, *server.store, server.calls, options);
}

server::CaptureOptions at_cuts() {
  return {50'000'000, 1, 0.02, 60'000'000'000, server::Late::kNever};
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
    CHECK_EQ(server::restore_contents(server.session, *server.store, server.calls), "");
    CHECK(looks.count >= kBlocks);
    CHECK_EQ(looks.same, 0u);
  }
}

TEST(copies_behind_a_cut_and_at_its_gate_move_it) {
  Model model(true);
  Server server(*model.channel, model.object, model.memory, true);
  server.take(1);
  for (uint64_t cut = 2; cut <= 6; ++cut) {
    CHECK(server.capture->gate().ok());
    model.change(static_cast<int>(20 * cut));
    server.take(cut);
  }
  CHECK(server.capture->gate().ok());
  model.change(200);
  std::atomic<int> looks{0}, same{0};
  model.memory.on_peek = [&] {
    thread_local uint64_t last = 0;  // two threads copy, and each has copied since its last look
    const uint64_t now = seen(server.session);
    same += now == std::exchange(last, now);
    ++looks;
  };
  server.take(7);
  CHECK(server.capture->gate().ok());
  CHECK(server.captured(7));
  CHECK(looks >= kBlocks);
  CHECK_EQ(same.load(), 0);
}

TEST(a_cut_whose_streams_stand_still_does_not_move_it) {
  Model model;
  Server server(*model.channel, model.object, model.memory, true);
  model.memory.idle = 600;
  const uint64_t before = seen(server.session);
  uint64_t looks = 0;
  server.calls.idle = [&] {
    CHECK_EQ(seen(server.session), before);
    ++looks;
    return 600;
  };
  server.capture.emplace(server.session, *server.store, server.calls, at_cuts());
  CHECK(!server.cut(1));
  CHECK(looks > 10);
}

// It ends by itself, after hold_ns.
TEST(waiting_for_the_agent_moves_it) {
  Bench bench;
  bench.memory.allocate(1000, 1);
  HeldServer server(bench);
  server.take(1);
  const uint64_t before = seen(server.session);
  server.capture->hold_back();
  CHECK(seen(server.session) > before);
}

}  // namespace

CHECK_MAIN
