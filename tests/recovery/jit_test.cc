// What other ranks have as well stays on the device (--protect jit): when it is copied there, when
// it goes to the store for them, and what is said when it is gone.
#include <sys/mman.h>

#include <algorithm>
#include <latch>
#include <map>
#include <memory>
#include <thread>

#include "check.h"
#include "checkpoint/resources/device_memory.h"
#include "checkpoint/store/remote_stores.h"
#include "recovery/sharing_server.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

constexpr uint64_t kSeed = 77;
constexpr uint64_t kBlock = 100'000;
constexpr uint64_t kLearned = 6;  // cuts

struct JitServer : SharingServer {
  explicit JitServer(Bench& bench, uint64_t room = 1 << 30) : SharingServer(bench), room(room) {
    calls.allocate = [this](uint64_t bytes) -> uint64_t {
      if (bytes > this->room) return 0;
      this->room -= bytes;
      auto& made = lent[reinterpret_cast<uint64_t>(&lent) + ++number];
      made.resize(bytes);
      const auto address = reinterpret_cast<uint64_t>(made.data());
      of_address[address] = bytes;
      return address;
    };
    calls.release = [this](uint64_t address) { this->room += of_address.at(address); };
    calls.duplicate = [](uint64_t to, uint64_t from, uint64_t bytes) {
      std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
      return 0;
    };
    calls.duplicated = [] { return 0; };
    restart();
  }
  void restart() {
    checkpoint::SnapshotOptions options;
    options.drain_timeout_ns = 50'000'000;
    options.every = 1;
    options.late = late;
    options.hold_ns = 1'000'000;
    options.answer_ns = 20'000'000;
    options.jit = true;
    options.agreed = &agreed;
    options.committed = &committed;
    options.aborted = &aborted;
    Server::restart(options);
    store->header().shares = 1;
  }
  uint64_t room, number = 0;
  checkpoint::Late late = checkpoint::Late::kNever;
  std::map<uint64_t, std::vector<std::byte>> lent;
  std::map<uint64_t, uint64_t> of_address;
};

// A rank with a parameter, which changes behind gates, and a buffer, which changes anywhere.
// Another rank has both as well.
struct Rank : Bench {
  Rank() {
    if (ftruncate(object.fd, 4096) == 0 &&
        ftruncate(object.fd, static_cast<off_t>(object.bytes)) == 0)
      header_of(*this).seed = kSeed;
    memory.peeks = true;
    memory.allocate(kBlock, 1);
    memory.allocate(kBlock, 2);
  }
  std::byte& parameter() { return memory.blocks[0][7]; }
  std::byte& buffer() { return memory.blocks[1][7]; }
  // From one cut to the next, which waits.
  void step(JitServer& server, uint64_t cut) {
    buffer() = static_cast<std::byte>(50 + cut);
    server.snapshotter->gate();
    parameter() = static_cast<std::byte>(100 + cut);
    server.take(cut);
  }
  void learn(JitServer& server) {
    plan(server);
    for (uint64_t cut = 1; cut <= kLearned; ++cut) {
      cut == 1 ? server.take(1) : step(server, cut);
      server.commit(cut);
    }
    CHECK_EQ(server.store->header().elsewhere_bytes.load(), server.room < kBlock ? 0 : kBlock);
  }
  // The first blocks are another rank's as well.
  void plan(JitServer& server, size_t shared = 2) {
    std::vector<ring::SharedBlock> rows;
    for (const auto& block : std::span(memory.blocks).first(shared))
      rows.push_back({reinterpret_cast<uint64_t>(block.data()), block.size(), 1});
    server.leave(rows);
  }
  // What a new server of another rank with the same contents finds in this rank's store: empty, or
  // what is missing.
  std::string read_by_other(const std::vector<std::vector<std::byte>>& wanted, uint64_t cut) const {
    StoreOf source(&object);
    checkpoint::RemoteStores stores(kSeed, source);
    ring::ManifestBlock block{};
    block.address = 1;
    block.bytes = kBlock;
    block.digest = checkpoint::digest(wanted[0].data(), kBlock, {kSeed});
    block.heap_offset = ring::kElsewhere + 3;
    std::string problem;
    const std::byte* const found = stores.content(block, &problem);
    if (!found) return problem + ", cut [" + std::to_string(cut) + "]";
    return std::equal(found, found + kBlock, wanted[0].begin()) ? "" : "other bytes";
  }
};

