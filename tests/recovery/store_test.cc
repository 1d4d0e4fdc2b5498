// The store: what it keeps, what it shares, and what it says about one that is damaged or full.
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "check.h"
#include "checkpoint/digest/digest.h"
#include "fuzz.h"
#include "pyft/fault.h"
#include "recovery/object.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

constexpr uint64_t kMemoryFreed = uint64_t{8} << 20;

uint64_t put(checkpoint::Store& store, uint64_t address, const std::string& content) {
  const uint64_t offset = store.reserve(content.size());
  if (offset == checkpoint::Heap::kNone) return offset;
  std::memcpy(store.at(offset), content.data(), content.size());
  store.add_stored(address, content.size(),
                   checkpoint::digest(content.data(), content.size(), store.seed()), offset);
  return offset;
}

std::string content(const checkpoint::Store& store, size_t block) {
  const ring::ManifestBlock& b = store.committed().blocks.at(block);
  return {reinterpret_cast<const char*>(store.at(b.heap_offset)), b.bytes};
}

// Whether the child ends by SIGKILL, as an armed fault does it.
bool wait_for_kill() {
  int status = 0;
  wait(&status);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

bool publish(checkpoint::Store& store, uint64_t cut) {
  ring::Manifest manifest{};
  manifest.cut = cut;
  manifest.seq = 10 * cut;
  manifest.position = 1000 * cut;
  return store.publish(manifest, {{4096, 64, 7}});
}

// By whatever instructions, in one piece or in many: a digest is compared with one that another
// server has made. The numbers are those of the library's code for any processor.
TEST(a_digest_does_not_depend_on_how_it_is_made) {
  std::vector<unsigned char> data(100'000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 7 + i / 256);
  const std::pair<size_t, ring::Digest> known[] = {
      {100, {0x5d5809f1b86385e0u, 0x2cf8aa65749c6b28u}},
      {100000, {0xed782088fc9c16b3u, 0x8343ce40d19a0721u}}};
  for (const auto& [bytes, wanted] : known) {
    CHECK(checkpoint::digest(data.data(), bytes, 5) == wanted);
    std::vector<unsigned char> copy(bytes);
    CHECK(checkpoint::copy_and_digest(copy.data(), data.data(), bytes, 5) == wanted);
    CHECK(std::equal(copy.begin(), copy.end(), data.begin()));
    checkpoint::Hasher hasher(5);
    for (size_t at = 0; at < bytes; at += 700)
      hasher.add(data.data() + at, std::min<size_t>(700, bytes - at));
    CHECK(hasher.digest() == wanted);
  }
}

TEST(a_new_server_finds_the_point_of_the_old_one) {
  const Object object(kBeforeHeap + kMemoryFreed);
  std::string error;
  {
    const auto store = object.open(&error);
    CHECK_EQ(error, "");
    CHECK(!store->has_committed());
    put(*store, 300, "three");
    put(*store, 100, "one");
    CHECK(publish(*store, 1));
  }
  const auto store = object.open(&error);
  CHECK_EQ(error, "");
  CHECK(store->has_committed());
  CHECK_EQ(store->committed().manifest.cut, 1u);
  CHECK_EQ(store->committed().manifest.position, 1000u);
  CHECK_EQ(store->committed().blocks.size(), 2u);
  CHECK_EQ(store->committed().blocks[0].address, 100u);
  CHECK_EQ(content(*store, 0), "one");
  CHECK_EQ(content(*store, 1), "three");
  CHECK_EQ(store->committed().places.at(0).owner, 7u);
  // What it took over is not given to another one.
  put(*store, 100, "ONE");
  put(*store, 300, "three");
  CHECK(publish(*store, 2));
  CHECK_EQ(content(*store, 0), "ONE");
  CHECK_EQ(content(*store, 1), "three");
}

TEST(equal_contents_are_kept_once_and_freed_with_the_last_block) {
  const Object object(kBeforeHeap + kMemoryFreed);
  std::string error;
  const auto store = object.open(&error);
  const std::string same(100'000, 'x');
  const uint64_t first = put(*store, 1'000'000, same);
  put(*store, 2'000'000, same);
  CHECK(store->add_known(3'000'000, same.size(),
                         checkpoint::digest(same.data(), same.size(), store->seed())));
  CHECK(publish(*store, 1));
  const uint64_t one = store->header().heap_used;
  CHECK(one >= same.size());
  CHECK(one < same.size() + 4096);
  for (const ring::ManifestBlock& block : store->committed().blocks)
    CHECK_EQ(block.heap_offset, first);
  put(*store, 1'000'000, "y");
  CHECK(publish(*store, 2));
  CHECK(store->header().heap_used < 4096u);
}

TEST(a_dropped_point_leaves_the_current_one_alone) {
  const Object object(kBeforeHeap + kMemoryFreed);
  std::string error;
  const auto store = object.open(&error);
  put(*store, 100, "old");
  CHECK(publish(*store, 1));
  const uint64_t used = store->header().heap_used;
  for (int i = 0; i < 100; ++i) put(*store, 100, "new" + std::to_string(i));
  store->drop_open();
  CHECK_EQ(store->header().heap_used.load(), used);
  CHECK_EQ(content(*store, 0), "old");
  CHECK_EQ(object.open(&error)->committed().manifest.cut, 1u);
}

TEST(a_full_store_says_so_and_goes_on) {
  const Object object(kBeforeHeap + kMemoryFreed);
  std::string error;
  const auto store = object.open(&error);
  const std::string big(kMemoryFreed / 3, 'b');
  put(*store, 1, big);
  CHECK(publish(*store, 1));
  CHECK_EQ(store->reserve(2 * kMemoryFreed), checkpoint::Heap::kNone);
  CHECK(store->problem().find("the store is full") != std::string::npos);
  // Room goes round for ever when two generations fit.
  for (uint64_t cut = 2; cut < 50; ++cut) {
    CHECK(put(*store, 1, std::string(kMemoryFreed / 3, static_cast<char>('b' + cut))) !=
          checkpoint::Heap::kNone);
    CHECK(publish(*store, cut));
  }
  CHECK(store->header().heap_backed <= kMemoryFreed);
}

TEST(memory_that_was_needed_once_is_given_back) {
  const Object object(kBeforeHeap + (uint64_t{400} << 20));
  std::string error;
  const auto store = object.open(&error);
  CHECK(store->reserve(uint64_t{300} << 20) == 0);
  store->give_back(0, uint64_t{300} << 20);
  put(*store, 1, "small");
  CHECK(publish(*store, 1));
  CHECK(store->header().heap_backed < (uint64_t{8} << 20));
}

// Bytes of pages that were given back in this many snapshots in which all contents change, behind
// the first two. No content is written: to back its pages is what costs.
uint64_t given_back(const std::vector<uint64_t>& sizes, uint64_t snapshots, Random* change) {
  const Object object(kBeforeHeap + (uint64_t{2} << 30));
  std::string error;
  const auto store = object.open(&error);
  uint64_t given = 0, backed = 0, content = 0;
  for (uint64_t cut = 1; cut <= snapshots + 2; ++cut) {
    uint64_t address = 4096;
    for (uint64_t bytes : sizes) {
      if (change) bytes += 64 * change->below(bytes / 640);  // up to a tenth
      const uint64_t offset = store->reserve(bytes);
      CHECK(offset != checkpoint::Heap::kNone);
      store->add_stored(address, bytes, {++content, content}, offset);
      address += bytes;
    }
    CHECK(publish(*store, cut));
    const uint64_t now = store->header().heap_backed;
    if (cut > 2 && now < backed) given += backed - now;
    backed = now;
  }
  return given;
}

// Copying to pages that are not there takes several times as long.
TEST(pages_stay_while_all_contents_change_at_every_snapshot) {
  constexpr uint64_t kMb = uint64_t{1} << 20;
  CHECK_EQ(given_back({66 * kMb}, 9, nullptr), 0u);
  CHECK_EQ(given_back({100 * kMb}, 9, nullptr), 0u);
  CHECK_EQ(given_back({100 * kMb + 64}, 9, nullptr), 0u);
  CHECK_EQ(given_back({3 * kMb, 80 * kMb, 5 * kMb, 40 * kMb}, 9, nullptr), 0u);
  Random random(11);
  for (int round = 0; round < 6; ++round) {
    std::vector<uint64_t> sizes;
    for (uint64_t all = 0; all < 90 * kMb; all += sizes.back())
      sizes.push_back(64 * (1 + random.below(round % 2 ? 200'000 : 20'000)));
    CHECK_EQ(given_back(sizes, 9, nullptr), 0u);
    Random change(round);
    CHECK(given_back(sizes, 9, &change) <= 32 * kMb);
  }
}

// A model that has been given up is not kept for ever.
TEST(pages_of_a_model_that_is_gone_are_given_back) {
  const Object object(kBeforeHeap + (uint64_t{2} << 30));
  std::string error;
  const auto store = object.open(&error);
  const uint64_t big = uint64_t{150} << 20;
  uint64_t cut = 0;
  for (uint64_t content = 1; content <= 2; ++content) {
    store->add_stored(4096, big, {content, content}, store->reserve(big));
    CHECK(publish(*store, ++cut));
  }
  CHECK(store->header().heap_backed >= 2 * big);
  for (int i = 0; i < 12; ++i) {
    put(*store, 1, std::string("small") + std::to_string(i));
    CHECK(publish(*store, ++cut));
  }
  CHECK(store->header().heap_backed < (uint64_t{8} << 20));
}

TEST(what_does_not_fit_is_an_error) {
  std::string error;
  CHECK(!Object(4096).open(&error));
  CHECK(error.find("too small") != std::string::npos);
  const Object object(kBeforeHeap + kMemoryFreed);
  CHECK(object.open(&error) != nullptr);
  reinterpret_cast<ring::StoreHeader*>(object.at)->version = 99;
  CHECK(!object.open(&error));
  CHECK(error.find("layout version [99]") != std::string::npos);
}

// A process that dies between any two instructions of publish() leaves the old snapshot or the new.
TEST(a_crash_while_publishing_leaves_one_whole_point) {
  for (const char* place : {"store.before_publish:1", "store.after_publish:1"}) {
    const Object object(kBeforeHeap + kMemoryFreed);
    std::string error;
    const auto store = object.open(&error);
    put(*store, 100, "old");
    CHECK(publish(*store, 1));
    if (fork() == 0) {
      put(*store, 100, "new");
      fault::arm(place);
      publish(*store, 2);
      _exit(0);
    }
    CHECK(wait_for_kill());
    const auto next = object.open(&error);
    CHECK_EQ(error, "");
    const bool after = std::strstr(place, "after");
    CHECK_EQ(next->committed().manifest.cut, after ? 2u : 1u);
    CHECK_EQ(content(*next, 0), after ? "new" : "old");
    CHECK(next->unfinished().has_value() != after);
    if (after) continue;
    CHECK_EQ(next->unfinished()->manifest.cut, 2u);
    CHECK(next->unfinished()->blocks.at(0).digest == checkpoint::digest("new", 3, next->seed()));
    put(*next, 100, "xyz");
    CHECK(publish(*next, 2));
    CHECK(!object.open(&error)->unfinished());  // what is there now is the snapshot before
  }
}

// Whatever is in the first pages and in the table: a sentence, or numbers that can be used.
TEST(a_hostile_store_is_a_sentence) {
  Random random(7);
  uint64_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    static const Object object(kBeforeHeap + kMemoryFreed);
    std::memset(object.at, 0, kBeforeHeap);
    std::string error;
    {
      const auto store = object.open(&error);
      put(*store, 100, "one");
      put(*store, 200, "two");
      publish(*store, 1);
    }
    auto* header = reinterpret_cast<ring::StoreHeader*>(object.at);
    std::byte* table = object.at + header->manifest_offset[0];
    for (int i = 0; i < 3; ++i) {
      std::byte* at = random.once_in(2) ? object.at + random.below(128) : table + random.below(224);
      *at ^= static_cast<std::byte>(1 + random.below(255));
    }
    const auto store = object.open(&error);
    CHECK_EQ(store == nullptr, !error.empty());
    refused += store == nullptr;
    if (!store) continue;
    put(*store, 100, "three");
    publish(*store, 2);
  }
  CHECK(refused > 2000);
}

}  // namespace

CHECK_MAIN
