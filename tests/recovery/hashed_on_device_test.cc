// Snapshots and restores with a device that hashes its memory itself, or fails to.
#include <vector>

#include "check.h"
#include "checkpoint/resources/device_memory.h"
#include "recovery/server.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

// A device whose memory is this process's, and that the server cannot look at.
struct Hashing : Server {
  explicit Hashing(Bench& bench) : Server(*bench.channel, bench.object, bench.memory, false) {
    CHECK_EQ(store->set_digests(ring::DigestKind::kNh), "");
    calls.digests = [this](std::span<const checkpoint::MemoryRange> ranges, ring::Digest* out) {
      ++asked;
      for (const checkpoint::MemoryRange& range : ranges)
        *out++ = checkpoint::digest(reinterpret_cast<const void*>(range.address), range.bytes,
                                    store->digest_key());
      if (lies) ++(out - 1)->low;
      return code;
    };
    restart(
        checkpoint::SnapshotOptions{50'000'000, 1, 0.02, 60'000'000'000, checkpoint::Late::kNever});
  }
  uint64_t fetched() const { return store->header().fetched_bytes; }
  int asked = 0, code = 0;
  bool lies = false;
};

TEST(what_has_not_changed_stays_on_the_device) {
  Bench bench;
  bench.memory.allocate(3'000'001, 1);
  bench.memory.allocate(1'000'000, 2);
  Hashing server(bench);
  CHECK(server.cut(1));
  CHECK_EQ(server.fetched(), 4'000'001u);
  CHECK(server.cut(2));
  CHECK_EQ(server.fetched(), 4'000'001u);
  bench.memory.blocks[1][5] = std::byte{77};
  CHECK(server.cut(3));
  CHECK_EQ(server.fetched(), 5'000'001u);
  // Known to change, but it has not this time.
  CHECK(server.cut(4));
  CHECK_EQ(server.fetched(), 5'000'001u);
  CHECK_EQ(server.asked, 4);
  const ring::StoreHeader& figures = server.store->header();
  CHECK_EQ(figures.copied_bytes.load(), 5'000'001u);
  CHECK_EQ(figures.hashed_bytes.load(), 4u * 4'000'001);
}

TEST(what_is_there_twice_is_copied_once) {
  Bench bench;
  bench.memory.allocate(70'000, 7);
  bench.memory.allocate(70'000, 7);
  Hashing server(bench);
  CHECK(server.cut(1));
  CHECK_EQ(server.fetched(), 70'000u);
}

TEST(a_restore_is_verified_on_the_device) {
  Bench bench;
  bench.memory.allocate(100'000, 1);
  bench.memory.allocate(200'000, 2);
  {
    Hashing server(bench);
    CHECK(server.cut(1));
  }
  const auto wanted = bench.memory.blocks;
  for (auto& block : bench.memory.blocks) std::fill(block.begin(), block.end(), std::byte{0});
  Hashing next(bench);
  const uint64_t reads = bench.memory.reads;
  CHECK_EQ(next.restore(), "");
  CHECK(bench.memory.blocks == wanted);
  CHECK_EQ(bench.memory.reads, reads);
  CHECK_EQ(next.asked, 1);

  next.lies = true;
  const std::string wrong = next.restore();
  CHECK(wrong.find("is not restored: the device has other bytes") != std::string::npos);
  next.lies = false;
  next.code = 700;
  CHECK_EQ(next.restore(), "hashing what was restored fails with code [700]");
  next.code = checkpoint::kNotOnDevice;
  CHECK_EQ(next.restore(), "");
  CHECK(bench.memory.reads > reads);
}

TEST(the_host_does_it_where_the_device_cannot) {
  Bench bench;
  bench.memory.allocate(3'000'000, 1);
  Hashing server(bench);
  CHECK(server.cut(1));
  server.code = checkpoint::kNotOnDevice;
  CHECK(server.cut(2));
  CHECK_EQ(server.fetched(), 6'000'000u);
  CHECK_EQ(server.store->header().copied_bytes.load(), 3'000'000u);  // they have the same bits
}

TEST(a_failed_device_cancels_the_cut) {
  Bench bench;
  bench.memory.allocate(1'000, 1);
  Hashing server(bench);
  CHECK(server.cut(1));
  server.code = 700;
  CHECK(!server.cut(2));
  CHECK_EQ(server.store->header().cancelled.load(), 1u);
}

// What was taken for known by such digests must not count.
TEST(digests_that_a_copy_does_not_have_are_not_believed_again) {
  Bench bench;
  bench.memory.allocate(1'000, 1);
  Hashing server(bench);
  server.lies = true;
  CHECK(!server.cut(1));
  CHECK_EQ(server.asked, 1);
  CHECK(server.cut(2));
  CHECK_EQ(server.asked, 1);
}

TEST(a_store_keeps_its_kind_of_digest) {
  Bench bench;
  bench.memory.allocate(1'000, 1);
  {
    Hashing server(bench);
    CHECK(server.cut(1));
  }
  std::string error;
  const auto store = bench.object.open(&error);
  CHECK_EQ(store->set_digests(ring::DigestKind::kNh), "");
  CHECK_EQ(store->set_digests(ring::DigestKind::kXxh3),
           "the store's digests are of kind [1], this server's of kind [0]: PYFT_DEVICE_DIGEST or "
           "the kind of GPU has changed in the course of the job");
}

}  // namespace

CHECK_MAIN
