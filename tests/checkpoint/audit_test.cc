// What an audit compares, and what it says of it: without a server and without a GPU.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "checkpoint/replay/journal.h"
#include "checkpoint/snapshot/audit.h"
#include "checkpoint/store/store.h"
#include "ring/channel.h"

namespace {

using namespace pyft;  // NOLINT: a test
using checkpoint::DigestKey;
using checkpoint::Findings;
using checkpoint::StoredSnapshot;

const DigestKey kKey(77);

// Memory of the test, at its own addresses.
struct Memory : checkpoint::DeviceMemory {
  std::vector<std::byte> bytes = std::vector<std::byte>(4096);
  bool views() const override { return true; }
  const std::byte* view(uint64_t address, uint64_t count) override {
    return address + count <= bytes.size() ? bytes.data() + address : nullptr;
  }
  int read(const checkpoint::NextRange&, const checkpoint::TakePiece&) override { return 1; }
  int write(const checkpoint::NextContent&) override { return 1; }
  ring::ManifestBlock block(uint64_t address, uint64_t count) const {
    return {address, count, checkpoint::digest(bytes.data() + address, count, kKey), 0};
  }
};

TEST(ranges_that_touch_are_one) {
  checkpoint::Ranges ranges;
  ranges.add(100, 50);
  ranges.add(200, 50);
  CHECK(ranges.contains(100, 50) && ranges.contains(120, 30) && ranges.contains(200, 1));
  CHECK(!ranges.contains(120, 31) && !ranges.contains(99, 2) && !ranges.contains(150, 1));
  CHECK(!ranges.contains(0, 1) && !ranges.contains(250, 1));
  ranges.add(150, 50);
  CHECK(ranges.contains(100, 150) && !ranges.contains(100, 151));
  ranges.add(90, 300);
  CHECK(ranges.contains(90, 300) && ranges.contains(240, 150));
}

TEST(equal_contents_differ_in_nothing) {
  Memory memory;
  StoredSnapshot from, cut;
  from.blocks = {memory.block(0, 512)};
  memory.bytes[600] = std::byte{1};
  cut.blocks = {memory.block(0, 512), memory.block(512, 512)};
  Findings findings(kKey);
  CHECK_EQ(findings.compare(from, cut, memory), "");
  CHECK_EQ(findings.differing(), 0u);
  CHECK_EQ(findings.fresh(), 0u);
  CHECK_EQ(findings.bytes(), 1024u);
  CHECK(findings.evidence() == ring::Digest{});
}

// One flipped bit, in a block of which all was live before, though in other blocks.
TEST(a_bit_that_differs_is_found_and_named) {
  Memory memory;
  StoredSnapshot from, cut;
  from.blocks = {memory.block(0, 256), memory.block(256, 256)};
  cut.blocks = {memory.block(128, 256)};
  memory.bytes[300] = std::byte{8};
  Findings findings(kKey), again(kKey), other(kKey);
  CHECK_EQ(findings.compare(from, cut, memory), "");
  CHECK_EQ(findings.differing(), 1u);
  CHECK(findings.first().find("[256] bytes at [0x80]") != std::string::npos);
  CHECK_EQ(again.compare(from, cut, memory), "");
  CHECK(findings.evidence() == again.evidence());
  memory.bytes[300] = std::byte{9};
  CHECK_EQ(other.compare(from, cut, memory), "");
  CHECK(!(findings.evidence() == other.evidence()));
}

// A block that was allocated since may have bytes that nothing has written.
TEST(a_fresh_block_that_differs_is_counted_only) {
  Memory memory;
  StoredSnapshot from, cut;
  from.blocks = {memory.block(0, 256)};
  cut.blocks = {memory.block(0, 256), memory.block(192, 128)};
  memory.bytes[300] = std::byte{8};
  Findings findings(kKey);
  CHECK_EQ(findings.compare(from, cut, memory), "");
  CHECK_EQ(findings.differing(), 0u);
  CHECK_EQ(findings.fresh(), 1u);
  CHECK_EQ(findings.bytes(), 256u);
}

TEST(values_that_were_told_are_evidence_in_any_order) {
  Findings one(kKey), other(kKey), third(kKey);
  const checkpoint::Difference a{5, 70, "[1] against [2]"}, b{9, 70, "[3] against [4]"};
  one.differs(a), one.differs(b);
  other.differs(b), other.differs(a);
  third.differs(a), third.differs({9, 70, "[3] against [5]"});
  CHECK_EQ(one.differing(), 2u);
  CHECK(one.evidence() == other.evidence());
  ring::Digest sum{};
  for (const std::string text :
       {"entry [5] gives [1] against [2]", "entry [9] gives [3] against [4]"}) {
    const ring::Digest digest = checkpoint::digest(text.data(), text.size(), kKey);
    sum.low += digest.low, sum.high += digest.high;
  }
  CHECK(one.evidence() == sum);
  CHECK(!(one.evidence() == third.evidence()));
  CHECK(one.first().find("entry [5] gives [1]") != std::string::npos);
}

TEST(what_cannot_be_told_is_no_evidence) {
  Findings findings(kKey), other(kKey);
  findings.cannot_tell({5, 70, "[1] against [2]"});
  findings.cannot_tell({9, 70, "[3] against [4]"});
  CHECK_EQ(findings.differing(), 0u);
  CHECK(findings.evidence() == ring::Digest{});
  CHECK(findings.doubt().starts_with("entry [5] gives [1] against [2]: it was told before"));
  findings.differs({9, 70, "[3] against [4]"});
  other.differs({9, 70, "[3] against [4]"});
  CHECK(findings.evidence() == other.evidence());
  CHECK_EQ(other.doubt(), "");
}

TEST(a_block_that_is_not_there_ends_the_audit) {
  Memory memory;
  StoredSnapshot from, cut;
  cut.blocks = {{4096, 64, {}, 0}};
  Findings findings(kKey);
  CHECK(findings.compare(from, cut, memory).find("is not there") != std::string::npos);
}

// ---- what an auditor sees of another one's memory, and what that sees of an auditor ------------

struct Objects {
  ring::ChannelFds fds;
  ring::ChannelSizes sizes;