TEST(what_rests_until_the_gate_is_not_copied_to_the_store) {
  Rank rank;
  JitServer server(rank);
  rank.learn(server);
  const ring::StoreHeader& figures = server.store->header();
  const uint64_t copied = figures.copied_bytes;
  rank.step(server, 7);
  server.commit(7);
  CHECK_EQ(figures.copied_bytes - copied, kBlock);  // the buffer
  CHECK_EQ(figures.pre_image_bytes.load(), kBlock);
  CHECK_EQ(figures.lost_blocks.load(), 0u);
  CHECK(rank.read_by_other(rank.memory.blocks, 7).find("no table") != std::string::npos);
}

TEST(from_a_cut_to_its_gate_the_memory_of_the_program_is_what_others_get) {
  Rank rank;
  JitServer server(rank);
  rank.learn(server);
  const auto wanted = rank.memory.blocks;
  CHECK_EQ(server.snapshotter->spill(kLearned), 0u);
  CHECK_EQ(rank.read_by_other(wanted, kLearned), "");
  const uint64_t spilled = server.store->header().spilled_bytes;
  CHECK_EQ(spilled, kBlock);
  CHECK_EQ(server.snapshotter->spill(kLearned), 0u);  // it is there
  CHECK_EQ(server.store->header().spilled_bytes.load(), spilled);
}

TEST(behind_the_gate_it_is_the_copy_on_the_device) {
  Rank rank;
  JitServer server(rank);
  rank.learn(server);
  const auto wanted = rank.memory.blocks;
  server.snapshotter->gate();
  rank.parameter() = std::byte{200};
  CHECK_EQ(server.snapshotter->spill(kLearned), 0u);
  CHECK_EQ(rank.read_by_other(wanted, kLearned), "");
}

// The agent has decided about a cut; this server has not heard of it.
TEST(a_cut_that_waits_is_spilled_when_the_agent_says_so) {
  Rank rank;
  JitServer server(rank);
  rank.learn(server);
  const auto before = rank.memory.blocks;
  rank.step(server, 7);
  const auto wanted = rank.memory.blocks;
  CHECK_EQ(server.snapshotter->spill(7), 0u);
  CHECK_EQ(rank.read_by_other(wanted, 7), "");
  CHECK_EQ(server.snapshotter->spill(kLearned), 0u);
  CHECK_EQ(rank.read_by_other(before, kLearned), "");
  CHECK_EQ(rank.read_by_other(wanted, 7), "");
  CHECK(server.snapshotter->spill(3) > 0u);  // long gone
  // It stays until the next snapshot counts.
  server.commit(7);
  CHECK_EQ(server.store->header().lends.load(), 1u);
  rank.step(server, 8);
  CHECK_EQ(rank.read_by_other(wanted, 7), "");
  CHECK_EQ(server.store->header().lends.load(), 1u);
  server.commit(8);
  CHECK_EQ(server.store->header().lends.load(), 0u);
}

TEST(what_changes_before_the_gate_is_lost_until_the_next_cut_and_snapshotted_from_then_on) {
  Rank rank;
  JitServer server(rank);
  rank.learn(server);
  rank.parameter() = std::byte{201};
  server.snapshotter->gate();
  const ring::StoreHeader& figures = server.store->header();
  CHECK_EQ(figures.lost_blocks.load(), 1u);
  CHECK_EQ(server.snapshotter->spill(kLearned), 1u);
  const uint64_t copied = figures.copied_bytes;
  server.take(7);
  server.commit(7);
  CHECK_EQ(figures.copied_bytes - copied, 2 * kBlock);
  CHECK_EQ(figures.elsewhere_bytes.load(), 0u);
  CHECK_EQ(rank.read_by_other(rank.memory.blocks, 7), "");
}

// As it is when a program frees memory between two steps.
TEST(what_is_not_mapped_any_more_is_lost_and_not_touched) {
  Rank rank;
  void* const page =
      mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  rank.memory.foreign.push_back({reinterpret_cast<uint64_t>(page), kBlock});
  JitServer server(rank);
  for (uint64_t cut = 1; cut <= kLearned + 1; ++cut) {
    if (cut > 1) server.snapshotter->gate();
    std::memset(page, static_cast<int>(cut), kBlock);
    server.leave({{reinterpret_cast<uint64_t>(page), kBlock, 1}});
    server.take(cut);
    server.commit(cut);
  }
  CHECK_EQ(server.store->header().elsewhere_bytes.load(), kBlock);
  munmap(page, kBlock);
  rank.memory.foreign.clear();
  CHECK_EQ(server.snapshotter->spill(kLearned + 1), 1u);
  server.snapshotter->gate();
  CHECK_EQ(server.store->header().lost_blocks.load(), 1u);
}

