// Snapshots and restores with a device that hashes its memory itself, or fails to.
#include <vector>

#include "check.h"
#include "checkpoint/bytes_passed.h"
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
        *out++ = checkpoint::nh_digest(reinterpret_cast<const void*>(range.address), range.bytes,
                                       store->seed());
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

// The processors have hashed and copied so much since.
struct Passes {
  const uint64_t hashed = checkpoint::host_hashed, copied = checkpoint::host_copied;
  uint64_t hashes() const { return checkpoint::host_hashed - hashed; }
  uint64_t copies() const { return checkpoint::host_copied - copied; }
};

constexpr uint64_t kSmallBlock = 100'000, kLargeBlock = 3'000'001;
constexpr uint64_t kTables = 10'000;  // have checksums

// No two contents are equal.
void allocate(Bench& bench) {
  for (const uint64_t bytes : {kSmallBlock, kLargeBlock, kSmallBlock}) {
    bench.memory.allocate(bytes, static_cast<int>(bench.memory.blocks.size()));
    for (size_t i = 0; i < bytes; i += 77)
      bench.memory.blocks.back()[i] = static_cast<std::byte>(i);
  }
}
constexpr uint64_t kAll = 2 * kSmallBlock + kLargeBlock;

// Copies that the device hashes on their way: the host passes over them once.
TEST(a_snapshot_makes_the_host_copy_once_and_hash_nothing) {
  Bench bench;
  allocate(bench);
  Hashing server(bench);
  server.calls.read_hashed = [&](const checkpoint::NextRange& next,
                                 const checkpoint::TakePiece& take,
                                 const checkpoint::TakeDigest& hashed) {
    for (checkpoint::MemoryRange range; next(&range);) {
      const auto* const at = reinterpret_cast<const std::byte*>(range.address);
      take(at, range.bytes / 3);
      take(at + range.bytes / 3, range.bytes - range.bytes / 3);
      ring::Digest digest = checkpoint::nh_digest(at, range.bytes, server.store->seed());
      if (server.lies) ++digest.high;
      hashed(digest);
    }
    return server.code;
  };
  const Passes passes;
  CHECK(server.cut(1));
  CHECK(passes.hashes() < kTables);
  CHECK_EQ(passes.copies(), kAll);
  CHECK(server.cut(2));
  CHECK_EQ(passes.copies(), kAll);
  bench.memory.blocks[0][0] = std::byte{7};
  CHECK(server.cut(3));
  CHECK(passes.hashes() < kTables);
  CHECK_EQ(passes.copies(), kAll + kSmallBlock);
  const auto wanted = bench.memory.blocks;
  bench.memory.blocks[0][5] = std::byte{9};
  CHECK_EQ(server.restore(), "");
  CHECK(bench.memory.blocks == wanted);
  // Something else has been copied than was hashed at the cut.
  bench.memory.blocks[0][0] = std::byte{8};
  server.lies = true;
  CHECK(!server.cut(4));
}

TEST(a_restore_makes_the_host_hash_nothing) {
  Bench bench;
  allocate(bench);
  Hashing server(bench);
  CHECK(server.cut(1));
  const auto wanted = bench.memory.blocks;
  for (auto& block : bench.memory.blocks) std::fill(block.begin(), block.end(), std::byte{0});
  const Passes passes;
  CHECK_EQ(server.restore(), "");
  CHECK(bench.memory.blocks == wanted);
  CHECK(passes.hashes() < kTables);
}

// It has been written by then, and the digest of what the device has tells it.
TEST(what_is_damaged_in_the_store_is_found_and_named) {
  Bench bench;
  allocate(bench);
  Hashing server(bench);
  CHECK(server.cut(1));
  for (const ring::ManifestBlock& block : server.store->committed().blocks)
    for (const uint64_t at : {uint64_t{0}, block.bytes / 2, block.bytes - 1}) {
      std::byte& damaged = *server.store->at(block.heap_offset + at);
      damaged ^= std::byte{8};
      const Passes passes;
      const std::string problem = server.restore();
      CHECK_EQ(problem, "the stored content of a block of [" + std::to_string(block.bytes) +
                            "] bytes at [" + std::to_string(block.address) +
                            "] of cut [1] has another digest than at its snapshot");
      CHECK_EQ(passes.hashes(), block.bytes);  // this one, to know whose fault it is
      damaged ^= std::byte{8};
    }
  CHECK_EQ(server.restore(), "");
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
