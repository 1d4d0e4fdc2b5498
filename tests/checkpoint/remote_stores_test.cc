// Contents in the stores of other members: which of them are looked at, and what is believed.
#include "checkpoint/store/remote_stores.h"

#include <fcntl.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "check.h"
#include "pyft/unique_fd.h"
#include "recovery/object.h"

namespace {

using namespace recovery_test;  // NOLINT: a test
using checkpoint::RemoteStores;

constexpr uint64_t kSeed = 77, kOwner = 4;
constexpr uint64_t kHeap = uint64_t{1} << 20;

ring::Digest digest_of(const std::string& content) {
  return checkpoint::digest(content.data(), content.size(), kSeed);
}

// What a snapshot of this rank says of a content that a member's store has.
ring::ManifestBlock wanted(const std::string& content) {
  return {0x1000, content.size(), digest_of(content), ring::kElsewhere + kOwner};
}

// A store of the job, or of another one.
struct Member {
  explicit Member(uint64_t seed = kSeed) : object(kBeforeHeap + kHeap) {
    reinterpret_cast<ring::StoreHeader*>(object.at)->seed = seed;
    store = object.open(&error);
    CHECK_EQ(error, "");
  }
  uint64_t filled(const std::string& content) const {
    const uint64_t offset = store->reserve(content.size());
    std::memcpy(store->at(offset), content.data(), content.size());
    return offset;
  }
  void write(uint64_t cut, const std::string& content) const {
    store->add_stored(0x1000, content.size(), digest_of(content), filled(content));
    ring::Manifest manifest{};
    manifest.cut = cut;
    CHECK(store->write(manifest, {}));
  }
  void publish(uint64_t cut, const std::string& content) const {
    write(cut, content);
    store->promote();
  }
  // A table of these blocks where that of the first snapshot lies.
  void forge(const std::vector<ring::ManifestBlock>& blocks) const {
    checkpoint::StoredSnapshot snapshot;
    snapshot.blocks = blocks;
    snapshot.manifest.blocks = blocks.size();
    snapshot.manifest.checksum = checkpoint::checksum_of(snapshot, kSeed);
    publish(1, "any");
    std::byte* const at = object.at + store->header().manifest_offset[0];
    std::memcpy(at, &snapshot.manifest, sizeof snapshot.manifest);
    std::memcpy(at + sizeof snapshot.manifest, blocks.data(), blocks.size() * sizeof blocks[0]);
  }
  Object object;
  std::string error;
  std::unique_ptr<checkpoint::Store> store;
};

// An agent that has these descriptors, in order.
struct Agent : checkpoint::StoreSource {
  explicit Agent(std::vector<int> fds) : fds(std::move(fds)) {}
  int open(uint64_t owner, uint64_t attempt) override {
    ++asked;
    CHECK_EQ(owner, kOwner);
    return attempt < fds.size() ? dup(fds[attempt]) : -1;
  }
  const std::vector<int> fds;
  uint64_t asked = 0;
};

// What looking for a content in these says.
std::string look(const std::vector<int>& fds, const std::string& content) {
  Agent agent(fds);
  RemoteStores stores(kSeed, agent);
  std::string problem = "of the one before";
  const std::byte* const found = stores.content(wanted(content), &problem);
  if (!found) return problem;
  return {reinterpret_cast<const char*>(found), content.size()};
}

TEST(a_content_is_found_wherever_the_store_has_it) {
  const Member member;
  member.publish(1, "before");
  CHECK(member.store->lend_more(9, {{0, 4, digest_of("lent"), member.filled("lent")}}));
  member.publish(2, "current");
  member.write(3, "waiting");
  for (const char* content : {"current", "lent", "waiting"})
    CHECK_EQ(look({member.object.fd}, content), content);
  CHECK_EQ(look({member.object.fd}, "another"), "no table of it names such a content");
}

// Without a look at it: the caller compares digests.
TEST(a_content_is_likely_to_be_where_the_table_of_its_owner_says) {
  const Member member, other;
  member.publish(1, "current");
  other.publish(1, "elsewhere");
  Agent agent({member.object.fd, other.object.fd});
  RemoteStores stores(kSeed, agent);
  const std::byte* const there = stores.likely_content(wanted("current"));
  CHECK(there && !std::memcmp(there, "current", 7));
  const ring::ManifestBlock& block = member.store->committed().blocks[0];
  *member.store->at(block.heap_offset) ^= std::byte{1};
  CHECK_EQ(stores.likely_content(wanted("current")), there);
  CHECK(!stores.likely_content(wanted("elsewhere")));
  CHECK_EQ(agent.asked, 1u);
  ring::ManifestBlock larger = wanted("current");
  larger.bytes = member.store->header().heap_bytes + 1;
  CHECK(!stores.likely_content(larger));
  Agent none({});
  CHECK(!RemoteStores(kSeed, none).likely_content(wanted("current")));
}

TEST(a_content_is_likely_to_be_at_the_end_of_the_heap_and_not_behind_it) {
  const Member member;
  const uint64_t last = member.store->header().heap_bytes - 8;
  member.forge({{1, 8, digest_of("current"), last}});
  Agent agent({member.object.fd});
  RemoteStores stores(kSeed, agent);
  ring::ManifestBlock block = wanted("current");
  block.bytes = 8;
  const std::byte* const there = stores.likely_content(block);
  CHECK(there != nullptr);
  *member.store->at(last) = std::byte{42};
  CHECK(there && *there == std::byte{42});
  block.bytes = 9;
  CHECK(!stores.likely_content(block));
}

TEST(a_table_that_is_damaged_names_nothing) {
  const Member member;
  member.forge({{1, 3, digest_of("one"), member.filled("one")}});
  CHECK_EQ(look({member.object.fd}, "one"), "one");
  const uint64_t table = member.store->header().manifest_offset[0] + sizeof(ring::Manifest);
  member.object.at[table] ^= std::byte{1};  // another address on the device
  CHECK_EQ(look({member.object.fd}, "one"), "no table of it names such a content");
}

TEST(a_store_is_asked_for_once_and_let_go) {
  const auto held = [] {
    std::ifstream maps("/proc/self/maps");
    uint64_t count = 0;
    for (std::string line; std::getline(maps, line);)
      count += line.find("memfd:store") != std::string::npos;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd"))
      count += 1000 * fd.exists();
    return count;
  };
  const Member member;
  member.publish(1, "one");
  const uint64_t before = held();
  {
    Agent agent({member.object.fd});
    RemoteStores stores(kSeed, agent);
    std::string problem;
    for (int i = 0; i < 3; ++i) CHECK(stores.content(wanted("one"), &problem) != nullptr);
    CHECK_EQ(agent.asked, 1u);
    CHECK_EQ(held(), before + 1);  // it is mapped
    for (int i = 0; i < 3; ++i) CHECK(stores.content(wanted("other"), &problem) == nullptr);
    CHECK_EQ(agent.asked, 2u);
  }
  CHECK_EQ(held(), before);
}

// A process without standard input.
TEST(any_descriptor_is_one) {
  const Member member;
  member.publish(1, "one");
  const int input = dup(0);
  close(0);
  CHECK_EQ(look({member.object.fd}, "one"), "one");
  if (input >= 0) dup2(input, 0), close(input);
}

TEST(a_store_that_cannot_be_used_is_named) {
  const Member other_job(kSeed + 1);
  CHECK_EQ(look({}, "one"), "the agent has no such store");
  CHECK_EQ(look({other_job.object.fd}, "one"), "it is of another job");
  const Object small(100), page(ring::kPageBytes);
  CHECK_EQ(look({small.fd}, "one"), "it is too small");
  CHECK_EQ(look({page.fd}, "one"), "the store has magic number [0]");
  const Member member;
  const UniqueFd only_written(
      open(("/proc/self/fd/" + std::to_string(member.object.fd)).c_str(), O_WRONLY | O_CLOEXEC));
  CHECK_EQ(look({only_written.get()}, "one"), "its [2] MB cannot be mapped: Permission denied");
}

TEST(a_content_is_looked_for_in_all_stores_that_may_have_it) {
  const Member without, with, damaged, other_job(kSeed + 1);
  const Object small(100);
  without.publish(1, "other");
  with.publish(1, "one");
  damaged.publish(1, "one");
  damaged.store->header().version = 99;
  const int found = with.object.fd;
  CHECK_EQ(look({without.object.fd, found}, "one"), "one");
  for (const int useless : {damaged.object.fd, other_job.object.fd, small.fd})
    CHECK_EQ(look({useless, found}, "one"), "one");
  // What is said is what is wrong with the one that should have it.
  CHECK_EQ(look({small.fd, without.object.fd}, "one"), "it is too small");
  CHECK_EQ(look({without.object.fd, small.fd}, "one"), "no table of it names such a content");
}

TEST(an_agent_that_has_always_another_store_is_left) {
  const Object small(100);
  Agent agent(std::vector<int>(2000, small.fd));
  RemoteStores stores(kSeed, agent);
  std::string problem;
  CHECK(stores.content(wanted("one"), &problem) == nullptr);
  CHECK_EQ(agent.asked, 1024u);
}

TEST(what_has_been_overwritten_is_not_believed) {
  const Member member;
  member.publish(1, "one");
  *member.store->at(member.store->committed().blocks[0].heap_offset) = std::byte{'x'};
  CHECK_EQ(look({member.object.fd}, "one"), "it has been overwritten");
  // In one of its places.
  const Member both;
  const uint64_t first = both.filled("one"), second = both.filled("one");
  for (const uint64_t damaged : {first, second}) {
    both.forge({{1, 3, digest_of("one"), first}, {2, 3, digest_of("one"), second}});
    *both.store->at(damaged) = std::byte{'x'};
    CHECK_EQ(look({both.object.fd}, "one"), "one");
    *both.store->at(damaged) = std::byte{'o'};
  }
}

TEST(nothing_is_looked_at_beyond_the_heap) {
  const Member member;
  const uint64_t heap = member.store->header().heap_bytes;
  const std::string page(ring::kPageBytes, 'p');
  std::memcpy(member.store->at(heap - page.size()), page.data(), page.size());
  member.forge({{1, page.size(), digest_of(page), heap - page.size()}});
  CHECK_EQ(look({member.object.fd}, page), page);  // at its end
  const char* const none = "no table of it names such a content";
  for (const ring::ManifestBlock& block :
       std::vector<ring::ManifestBlock>{{1, 5, digest_of(page), heap - 4},
                                        {1, heap + 1, digest_of(page), 0},
                                        {1, 0, digest_of(page), heap},
                                        {1, 5, digest_of(page), heap + 5},
                                        {1, 5, digest_of(page), ring::kElsewhere + 1}}) {
    member.forge({block});
    CHECK_EQ(look({member.object.fd}, page), none);
  }
  // The table says that it is shorter than what is wanted.
  const uint64_t shorter = heap - page.size();
  std::memcpy(member.store->at(shorter - 8), page.data(), page.size());
  member.forge({{1, 5, digest_of(page), shorter - 8}});
  CHECK_EQ(look({member.object.fd}, page), page);
  member.store->header().heap_bytes = shorter;  // and its end lies beyond the heap
  CHECK_EQ(look({member.object.fd}, page), "it has been overwritten");
}

}  // namespace

CHECK_MAIN