// There only a driver can look at the device's memory, and what is not mapped is its error.
TEST(by_way_of_the_device_no_memory_is_read_that_is_being_unmapped) {
  Rank rank;
  JitServer server(rank);
  uint64_t reads = 0;
  server.calls.peek = nullptr;
  server.calls.read_beside = [&](const checkpoint::NextRange& next,
                                 const checkpoint::TakePiece& take) {
    for (checkpoint::MemoryRange range; next(&range); ++reads)
      take(reinterpret_cast<const std::byte*>(range.address), range.bytes);
    return 0;
  };
  server.calls.ready_beside = [] { return true; };
  server.restart();
  rank.learn(server);
  const auto wanted = rank.memory.blocks;
  server.snapshotter->before_unmapping();  // of something: all is copied before
  rank.parameter() = std::byte{205};
  CHECK_EQ(server.snapshotter->spill(kLearned), 0u);
  CHECK_EQ(rank.read_by_other(wanted, kLearned), "");
  CHECK_EQ(reads, 1u);
  // What a cut that waits names is in no copy yet.
  server.snapshotter->gate();
  rank.step(server, 7);
  server.snapshotter->before_unmapping();
  CHECK_EQ(server.snapshotter->spill(7), 1u);
  CHECK_EQ(reads, 1u);
  server.commit(7);
  rank.step(server, 8);
  CHECK_EQ(server.store->header().lost_blocks.load(), 0u);
  CHECK_EQ(server.snapshotter->spill(7), 0u);
  CHECK_EQ(server.snapshotter->spill(8), 0u);  // of the cut before: this one may be read again
}

TEST(a_gate_waits_for_the_decision_about_the_cut_before) {
  for (const bool commits : {true, false}) {
    Rank rank;
    JitServer server(rank);
    rank.learn(server);
    const auto before = rank.memory.blocks;
    server.snapshotter->gate();
    rank.step(server, 7);
    const auto then = rank.memory.blocks;
    server.on_decision_request = [&] { (commits ? server.committed : server.aborted) = 7; };
    server.snapshotter->gate();
    rank.parameter() = std::byte{202};
    CHECK(server.decision_requests == std::vector<uint64_t>{7});
    CHECK_EQ(server.snapshotter->spill(commits ? 7 : kLearned), 0u);
    CHECK_EQ(rank.read_by_other(commits ? then : before, 7), "");
  }
}

// The store is the copier's meanwhile.
TEST(what_is_spilled_of_a_cut_is_that_of_one_whose_copies_are_made) {
  Rank rank;
  for (const int value : {3, 4}) rank.memory.allocate(kBlock, value);  // which no other rank has
  JitServer server(rank);
  server.late = checkpoint::Late::kAlways;
  std::atomic<bool> holds{false};
  std::latch begun(1), helped(1);
  const auto program = std::this_thread::get_id();
  const auto shared = reinterpret_cast<uint64_t>(rank.memory.blocks[0].data());
  server.calls.peek = [&, look = server.calls.peek](uint64_t address, std::byte* to,
                                                    uint64_t bytes) {
    if (holds && std::this_thread::get_id() != program)
      begun.count_down(), helped.wait();
    else if (address != shared && holds.exchange(false))
      helped.count_down();
    return look(address, to, bytes);
  };
  server.restart();
  rank.plan(server, 2);
  const auto step = [&](uint64_t cut) {
    if (cut > 1) server.snapshotter->gate();
    for (const int block : {0, 2, 3}) rank.memory.blocks[block][7] = static_cast<std::byte>(cut);
    server.take(cut);
  };
  for (uint64_t cut = 1; cut <= kLearned; ++cut) {
    step(cut);
    server.snapshotter->gate();
    server.commit(cut);
  }
  holds = true;
  step(kLearned + 1);
  begun.wait();
  CHECK_EQ(server.snapshotter->spill(kLearned + 1), 0u);
  const bool waited = !holds.exchange(false);
  CHECK(waited);  // and took part in the copying
  if (!waited) helped.count_down();
  CHECK_EQ(rank.read_by_other(rank.memory.blocks, kLearned + 1), "");
}

