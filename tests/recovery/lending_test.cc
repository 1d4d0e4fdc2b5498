// What a store keeps for snapshots of other members: until when, what room it takes, and that the
// next server finds it.
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "recovery/object.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

constexpr uint64_t kRoom = uint64_t{8} << 20;
constexpr uint64_t kBlock = 6400;  // a multiple of what the heap aligns to

// A content is named by a letter; the store believes what digest it is told.
ring::Digest digest_of(char letter) {
  return {static_cast<uint64_t>(letter), 7};
}

struct Lender {
  Lender() : object(kBeforeHeap + kRoom) { restart(); }
  void restart() {
    store.reset();
    store = object.open(&error);
    CHECK_EQ(error, "");
  }
  uint64_t used() const { return store->header().heap_used / kBlock; }
  bool is_marked() const { return store->header().lends == 1; }
  // Room with a content in it.
  uint64_t filled(char letter) {
    const uint64_t offset = store->reserve(kBlock);
    CHECK(offset != checkpoint::Heap::kNone);
    std::memset(store->at(offset), letter, kBlock);
    return offset;
  }
  ring::ManifestBlock lent(char letter) {
    return {1000, kBlock, digest_of(letter), filled(letter)};
  }
  bool lend_more(uint64_t step, const std::string& letters) {
    std::vector<ring::ManifestBlock> blocks;
    for (const char letter : letters) blocks.push_back(lent(letter));
    return store->lend_more(step, blocks);
  }
  // A snapshot of these contents, and of one that another member has. Step 0: of this rank alone.
  void publish(uint64_t step, const std::string& letters) {
    uint64_t address = 4096;
    for (const char letter : letters)
      store->add_stored(address += kBlock, kBlock, digest_of(letter), filled(letter));
    store->add_elsewhere(1 << 20, kBlock, digest_of('-'), 3);
    ring::Manifest manifest{};
    manifest.cut = ++cuts;
    manifest.step = step;
    CHECK(store->publish(manifest, {{4096, 64, 7}}));
  }
  bool has(char letter) const {
    const std::byte* at = store->find({0, kBlock, digest_of(letter), 0});
    const std::vector<std::byte> wanted(kBlock, static_cast<std::byte>(letter));
    return at && std::memcmp(at, wanted.data(), kBlock) == 0;
  }
  // Which of these letters are lent for snapshots of this step.
  std::string lends(uint64_t step, const std::string& letters = "-abcdxy") const {
    std::string found;
    for (const char letter : letters)
      if (store->lends(step, digest_of(letter))) found += letter;
    return found;
  }

  Object object;
  std::string error;
  std::unique_ptr<checkpoint::Store> store;
  uint64_t cuts = 0;
};

}  // namespace

TEST(a_content_is_found_by_its_digest_and_size) {
  Lender one;
  one.publish(5, "ab");
  CHECK(one.has('a'));
  CHECK(one.has('b'));
  CHECK(!one.has('c'));
  CHECK(!one.has('-'));
  CHECK(one.store->find({0, kBlock + 1, digest_of('a'), 0}) == nullptr);
}

TEST(a_snapshot_of_this_rank_alone_is_not_lent) {
  Lender one;
  CHECK(one.store->lend());
  one.publish(0, "a");
  CHECK(one.store->lend());
  CHECK(!one.is_marked());
  CHECK_EQ(one.lends(0), "");
  one.publish(0, "b");
  CHECK(!one.has('a'));
}

TEST(what_is_lent_stays_until_there_is_a_snapshot_of_a_later_step) {
  Lender one;
  one.publish(5, "ab");
  CHECK(one.store->lend());
  CHECK(one.is_marked());
  for (const uint64_t step : {4, 5}) CHECK_EQ(one.lends(step), "ab");
  CHECK_EQ(one.lends(6), "");
  one.publish(0, "bc");  // alone, for want of room
  CHECK_EQ(one.used(), 3u);
  CHECK(one.store->lend());
  CHECK_EQ(one.lends(5), "ab");
  one.restart();
  CHECK(one.is_marked());
  CHECK_EQ(one.lends(5), "ab");
  CHECK_EQ(one.lends(6), "");
  CHECK(one.has('a'));
  CHECK_EQ(one.used(), 3u);
  one.publish(5, "c");  // the same step once more
  CHECK_EQ(one.lends(5), "ab");
  one.publish(6, "c");
  CHECK(!one.is_marked());
  CHECK_EQ(one.store->header().lends.load(), 0u);
  CHECK_EQ(one.lends(0), "");
  CHECK(!one.has('a'));
  CHECK_EQ(one.used(), 1u);
  one.restart();
  CHECK_EQ(one.lends(0), "");
  CHECK_EQ(one.used(), 1u);
}

