// A rank that restores itself, and others that have what it has lost: in one process, with the
// driver of lending_driver.h.
#ifndef PYFT_TESTS_WIRE_LENDING_RANKS_H_
#define PYFT_TESTS_WIRE_LENDING_RANKS_H_

#include <poll.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "check.h"
#include "lending_driver.h"
#include "recovery/server.h"
#include "server/recovery/agent_link.h"
#include "server/recovery/lending_memory.h"
#include "server/recovery/peer_memory.h"
#include "server/recovery/restore.h"

namespace lending_ranks {

using namespace recovery_test;  // NOLINT: a test
using lending_driver::driver;

inline constexpr uint64_t kWindow = 4 << 20, kPage = 4096;
// Of blocks: the third is too small to be asked for, the last lies in two mappings.
inline constexpr server::MemoryRange kBlocks[] = {
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
  uint64_t peer_bytes, bytes, ms;
};

// A rank that has a recovery point, and has lost its memory since; another one that still has it.
struct Ranks : Bench {
  Ranks() : own(new_window()), theirs(new_window()) {
    driver().refuses_import = driver().refuses_access = driver().refuses_export = 0;
    driver().state = 0;
    driver().copies = 0;
    driver().refuses_read_only = false;
    driver().on_copy = {};
    limits.answers_ns = 300'000'000;
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
  static server::CaptureOptions options() {
    return {50'000'000, 1, 0.02, 60'000'000'000, server::Late::kNever};
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
    for (const ring::ManifestBlock& block : server.store->point().blocks)
      if (block.bytes > kBlocks[2].bytes) *server.store->at(block.heap_offset) ^= std::byte{1};
  }
  Restored restore(server::PeerMemory::Ask ask, bool digests = false) {
    Server next(*channel, object, memory, true, options());
    server::PeerMemory peers(lending_driver::table(), 0, {own, kWindow}, std::move(ask), limits);
    next.calls.from_peers = [&](auto blocks, const auto& check, auto* there) {
      return peers.fetch(blocks, check, there);
    };
    if (digests)
      next.calls.digests = [&](std::span<const server::MemoryRange> ranges, ring::Digest* out) {
        for (const server::MemoryRange& range : ranges)
          *out++ = server::digest(at(range.address), range.bytes, next.store->digest_key());
        return 0;
      };
    const uint64_t began = ring::now_ns();
    Restored done{server::restore_contents(next.session, *next.store, next.calls), peers.refusal(),
                  channel->control().peer_bytes, channel->control().restored_bytes, 0};
    done.ms = (ring::now_ns() - began) / 1'000'000;
    return done;
  }
  // All is as it was, and nothing of the other rank's is left here.
  void check_whole(const Restored& done) const {
    CHECK_EQ(done.problem, "");
    CHECK_EQ(done.bytes, kAll);
    CHECK(bytes_of(own) == wanted);
    CHECK(done.ms < 1500);
    CHECK(driver().reserved.empty() && driver().mapped.empty());
  }
  uint64_t own, theirs;
  std::vector<std::byte> wanted;
  server::PeerMemory::Limits limits;
  std::optional<lending_driver::Lent> lent;
};

// The other rank's server.
struct Replica {
  explicit Replica(const Ranks& ranks)
      : lending(lending_driver::table(), {ranks.theirs, kWindow}, [] { ++driver().entered; }) {}
  // As the agent does.
  int connect() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) return -1;
    server::AgentMessage message{ring::MessageKind::kLend, 0, 0, 0, {}, ends[0]};
    CHECK(lending.lend(message));
    return ends[1];
  }
  server::PeerMemory::Ask ask() {
    return [this](uint64_t attempt) { return attempt ? -1 : connect(); };
  }
  server::LendingMemory lending;
};

// A replica that does to its connection what the test says, once it has been asked for something.
struct OddReplica {
  using Answer = std::function<void(int link, uint64_t offset)>;
  explicit OddReplica(Answer answer) : answer(std::move(answer)) {}
  server::PeerMemory::Ask ask() {
    return [this](uint64_t attempt) {
      int ends[2];
      if (attempt || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) return -1;
      thread = std::jthread([this, link = ends[0]] { serve(UniqueFd(link)); });
      return ends[1];
    };
  }
  void serve(const UniqueFd& link) {
    for (;;) {
      pollfd poller{link.get(), POLLIN, 0};
      server::AgentMessage question{};
      if (poll(&poller, 1, 5000) <= 0 || !server::receive_message(link.get(), &question)) return;
      if (question.kind != ring::MessageKind::kWantMemory) return;
      ++asked;
      answer(link.get(), question.a);
      if (leaves) return;
    }
  }
  Answer answer;
  std::atomic<bool> leaves{false};
  std::atomic<int> asked{0};
  std::jthread thread;
};

}  // namespace lending_ranks

#endif  // PYFT_TESTS_WIRE_LENDING_RANKS_H_