  Objects() {
    ring::ChannelShape shape;
    shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 64 << 10;
    for (UniqueFd* fd : {&fds.log, &fds.control, &fds.bounce, &fds.store})
      fd->reset(memfd_create("audit", MFD_CLOEXEC));
    CHECK_EQ(ring::format_channel(fds.log.get(), fds.control.get(), fds.bounce.get(), shape), 0);
    sizes = {ring::log_object_bytes(shape), ring::kControlBytes, shape.bounce_bytes, 0, 8 << 20};
    CHECK_EQ(ftruncate(fds.store.get(), static_cast<off_t>(sizes.store)), 0);
  }
  // `flags` of the descriptors that it gets.
  std::unique_ptr<ring::Channel> map(ring::Role role, int flags) const {
    const auto reopened = [flags](const UniqueFd& fd) {
      return UniqueFd(open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), flags));
    };
    ring::ChannelFds mine;
    mine.log = reopened(fds.log), mine.control = reopened(fds.control);
    mine.bounce = reopened(fds.bounce), mine.store = reopened(fds.store);
    std::string error;
    auto channel = ring::Channel::map(role, 0, std::move(mine), sizes, &error);
    CHECK_EQ(error, "");
    return channel;
  }
};

checkpoint::StoreShape small() {
  checkpoint::StoreShape shape;
  shape.manifest_bytes = shape.shares_bytes = 64 << 10;
  shape.journal_bytes = 256 << 10;
  shape.records_bytes = 64 << 10;
  return shape;
}

TEST(nothing_that_an_auditor_writes_is_seen) {
  Objects objects;
  const auto server = objects.map(ring::Role::kServer, O_RDWR);
  const auto auditor = objects.map(ring::Role::kAuditor, O_RDONLY);
  auditor->control().consumed = 99;
  auditor->bounce()[5] = std::byte{1};
  auditor->store()[5000] = std::byte{1};
  CHECK_EQ(server->control().consumed.load(), 0u);
  CHECK(server->bounce()[5] == std::byte{});
  CHECK(server->store()[5000] == std::byte{});
  // Nor does it see what happens to the page meanwhile.
  server->control().decided_cut = 7;
  CHECK_EQ(auditor->control().decided_cut.load(), 0u);
}

