// A rank that restores itself, and others that have what it has lost: in one process, with the
// driver of lending_driver.h.
#ifndef PYFT_TESTS_WIRE_LENDING_RANKS_H_
#define PYFT_TESTS_WIRE_LENDING_RANKS_H_

#include <poll.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "check.h"
#include "checkpoint/resources/device_memory.h"
#include "lending_driver.h"
#include "recovery/server.h"
#include "server/recovery/agent_link.h"
#include "server/recovery/peer_export.h"
#include "server/recovery/peer_import.h"

namespace lending_ranks {

using namespace recovery_test;  // NOLINT: a test
using lending_driver::driver;

inline constexpr uint64_t kWindow = 4 << 20, kPage = 4096;
// Of blocks: the third is too small to be asked for, the last lies in two mappings.
inline constexpr checkpoint::MemoryRange kBlocks[] = {
    {0, 100'000}, {1 << 18, 200'000}, {1 << 20, 1'000}, {2 << 20, 300'000}};
inline constexpr uint64_t kWorth = 600'000, kAll = 601'000;

inline uint64_t new_window() {
  void* const at =
      mmap(nullptr, kWindow, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return reinterpret_cast<uint64_t>(at);
}
inline std::byte* at(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);
}
inline void fill(uint64_t window, int value) {
  for (const auto& [offset, bytes] : kBlocks)
    std::fill_n(at(window + offset), bytes, static_cast<std::byte>(value++));
}
inline std::vector<std::byte> bytes_of(uint64_t window) {
  return {at(window), at(window + kWindow)};
}
inline uint64_t pages(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

struct Restored {
  std::string problem, refusal;
  uint64_t peer_bytes, bytes;
};

// A rank that has a committed snapshot, and has lost its memory since; another one that still has
// it.
struct Ranks : Bench {
  Ranks() : own(new_window()), theirs(new_window()) {
    driver().refuses_import = driver().refuses_access = driver().refuses_export = 0;
    driver().state = 0;
    driver().copies = 0;
    driver().refuses_read_only = false;
    driver().on_copy = {};
    limits.answers_ns = 20'000'000'000;
    limits.copy_ns = 50'000'000;
    limits.refusals = 3;
    for (const auto& [offset, bytes] : kBlocks) memory.foreign.push_back({own + offset, bytes});
    fill(own, 1);
    wanted = bytes_of(own);
    Server server(*channel, object, memory, true, options());
    CHECK(server.cut(1));
    std::fill_n(at(own), kWindow, std::byte{0});
    lend(wanted);
  }
  ~Ranks() {
    lent.reset();
    munmap(at(own), kWindow);
    munmap(at(theirs), kWindow);
  }
  static checkpoint::SnapshotOptions options() {
    return {50'000'000, 1, 0.02, 60'000'000'000, checkpoint::Late::kNever};
  }
  // What the replica has.
  void lend(const std::vector<std::byte>& contents) {
    lent.reset();
    lent.emplace();
    const auto part = [&](uint64_t from, uint64_t bytes) {
      const auto begin = contents.begin() + static_cast<std::ptrdiff_t>(from);
      lent->add(theirs + from, {begin, begin + static_cast<std::ptrdiff_t>(pages(bytes))});
    };
    part(0, 2 << 20);
    part(2 << 20, 40 * kPage);
    part((2 << 20) + 40 * kPage, 300'000 - 40 * kPage);
  }
  // Contents that came from a store would be found out.
  void spoil_store() {
    Server server(*channel, object, memory, true, options());
    for (const ring::ManifestBlock& block : server.store->committed().blocks)
      if (block.bytes > kBlocks[2].bytes) *server.store->at(block.heap_offset) ^= std::byte{1};
  }
  Restored restore(server::PeerServers& servers, bool digests = false) {
    Server next(*channel, object, memory, true, options());
    server::PeerImport peers(lending_driver::table(), 0, {own, kWindow}, servers, limits);
    next.calls.from_peers = [&](auto blocks, auto& check, auto* there) {
      return peers.fetch(blocks, check, there);
    };
    if (digests)
      next.calls.digests = [&](std::span<const checkpoint::MemoryRange> ranges, ring::Digest* out) {
        for (const checkpoint::MemoryRange& range : ranges)
          *out++ = checkpoint::digest(at(range.address), range.bytes, next.store->digest_key());
        return 0;
      };
    const std::string problem = next.restore();
    return {problem, peers.refusal(), channel->control().peer_bytes,
            channel->control().restored_bytes};
  }
  // All is as it was, and nothing of the other rank's is left here.
  void check_whole(const Restored& done) const {
    CHECK_EQ(done.problem, "");
    CHECK_EQ(done.bytes, kAll);
    CHECK(bytes_of(own) == wanted);
    CHECK(driver().reserved.empty() && driver().mapped.empty());
  }
  uint64_t own, theirs;
  std::vector<std::byte> wanted;
  server::PeerImport::Limits limits;
  std::optional<lending_driver::Lent> lent;
};

struct Threads : server::DeviceThreads {
  void enter() override { ++driver().entered; }
};

// The other rank's server.
struct Replica : server::PeerServers {
  explicit Replica(const Ranks& ranks)
      : lending(lending_driver::table(), {ranks.theirs, kWindow}, threads) {}
  // As the agent does.
  int connect(uint64_t attempt) override {
    int ends[2];
    if (attempt || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) return -1;
    server::AgentMessage message{ring::MessageKind::kLend, {}, {}, ends[0]};
    CHECK(lending.lend(message));
    return ends[1];
  }
  Threads threads;
  server::PeerExport lending;
};

// A replica that does to its connection what the test says, once it has been asked for something.
struct OddReplica : server::PeerServers {
  using Answer = std::function<void(int link, uint64_t offset)>;
  explicit OddReplica(Answer answer) : answer(std::move(answer)) {}
  int connect(uint64_t attempt) override {
    int ends[2];
    if (attempt || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) return -1;
    thread = std::jthread([this, link = ends[0]] { serve(UniqueFd(link)); });
    return ends[1];
  }
  void serve(const UniqueFd& link) {
    for (;;) {
      pollfd poller{link.get(), POLLIN, 0};
      server::AgentMessage question{};
      if (poll(&poller, 1, 5000) <= 0 || !server::receive_message(link.get(), &question)) return;
      const auto wanted = question.as<ring::msg::WantMemory>();
      if (!wanted) return;
      ++asked;
      answer(link.get(), wanted->offset);
      if (leaves) return;
    }
  }
  Answer answer;
  std::atomic<bool> leaves{false};
  std::atomic<int> asked{0};
  std::jthread thread;
};

// One replica after the other, each asked once.
struct InTurn : server::PeerServers {
  explicit InTurn(std::vector<server::PeerServers*> servers) : servers(std::move(servers)) {}
  int connect(uint64_t attempt) override {
    return attempt < servers.size() ? servers[attempt]->connect(0) : -1;
  }
  const std::vector<server::PeerServers*> servers;
};

}  // namespace lending_ranks

#endif  // PYFT_TESTS_WIRE_LENDING_RANKS_H_
