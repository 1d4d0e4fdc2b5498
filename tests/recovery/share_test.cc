// Snapshots that ranks share: two servers with stores of their own, and memory of equal contents.
#include <algorithm>
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

// Two ranks with two blocks each: rank 1 keeps the second one for rank 0.
struct Ranks {
  Ranks() {
    for (Bench* bench : {&zero, &one}) {
      if (ftruncate(bench->object.fd, 4096) == 0 &&
          ftruncate(bench->object.fd, static_cast<off_t>(bench->object.bytes)) == 0)
        header_of(*bench).seed = kSeed;
      bench->memory.allocate(kBlock, 1);
      bench->memory.allocate(kBlock, 2);
    }
  }
  static void fill(Bench& bench, int value) {
    for (auto& block : bench.memory.blocks)
      std::fill(block.begin(), block.end(), static_cast<std::byte>(value++));
  }
  void leave_to_one(uint64_t version = 2) const {
    ring::StoreHeader& header = header_of(zero);
    const auto& block = zero.memory.blocks[1];
    const ring::SharedBlock row{reinterpret_cast<uint64_t>(block.data()), block.size(), 1};
    std::memcpy(zero.object.at + header.shares_offset, &row, sizeof row);
    header.shares_rows = 1;
    header.shares_version = version;
  }
  // What a new server of rank 0 finds: empty, or what is missing.
  std::string restore() {
    Server next(*zero.channel, zero.object, zero.memory, true);
    StoreOf source(&one.object, 1);
    checkpoint::RemoteStores stores(kSeed, source);
    next.calls.likely_remote = [&](const ring::ManifestBlock& block) {
      return likely ? likely : stores.likely_content(block);
    };
    next.calls.remote = [&](const ring::ManifestBlock& block, std::string* problem) {
      return stores.content(block, problem);
    };
    return next.restore();
  }
  Bench zero, one;
  const std::byte* likely = nullptr;  // where what another rank has seems to be, instead
};

TEST(what_another_rank_keeps_is_hashed_and_comes_back_from_there) {
  Ranks ranks;
  {
    SharingServer zero(ranks.zero), one(ranks.one);
    ranks.leave_to_one();
    zero.take(1);
    one.take(1);
    const ring::StoreHeader& figures = zero.store->header();
    CHECK_EQ(figures.copied_bytes.load(), kBlock);
    CHECK_EQ(figures.hashed_bytes.load(), 2 * kBlock);
    CHECK_EQ(figures.elsewhere_bytes.load(), kBlock);
    CHECK(figures.heap_used < 2 * kBlock);
    zero.commit(1);
    one.commit(1);
    CHECK_EQ(ranks.zero.channel->control().snapshot_cut.load(), 1u);
  }
  const auto wanted = ranks.zero.memory.blocks;
  Ranks::fill(ranks.zero, 50);
  CHECK_EQ(ranks.restore(), "");
  CHECK(ranks.zero.memory.blocks == wanted);
  // It lies elsewhere than the first look says, as if it had been overwritten there.
  const std::vector<std::byte> other(kBlock, std::byte{9});
  ranks.likely = other.data();
  CHECK_EQ(ranks.restore(), "");
  CHECK(ranks.zero.memory.blocks == wanted);
  CHECK_EQ(ranks.zero.channel->control().restored_bytes.load(), 2 * kBlock);
  // One byte of it changes there.
  {
    SharingServer one(ranks.one);
    const auto& block = one.store->committed().blocks[1];
    *one.store->at(block.heap_offset + 5) ^= std::byte{1};
    *one.store->at(one.store->committed().blocks[0].heap_offset + 5) ^= std::byte{1};
  }
  const std::string problem = ranks.restore();
  CHECK(problem.find("of member [1]") != std::string::npos);
  CHECK(problem.find("it has been overwritten") != std::string::npos);
}

TEST(without_the_other_store_the_block_is_named) {
  Ranks ranks;
  SharingServer zero(ranks.zero);
  ranks.leave_to_one();
  zero.take(1);
  zero.commit(1);
  CHECK(zero.restore().find("no other rank's store can be looked at") != std::string::npos);
  for (const bool other_job : {false, true}) {
    StoreOf source(other_job ? &ranks.zero.object : nullptr);
    checkpoint::RemoteStores stores(kSeed + other_job, source);
    zero.calls.remote = [&](const ring::ManifestBlock& block, std::string* problem) {
      return stores.content(block, problem);
    };
    const std::string problem = zero.restore();
    CHECK(problem.find(other_job ? "of another job" : "the agent has no such store") !=
          std::string::npos);
  }
}