TEST(an_auditor_reads_the_store_of_a_server_that_works) {
  Objects objects;
  const auto server = objects.map(ring::Role::kServer, O_RDWR);
  std::string error;
  const auto store = checkpoint::Store::open(server->store(), objects.sizes.store,
                                             server->store_fd(), small(), &error);
  CHECK_EQ(error, "");
  const char text[] = "contents";
  const auto content = checkpoint::digest(reinterpret_cast<const std::byte*>(text), sizeof text,
                                          store->digest_key());
  const auto add = [&](uint64_t cut) {
    const uint64_t room = store->reserve(sizeof text);
    std::memcpy(store->at(room), text, sizeof text);
    store->add_stored(64, sizeof text, content, room);
    ring::Manifest manifest{};
    manifest.cut = manifest.seq = cut;
    CHECK(store->write(manifest, {}));
  };
  add(1);
  store->promote();
  add(2);  // waits
  const auto auditor = objects.map(ring::Role::kAuditor, O_RDONLY);
  const auto seen = checkpoint::Store::look_at(auditor->store(), objects.sizes.store,
                                               auditor->store_fd(), &error);
  CHECK_EQ(error, "");
  CHECK(seen && seen->has_committed() && seen->unfinished());
  if (!seen || !seen->unfinished()) return;
  CHECK_EQ(seen->committed().manifest.cut, 1u);
  CHECK_EQ(seen->unfinished()->manifest.cut, 2u);
  CHECK_EQ(std::memcmp(seen->find(seen->committed().blocks[0]), text, sizeof text), 0);
  CHECK(!checkpoint::Store::look_at(auditor->store(), 16, auditor->store_fd(), &error));
  CHECK(error.find("too small") != std::string::npos);
}

// ---- results of collectives, in the journal -----------------------------------------------------

TEST(results_of_collectives_take_no_more_than_half_of_the_journal) {
  Objects objects;
  const auto server = objects.map(ring::Role::kServer, O_RDWR);
  std::string error;
  const auto store = checkpoint::Store::open(server->store(), objects.sizes.store,
                                             server->store_fd(), small(), &error);
  CHECK_EQ(error, "");
  const uint64_t area = small().journal_bytes;
  checkpoint::Journal journal(*server);
  CHECK_EQ(journal.adopt(), "");
  CHECK(journal.keep(3, area / 8));
  ring::JournalRecord* const record = journal.keep(4, 100);
  CHECK(record);
  record->filled = 1;
  CHECK(!journal.keep(5, area / 4));
  CHECK(!journal.keep(6, area * 2));
  CHECK(!journal.lacks());  // a recovery does not need it
  CHECK(journal.add(7, 0, ring::JournalKind::kSource, area / 4, area / 4));
  // The next server of the rank makes it again, in the same place.
  checkpoint::Journal next(*server);
  CHECK_EQ(next.adopt(), "");
  CHECK(next.find(4, 0, ring::JournalKind::kCollective) == record);
  CHECK(next.keep(4, 100) == record);
  CHECK_EQ(record->filled.load(), 0u);
}

TEST(a_result_for_which_there_is_no_memory_is_not_lost) {
  Objects objects;
  const auto server = objects.map(ring::Role::kServer, O_RDWR);
  std::string error;
  const auto store = checkpoint::Store::open(server->store(), objects.sizes.store,
                                             server->store_fd(), small(), &error);
  CHECK_EQ(error, "");
  const auto auditor = objects.map(ring::Role::kAuditor, O_RDONLY);  // which gets none
  checkpoint::Journal journal(*auditor);
  CHECK_EQ(journal.adopt(), "");
  CHECK(!journal.keep(3, 100));
  CHECK(!journal.lacks());
}

}  // namespace

CHECK_MAIN