// What was lent before stays as long as a snapshot of that step may name it.
TEST(lending_again_adds_to_what_is_lent_for_this_step) {
  Lender one;
  one.publish(5, "ab");
  CHECK(one.store->lend());
  one.publish(5, "bc");
  CHECK(one.store->lend());
  CHECK_EQ(one.lends(5), "abc");
  CHECK_EQ(one.used(), 3u);
  CHECK(one.lend_more(7, "x"));
  one.publish(6, "d");
  CHECK(one.store->lend());
  CHECK_EQ(one.lends(7), "abcdx");
  one.restart();
  CHECK_EQ(one.lends(7), "abcdx");
  one.publish(8, "d");
  CHECK_EQ(one.lends(0), "");
  CHECK_EQ(one.used(), 1u);
  // Not what was lent for an earlier step: that one was taken back.
  CHECK(one.store->lend());
  CHECK_EQ(one.lends(8), "d");
}

TEST(contents_that_only_others_need_are_kept_for_them) {
  Lender one;
  one.publish(5, "a");
  CHECK(one.store->lend_more(6, {}));
  CHECK(!one.is_marked());
  CHECK_EQ(one.lends(0), "");
  CHECK(one.lend_more(6, "xy"));
  CHECK(one.is_marked());
  CHECK_EQ(one.lends(6), "xy");
  CHECK(one.has('x'));
  CHECK_EQ(one.used(), 3u);
  CHECK(one.lend_more(4, "b"));  // and of a step before
  CHECK_EQ(one.lends(6), "bxy");
  CHECK_EQ(one.used(), 4u);
  one.restart();
  CHECK_EQ(one.lends(6), "bxy");
  CHECK(one.has('x'));
  CHECK_EQ(one.used(), 4u);
  one.publish(7, "a");
  CHECK_EQ(one.used(), 1u);
  CHECK(!one.has('x'));
}

TEST(what_is_there_already_takes_no_room) {
  Lender one;
  one.publish(5, "a");
  CHECK(one.lend_more(5, "axx"));
  CHECK_EQ(one.lends(5), "ax");
  CHECK_EQ(one.used(), 2u);
  // Twice in one place.
  const ring::ManifestBlock same = one.lent('y');
  CHECK(one.store->lend_more(5, {same, same}));
  CHECK_EQ(one.used(), 3u);
  CHECK(one.has('y'));
  one.filled('z');  // takes no place of these
  CHECK(one.has('a'));
  CHECK(one.has('x'));
  CHECK(one.has('y'));
  one.publish(6, "b");
  CHECK_EQ(one.used(), 2u);  // and `z`
}

// By accident, or because a client has made it so.
TEST(contents_of_one_digest_and_two_sizes_are_two) {
  Lender one;
  one.publish(5, "a");
  const uint64_t offset = one.store->reserve(2 * kBlock);
  CHECK(one.store->lend_more(5, {{1, 2 * kBlock, digest_of('a'), offset}}));
  CHECK_EQ(one.used(), 3u);
  CHECK(*one.store->at(one.store->committed().blocks[0].heap_offset) == std::byte{'a'});
  one.publish(6, "b");
  CHECK_EQ(one.used(), 1u);
}

TEST(without_room_for_its_table_nothing_is_lent) {
  Lender one;
  one.publish(5, "a");
  CHECK(one.lend_more(9, "x"));
  std::vector<ring::ManifestBlock> many;
  for (uint64_t i = 0; i < 2000; ++i)
    many.push_back({1000 * i, 64, {i, 99}, one.store->reserve(64)});
  CHECK(!one.store->lend_more(9, many));
  CHECK(one.store->problem().find("no room for a table of blocks: [2001]") != std::string::npos);
  CHECK_EQ(one.used(), 1u);
  CHECK_EQ(one.store->header().lends.load(), 0u);
  CHECK_EQ(one.lends(0), "");
  CHECK(one.store->lend());
  CHECK_EQ(one.lends(5), "a");
  CHECK_EQ(one.lends(6), "");
}

TEST(a_damaged_table_of_what_is_lent_is_a_sentence) {
  Lender one;
  one.publish(5, "a");
  CHECK(one.store->lend());
  std::byte* table = one.object.at + one.store->header().lent_offset;
  table[sizeof(ring::Manifest)] ^= std::byte{1};
  CHECK(one.object.open(&one.error) == nullptr);
  CHECK(one.error.find("its table has another checksum") != std::string::npos);
}

// Its server has died before its first snapshot counted.
TEST(what_is_lent_before_there_is_a_snapshot_is_found_again) {
  Lender one;
  CHECK(one.lend_more(5, "xy"));
  CHECK_EQ(one.used(), 2u);
  one.restart();
  CHECK_EQ(one.lends(5), "xy");
  CHECK(one.has('x'));
  CHECK_EQ(one.used(), 2u);
  one.publish(5, "a");
  CHECK(one.has('x'));
  one.publish(6, "a");
  CHECK_EQ(one.used(), 1u);
}

CHECK_MAIN