TEST(a_cut_is_held_when_it_is_delivered_and_counts_when_the_agent_says_so) {
  Ranks ranks;
  SharingServer zero(ranks.zero);
  zero.is_acknowledged = false;
  zero.take(1);
  zero.agreed = 1;  // compared
  zero.snapshotter->poll();
  CHECK(zero.prepared.empty());
  zero.is_acknowledged = true;
  usleep(3000);
  zero.snapshotter->poll();
  zero.snapshotter->poll();
  CHECK(zero.prepared == std::vector<uint64_t>{1});
  CHECK(!zero.store->has_committed());
  zero.snapshotter->commit_output();  // returns: what is compared may go to others
  zero.commit(1);
  CHECK_EQ(zero.store->committed().manifest.step, 1u);
  zero.take(2);
  zero.aborted = 2;
  zero.snapshotter->poll();
  CHECK(!zero.store->waiting());
  CHECK_EQ(zero.store->committed().manifest.cut, 1u);
  zero.take(3);
  zero.aborted = 4;  // of a cut that was left out, by an agent that knows nothing of this one
  zero.committed = 3;
  zero.snapshotter->poll();
  CHECK_EQ(zero.store->committed().manifest.cut, 3u);
}

// Copies may be whole only shortly before the next cut, or the answer of the agent or of other
// ranks on its way: that cut is not left out for it, or it would not be compared either.
TEST(a_cut_waits_a_moment_for_the_decision_about_the_one_before) {
  Ranks ranks;
  for (const bool shared : {true, false}) {
    Bench bench;
    bench.memory.allocate(kBlock, 1);
    SharingServer zero(bench, 10'000'000'000);
    zero.store->header().shares = shared;
    zero.is_acknowledged = false;
    std::jthread agent;
    zero.on_held = [&] {
      agent = std::jthread([&] {
        usleep(2000);
        zero.committed = 1;
      });
    };
    zero.take(1);
    const std::jthread others([&] {
      usleep(2000);
      zero.is_acknowledged = true;
    });
    zero.take(2);
    CHECK_EQ(zero.store->committed().manifest.cut, 1u);
    CHECK_EQ(zero.store->waiting()->manifest.cut, 2u);
  }
  // While the agent says nothing the next ones are left out.
  SharingServer one(ranks.one, 1'000'000);
  one.take(1);
  for (const uint64_t cut : {2u, 3u, 4u}) {
    one.take(cut);
    CHECK_EQ(one.store->waiting()->manifest.cut, 1u);
  }
  CHECK_EQ(one.store->header().skipped.load(), 3u);
}

// What is before the next cut has been enqueued, and takes longer than any process waits for an
// answer: the other ranks are not there yet either.
TEST(a_cut_waits_for_its_own_device_before_it_waits_for_a_decision) {
  Ranks ranks;
  SharingServer zero(ranks.zero, 100'000'000, 10'000'000'000);
  zero.take(1);
  ranks.zero.memory.idle = 600;
  const std::jthread device([&] {
    usleep(300'000);
    ranks.zero.memory.idle = 0;
    usleep(5'000);
    zero.committed = 1;
  });
  zero.take(2);
  CHECK_EQ(zero.store->header().skipped.load(), 0u);
  CHECK_EQ(zero.store->committed().manifest.cut, 1u);
  CHECK_EQ(zero.store->waiting()->manifest.cut, 2u);
}

// Its stream stands still before the cut for want of another rank: that cut is cancelled, and the
// one before it decided.
TEST(a_device_that_stands_still_does_not_keep_the_cut_before_waiting) {
  Ranks ranks;
  SharingServer zero(ranks.zero, 10'000'000'000);
  zero.take(1);
  ranks.zero.memory.idle = 600;
  const std::jthread agent([&] {
    usleep(10'000);
    zero.committed = 1;
  });
  zero.take(2);
  CHECK_EQ(zero.store->header().cancelled.load(), 1u);
  CHECK_EQ(zero.store->committed().manifest.cut, 1u);
  CHECK(!zero.store->waiting());
}

// Rank 1 needs room, alone; what rank 0 needs of it stays until both have another snapshot.
TEST(a_rank_that_makes_a_cut_alone_keeps_what_it_has_lent) {
  Ranks ranks;
  auto zero = std::make_unique<SharingServer>(ranks.zero);
  auto one = std::make_unique<SharingServer>(ranks.one);
  ranks.leave_to_one();
  for (auto* server : {zero.get(), one.get()}) {
    server->take(1);
    server->commit(1);
  }
  for (const uint64_t cut : {2u, 3u}) {
    Ranks::fill(ranks.one, static_cast<int>(10 * cut));
    one->take(cut, {}, true);
    CHECK_EQ(one->store->committed().manifest.cut, cut);
    CHECK(one->store->header().heap_used > 3 * kBlock);
    CHECK_EQ(ranks.restore(), "");
  }
  // Also by a new server of rank 1, with a cut of its own.
  one.reset();
  one = std::make_unique<SharingServer>(ranks.one);
  Ranks::fill(ranks.one, 90);
  one->take(4, {}, true);
  CHECK_EQ(ranks.restore(), "");
  Ranks::fill(ranks.one, 20);
  Ranks::fill(ranks.zero, 20);
  for (auto* server : {zero.get(), one.get()}) server->take(5);
  CHECK_EQ(ranks.restore(), "");
  for (auto* server : {zero.get(), one.get()}) server->commit(5);
  CHECK(one->store->header().heap_used <= 2 * kBlock + 2 * checkpoint::Heap::kAlign);
  CHECK_EQ(one->store->header().lends.load(), 0u);
  CHECK_EQ(ranks.restore(), "");
}

TEST(for_want_of_room_the_agent_decides_about_a_cut_that_waits) {
  for (const bool commits : {true, false}) {
    Ranks ranks;
    SharingServer zero(ranks.zero);
    zero.take(1);
    zero.commit(1);
    zero.take(2);
    zero.on_decision_request = [&] { (commits ? zero.committed : zero.aborted) = 2; };
    zero.take(3, {}, true);
    CHECK(zero.decision_requests == std::vector<uint64_t>{2});
    CHECK_EQ(zero.store->committed().manifest.cut, 3u);
    CHECK_EQ(zero.store->committed().manifest.step, 0u);
    CHECK_EQ(zero.store->header().skipped.load(), commits ? 0u : 1u);
    CHECK_EQ(zero.store->header().lends.load(), 1u);
  }
  // An agent that does not answer: the client learns that this cut is none.
  Ranks ranks;
  SharingServer zero(ranks.zero);
  zero.take(1);
  zero.take(2, {}, true);
  CHECK(!zero.store->has_committed());
  CHECK_EQ(ranks.zero.channel->control().decided_cut.load(), 2u);
  CHECK_EQ(zero.store->header().cancelled.load(), 1u);
}

TEST(a_server_that_has_not_heard_begins_where_the_others_do) {
  Ranks ranks;
  {
    SharingServer zero(ranks.zero), one(ranks.one);
    ranks.leave_to_one();
    for (auto* server : {&zero, &one}) {
      server->take(1);
      server->commit(1);
      Ranks::fill(server == &zero ? ranks.zero : ranks.one, 7);
      server->take(2);
    }
    one.commit(2);
  }
  std::string error;
  {
    const auto store = ranks.zero.object.open(&error);
    CHECK_EQ(store->committed().manifest.cut, 1u);
    CHECK_EQ(store->promote_unfinished(20), "");
    CHECK_EQ(store->committed().manifest.cut, 2u);
    CHECK_EQ(store->promote_unfinished(10), "");  // which it is past
    CHECK(!store->promote_unfinished(30).empty());
  }
  CHECK_EQ(ranks.restore(), "");
}

TEST(a_plan_that_is_being_written_is_not_read) {
  Ranks ranks;
  SharingServer zero(ranks.zero);
  ranks.leave_to_one(3);
  zero.take(1);
  CHECK_EQ(zero.store->header().elsewhere_bytes.load(), 0u);
  zero.commit(1);
  ranks.leave_to_one(4);
  zero.take(2);
  CHECK_EQ(zero.store->header().elsewhere_bytes.load(), kBlock);
  zero.commit(2);
  header_of(ranks.zero).shares_rows = ~uint64_t{0};  // hostile: stays inside of the area
  header_of(ranks.zero).shares_version = 6;
  zero.take(3);
}

}  // namespace

CHECK_MAIN
