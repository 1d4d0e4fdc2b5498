// What a new server makes of the store of the one before: what is sound, what it may use, and which
// snapshot it begins with.
#include <sys/stat.h>

#include <functional>
#include <string>
#include <vector>

#include "check.h"
#include "checkpoint/stored.h"

namespace {

using namespace checkpoint_test;  // NOLINT: a test

TEST(what_is_no_store_is_a_sentence) {
  std::string error;
  const Object page(ring::kPageBytes), object(kBeforeHeap + kHeap);
  using checkpoint::Store;
  CHECK(!Store::open(nullptr, object.bytes, object.fd, kSmall, &error));
  CHECK_EQ(error, "the store is too small: bytes [2097152]");
  CHECK(!Store::open(page.at, 100, page.fd, kSmall, &error));
  CHECK_EQ(error, "the store is too small: bytes [100]");
  CHECK(!Store::look_at(nullptr, object.bytes, object.fd, &error));
  CHECK_EQ(error, "the store is too small: bytes [2097152]");
  CHECK(!Store::look_at(page.at, 100, page.fd, &error));
  CHECK_EQ(error, "the store is too small: bytes [100]");
  CHECK(!Store::look_at(page.at, page.bytes, page.fd, &error));
  CHECK_EQ(error, "the store has magic number [0]");
  const UniqueFd only_read(
      open(("/proc/self/fd/" + std::to_string(object.fd)).c_str(), O_RDONLY | O_CLOEXEC));
  CHECK(!Store::open(object.at, object.bytes, only_read.get(), kSmall, &error));
  CHECK_EQ(error, "there is no memory for the store's first page");
}

TEST(looking_at_a_store_takes_one_page) {
  const Object object(kBeforeHeap + kHeap);
  reinterpret_cast<ring::StoreHeader*>(object.at)->magic = 1;
  std::string error;
  CHECK(!object.open(&error));
  CHECK_EQ(error, "the store has magic number [1]");
  struct stat status{};
  fstat(object.fd, &status);
  CHECK_EQ(static_cast<uint64_t>(status.st_blocks) * 512, ring::kPageBytes);
}

TEST(the_figures_are_those_of_what_is_there) {
  Stored one;
  one.publish(1, "ab");
  ring::StoreHeader& header = one.store->header();
  header.heap_used = header.heap_backed = 5;
  CHECK_EQ(one.restart(), "");
  CHECK_EQ(one.used(), 2u);
  CHECK_EQ(header.heap_backed.load(), header.heap_bytes);
  header.heap_used = header.heap_backed = 5;
  one.publish(2, "c");
  CHECK_EQ(one.used(), 1u);
  CHECK_EQ(header.heap_backed.load(), header.heap_bytes);
}

// ---- blocks that cannot be
// -----------------------------------------------------------------------

// A committed snapshot of these blocks, as an earlier server may have left it. Empty, or why not.
std::string adopt(Stored& one, const std::vector<ring::ManifestBlock>& blocks) {
  one.publish(one.cut() + 1, "a");
  checkpoint::StoredSnapshot forged = one.store->committed();
  forged.blocks = blocks;
  forged.manifest.blocks = blocks.size();
  forged.manifest.checksum = checkpoint::checksum_of(forged, one.store->seed());
  const ring::StoreHeader& header = one.store->header();
  std::byte* const at = one.object.at + header.manifest_offset[header.current - 1];
  std::memcpy(at, &forged.manifest, sizeof forged.manifest);
  std::memcpy(at + sizeof forged.manifest, blocks.data(), blocks.size() * sizeof blocks[0]);
  return one.restart();
}

TEST(blocks_that_lie_in_one_another_are_refused) {
  const ring::Digest a = digest_of('a'), b = digest_of('b');
  for (const std::vector<ring::ManifestBlock>& blocks :
       std::vector<std::vector<ring::ManifestBlock>>{{{1, 0, a, 0}},
                                                     {{1, 64, a, 8}},
                                                     {{1, 64, a, kHeap * 2}},
                                                     {{1, kHeap * 2, a, 64}},
                                                     {{1, ~uint64_t{0}, a, 64}},
                                                     {{1, 640, a, 0}, {2, 641, a, 0}},
                                                     {{1, 640, a, 0}, {2, 640, b, 0}},
                                                     {{1, 640, a, 0}, {2, 64, b, 576}},
                                                     {{1, 577, a, 0}, {2, 64, b, 576}}}) {
    Stored one;
    const std::string error = adopt(one, blocks);
    CHECK(error.starts_with("the committed snapshot in the store is damaged: a block of bytes ["));
    const std::string lies =
        "] lies at heap offset [" + std::to_string(blocks.back().heap_offset) + "]";
    CHECK(error.ends_with(lies));
  }
}

TEST(blocks_that_touch_and_contents_that_several_blocks_have_are_sound) {
  Stored one;
  const ring::Digest a = digest_of('a'), b = digest_of('b'), c = digest_of('c');
  const uint64_t end = one.store->header().heap_bytes;
  CHECK_EQ(adopt(one, {{1, 577, a, 0},
                       {2, 577, a, 0},
                       {3, 64, b, 640},
                       {4, 64, c, end - 64},
                       {5, 9, a, ring::kElsewhere + 3}}),
           "");
  CHECK_EQ(one.store->header().heap_used.load(), 640u + 64 + 64);
  CHECK(one.knows('a', 577) && one.knows('b', 64) && one.knows('c', 64));
  CHECK(one.store->find({0, 9, a, 0}) == nullptr);
  CHECK_EQ(one.store->reserve(64), 704u);  // nothing of it is given to another content
  one.store->give_back(704, 64);
  one.publish(9, "d");
  CHECK_EQ(one.used(), 1u);
  CHECK(!one.knows('a', 577));
}

// ---- which snapshot
// ------------------------------------------------------------------------------

TEST(a_snapshot_that_waited_is_found_in_either_place) {
  Stored one;
  for (uint64_t cut = 1; cut < 5; ++cut) {
    CHECK(one.write(cut, "a"));
    CHECK_EQ(one.restart(), "");
    CHECK_EQ(one.cut(), cut - 1);
    CHECK(one.store->unfinished().has_value());
    if (one.store->unfinished()) CHECK_EQ(one.store->unfinished()->manifest.cut, cut);
    one.publish(cut, "a");
    CHECK_EQ(one.restart(), "");
    CHECK_EQ(one.cut(), cut);
    CHECK(!one.store->unfinished().has_value());
  }
  CHECK(one.write(4, "b"));  // no later one
  CHECK_EQ(one.restart(), "");
  CHECK(!one.store->unfinished().has_value());
}

TEST(what_was_decided_becomes_the_committed_snapshot) {
  Stored one;
  for (uint64_t cut = 1; cut < 5; ++cut) {
    CHECK(one.write(cut, cut % 2 ? "ab" : "bc"));
    CHECK_EQ(one.restart(), "");
    CHECK_EQ(one.store->promote_unfinished(10 * cut), "");
    CHECK(!one.store->unfinished().has_value());
    CHECK_EQ(one.store->promote_unfinished(10 * cut), "");  // it is already
    CHECK_EQ(one.cut(), cut);
    CHECK_EQ(one.contents(), cut % 2 ? "ab" : "bc");
    CHECK_EQ(one.used(), 2u);
    CHECK_EQ(one.knows('a'), cut % 2 == 1);
    CHECK_EQ(one.restart(), "");
    CHECK_EQ(one.cut(), cut);
  }
  one.publish(5, "d");
  CHECK_EQ(one.used(), 1u);
}

TEST(what_was_promoted_late_is_let_go_like_any_other) {
  Stored one;
  one.publish(1, "ab");
  CHECK(one.write(2, "bc"));
  CHECK_EQ(one.restart(), "");
  CHECK_EQ(one.store->promote_unfinished(20), "");
  one.publish(3, "d");
  CHECK_EQ(one.used(), 1u);
  CHECK(!one.knows('b'));
}

TEST(what_the_ranks_have_agreed_on_and_the_store_lacks_is_named) {
  Stored one;
  const std::string lacks =
      "the ranks have agreed on a committed snapshot that the store lacks: entry ";
  CHECK_EQ(one.store->promote_unfinished(10),
           lacks + "[10], it has that of entry [0] and an unfinished one of entry [0]");
  one.publish(1, "a");
  CHECK(one.write(2, "b"));
  CHECK_EQ(one.restart(), "");
  CHECK_EQ(one.store->promote_unfinished(30),
           lacks + "[30], it has that of entry [10] and an unfinished one of entry [20]");
  CHECK_EQ(one.store->promote_unfinished(15),
           lacks + "[15], it has that of entry [10] and an unfinished one of entry [20]");
  CHECK_EQ(one.contents(), "a");
}

TEST(an_unfinished_snapshot_that_is_damaged_does_not_become_the_committed_one) {
  Stored one;
  one.publish(1, "a");
  CHECK(one.write(2, "b"));
  checkpoint::StoredSnapshot forged = *one.store->waiting();
  forged.blocks[0].heap_offset = 8;
  forged.manifest.checksum = checkpoint::checksum_of(forged, one.store->seed());
  std::byte* const at = one.object.at + one.store->header().manifest_offset[1];
  std::memcpy(at, &forged.manifest, sizeof forged.manifest);
  std::memcpy(at + sizeof forged.manifest, forged.blocks.data(), sizeof forged.blocks[0]);
  CHECK_EQ(one.restart(), "");
  CHECK(one.store->promote_unfinished(20).find("is damaged") != std::string::npos);
  CHECK_EQ(one.store->header().current.load(), 1u);
}

TEST(what_is_lent_stays_unless_the_snapshot_that_was_decided_is_of_a_later_step) {
  for (const uint64_t step : {5, 6}) {
    Stored one;
    one.publish(1, "a", 5);
    CHECK(one.store->lend());
    CHECK(one.write(2, "b", step));
    CHECK_EQ(one.restart(), "");
    CHECK_EQ(one.store->promote_unfinished(20), "");
    CHECK_EQ(one.store->lends(5, digest_of('a')), step == 5);
    CHECK_EQ(one.used(), step == 5 ? 2u : 1u);
  }
}

// ---- digests
// -------------------------------------------------------------------------------------

TEST(contents_have_digests_of_one_kind) {
  using ring::DigestKind;
  Stored one;
  CHECK_EQ(one.store->set_digests(DigestKind::kNh), "");
  CHECK(one.store->digest_key().kind == DigestKind::kNh);
  CHECK_EQ(one.store->set_digests(DigestKind::kXxh3), "");  // nothing is stored
  CHECK(one.write(1, "a"));
  CHECK_EQ(one.restart(), "");
  const std::string other = "the store's digests are of kind [0], this server's of kind [1]";
  CHECK(one.store->set_digests(DigestKind::kNh).starts_with(other));
  CHECK_EQ(one.store->set_digests(DigestKind::kXxh3), "");
  CHECK_EQ(one.store->promote_unfinished(10), "");
  CHECK(one.store->set_digests(DigestKind::kNh).starts_with(other));
  CHECK_EQ(one.store->set_digests(DigestKind::kXxh3), "");
  CHECK(one.store->digest_key().kind == DigestKind::kXxh3);
}

}  // namespace

CHECK_MAIN