// Other ranks' snapshots still name what it had.
TEST(a_cut_of_this_rank_alone_puts_what_others_need_into_the_store) {
  Rank rank;
  auto server = std::make_unique<JitServer>(rank);
  rank.learn(*server);
  const auto wanted = rank.memory.blocks;
  server->snapshotter->gate();
  rank.parameter() = std::byte{203};
  server->take(7, {}, true);
  CHECK_EQ(server->store->committed().manifest.cut, 7u);
  CHECK_EQ(rank.read_by_other(wanted, kLearned), "");
  server->take(8, {}, true);
  CHECK_EQ(rank.read_by_other(wanted, kLearned), "");
  server.reset();
  server = std::make_unique<JitServer>(rank);
  CHECK_EQ(rank.read_by_other(wanted, kLearned), "");
}

TEST(a_new_server_finds_in_its_own_store_what_it_has_written_for_others) {
  Rank rank;
  auto server = std::make_unique<JitServer>(rank);
  rank.learn(*server);
  const auto wanted = rank.memory.blocks;
  const auto restored = [&](JitServer& next) {
    for (auto& block : rank.memory.blocks) std::ranges::fill(block, std::byte{9});
    next.calls.remote = [](const ring::ManifestBlock&, std::string* problem) {
      *problem = "none lives";
      return nullptr;
    };
    return next.restore();
  };
  CHECK(restored(*server).find("none lives") != std::string::npos);
  rank.memory.blocks = wanted;
  CHECK_EQ(server->snapshotter->spill(kLearned), 0u);
  server = std::make_unique<JitServer>(rank);
  CHECK_EQ(restored(*server), "");
  CHECK(rank.memory.blocks == wanted);
  // It can do the same for others again.
  CHECK_EQ(server->snapshotter->spill(kLearned), 0u);
  server->snapshotter->gate();
  CHECK_EQ(server->store->header().pre_image_bytes.load(),
           2 * kBlock);  // one of them the dead one's
}

TEST(a_device_without_memory_leaves_it_to_the_store) {
  Rank rank;
  JitServer server(rank, kBlock / 2);
  rank.plan(server);
  const ring::StoreHeader& figures = server.store->header();
  uint64_t left = 0;
  for (uint64_t cut = 1; cut <= 2 * kLearned; ++cut) {
    const auto wanted = rank.memory.blocks;
    cut == 1 ? server.take(1) : rank.step(server, cut);
    if (left) CHECK_EQ(rank.read_by_other(wanted, cut - 1), "");
    server.commit(cut);
    left += figures.elsewhere_bytes;
  }
  CHECK_EQ(left, kBlock);  // once, before it was known
  CHECK_EQ(figures.pre_image_bytes.load(), 0u);
}

TEST(the_program_gets_the_memory_that_it_needs) {
  Rank rank;
  JitServer server(rank);
  rank.learn(server);
  const auto wanted = rank.memory.blocks;
  server.snapshotter->gate();
  rank.parameter() = std::byte{204};
  const uint64_t room = server.room;
  CHECK(server.snapshotter->make_room());
  CHECK_EQ(server.room, room + kBlock);
  CHECK_EQ(server.store->header().pre_image_bytes.load(), 0u);
  CHECK_EQ(rank.read_by_other(wanted, kLearned), "");
  CHECK(!server.snapshotter->make_room());
  server.take(7);
  server.commit(7);
  CHECK_EQ(server.store->header().elsewhere_bytes.load(), 0u);
}

// Asked at any moment, by another thread, it gives the content of the snapshot and nothing else.
TEST(another_thread_gets_it_at_any_moment) {
  Rank rank;
  JitServer server(rank);
  rank.learn(server);
  std::atomic<uint64_t> snapshot{kLearned};
  std::atomic<uint64_t> got{0};
  std::jthread agent([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const uint64_t step = snapshot;
      if (server.snapshotter->spill(step) == 0)
        ++got;
      else
        CHECK(snapshot != step);
    }
  });
  for (uint64_t cut = 7; cut < 200; ++cut) {
    rank.step(server, cut);
    server.agreed = server.committed = cut;
    snapshot = cut;
    server.snapshotter->poll();
  }
  while (!got) usleep(100);
  agent.request_stop();
  agent.join();
  CHECK_EQ(server.store->header().lost_blocks.load(), 0u);
}

}  // namespace

CHECK_MAIN
