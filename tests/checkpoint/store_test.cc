// The open snapshot of a store: what is added to it, what is written down, and what becomes of the
// room that it took.
#include "checkpoint/store/store.h"

#include <string>
#include <vector>

#include "check.h"
#include "checkpoint/stored.h"

namespace {

using namespace checkpoint_test;  // NOLINT: a test

TEST(a_content_that_is_known_takes_no_room) {
  const Stored one;
  CHECK(!one.add('a'));
  CHECK(one.add('a', 0x2000));
  CHECK(one.store->add_known(0x3000, kBlock, digest_of('a')));
  CHECK(!one.store->add_known(0x4000, kBlock, digest_of('b')));
  CHECK(!one.store->add_known(0x4000, kBlock + 1, digest_of('a')));  // of another size
  CHECK_EQ(one.store->open_blocks().size(), 3u);
  CHECK(one.store->write(one.manifest(1, 0), {}));
  one.store->promote();
  CHECK_EQ(one.contents(), "aaa");
  CHECK_EQ(one.used(), 1u);
}

TEST(a_content_is_forgotten_with_the_last_snapshot_that_names_it) {
  const Stored one;
  one.publish(1, "ab");
  one.publish(2, "bc");
  CHECK(!one.knows('a'));
  CHECK(one.knows('b') && one.knows('c'));
  CHECK_EQ(one.used(), 2u);
  one.publish(3, "");
  CHECK_EQ(one.used(), 0u);
  CHECK(!one.knows('b') && !one.knows('c'));
  // Its place has another content then, of another size.
  one.add('d', 0x1000, 3 * kBlock);
  one.publish(4, "");
  CHECK_EQ(one.used(), 3u);
  one.publish(5, "e");
  CHECK_EQ(one.used(), 1u);
}

// By accident, or because a client has made it so.
TEST(of_two_contents_of_one_digest_the_last_one_is_known) {
  const Stored one;
  CHECK(!one.add('a', 0x1000, kBlock));
  CHECK(!one.add('a', 0x2000, 2 * kBlock));
  one.publish(1, "");
  CHECK_EQ(one.used(), 3u);
  CHECK(one.store->add_known(0x1000, 2 * kBlock, digest_of('a')));
  one.publish(2, "");  // the other one goes
  CHECK_EQ(one.used(), 2u);
  CHECK(one.knows('a', 2 * kBlock));
  CHECK(!one.add('a', 0x2000, kBlock));
  one.publish(3, "");
  CHECK_EQ(one.used(), 1u);
  CHECK(one.knows('a'));
  CHECK(!one.add('a', 0x2000, kBlock + 64));  // both go, the known one first
  CHECK(!one.add('a', 0x1000, kBlock + 128));
  one.publish(4, "");
  one.publish(5, "");
  CHECK_EQ(one.used(), 0u);
  CHECK(!one.knows('a', kBlock + 128));
}

TEST(a_snapshot_that_waits_is_dropped_with_the_open_one) {
  const Stored one;
  one.publish(1, "a");
  CHECK(one.write(2, "ab"));
  CHECK(one.store->waiting().has_value());
  one.add('c');
  one.store->drop_open();
  CHECK(!one.store->waiting().has_value());
  CHECK_EQ(one.used(), 1u);
  CHECK(one.knows('a') && !one.knows('b') && !one.knows('c'));
  one.store->drop_open();  // nothing is left of it
  one.publish(3, "d");
  CHECK_EQ(one.contents(), "d");
  CHECK_EQ(one.used(), 1u);
}

TEST(the_store_counts_what_a_snapshot_contains) {
  Stored one;
  one.add('b', 0x2000);
  one.add('a', 0x1000, kBlock - 10);
  one.store->add_elsewhere(0x3000, 5, digest_of('c'), 4);
  CHECK(one.store->write(one.manifest(7, 0), {{1, 2, 3}, {4, 5, 6}}));
  const auto is_right = [](const checkpoint::StoredSnapshot& snapshot) {
    CHECK_EQ(snapshot.manifest.cut, 7u);
    CHECK_EQ(snapshot.manifest.blocks, 3u);
    CHECK_EQ(snapshot.manifest.places, 2u);
    CHECK_EQ(snapshot.manifest.bytes, 2 * kBlock - 5);
    CHECK_EQ(snapshot.blocks.at(0).address, 0x1000u);
    CHECK_EQ(snapshot.blocks.at(2).heap_offset, ring::kElsewhere + 4);
    CHECK_EQ(snapshot.places.at(1).owner, 6u);
  };
  is_right(*one.store->waiting());
  one.store->promote();
  is_right(one.store->committed());
  CHECK(!one.store->waiting().has_value());
  CHECK_EQ(one.restart(), "");
  is_right(one.store->committed());
}

TEST(a_piece_of_a_block_is_as_old_as_the_block) {
  const Stored one;
  const std::vector<std::pair<uint64_t, uint64_t>> since = {
      {0x0fff, 0}, {0x1000, 5}, {0x1fff, 5}, {0x2000, 0}, {0x3000, 6}, {0x3010, 7}, {0x3fff, 7}};
  for (const auto& [address, entry] : since) one.add('a', address);
  const std::vector<checkpoint::DatedRange> dated = {
      {{0x1000, 0x1000}, 5}, {{0x3000, 0x10}, 6}, {{0x3010, 0x1000}, 7}};
  one.store->date(dated);
  one.publish(1, "");
  for (size_t i = 0; i < since.size(); ++i)
    CHECK_EQ(one.store->committed().blocks.at(i).since, since[i].second);
}

TEST(a_full_store_says_what_is_in_it) {
  const Stored one;
  one.add('a');
  const uint64_t all = one.store->header().heap_bytes;
  CHECK_EQ(one.store->reserve(all), checkpoint::Heap::kNone);
  CHECK_EQ(one.store->problem(), "the store is full: bytes [" + std::to_string(all) +
                                     "] in all, used [640], wanted [" + std::to_string(all) + "]");
}

TEST(a_machine_without_memory_is_named) {
  Stored one;
  one.lose_memory();
  CHECK_EQ(one.store->reserve(kBlock), checkpoint::Heap::kNone);
  CHECK(one.store->problem().starts_with("the machine has no memory for it: "));
  CHECK(one.store->problem().size() > 40);
  CHECK(!one.store->write(one.manifest(1, 0), {}));
  CHECK_EQ(one.store->problem(), "there is no room for a table of blocks: [0]");
  one.find_memory();
  one.publish(1, "a");
  one.publish(2, "b");
  one.lose_memory();  // for what is there already none is needed
  for (uint64_t cut = 3; cut < 6; ++cut) one.publish(cut, "c");
  CHECK_EQ(one.contents(), "c");
}

TEST(a_table_may_fill_its_room) {
  checkpoint::StoreShape shape = kSmall;
  shape.manifest_bytes = 3 * ring::kPageBytes;
  Stored one(shape);
  constexpr uint64_t kMost = 254;  // and one place
  const auto write = [&](uint64_t cut, uint64_t blocks) {
    for (uint64_t i = 0; i < blocks; ++i) one.store->add_elsewhere(64 * i, 64, digest_of('a'), 1);
    return one.store->write(one.manifest(cut, 0), {{1, 2, 3}});
  };
  one.publish(1, "a");
  CHECK(write(2, kMost));
  one.store->promote();
  CHECK_EQ(one.restart(), "");
  CHECK_EQ(one.store->committed().blocks.size(), kMost);
  CHECK_EQ(one.store->committed().places.at(0).owner, 3u);
  one.add('b');
  CHECK(!write(3, kMost));
  CHECK_EQ(one.store->problem(), "there is no room for a table of blocks: [255]");
  CHECK(one.store->open_blocks().empty());
  CHECK(!one.store->waiting().has_value());
  CHECK_EQ(one.used(), 0u);
  CHECK_EQ(one.cut(), 2u);
}

}  // namespace

CHECK_MAIN
