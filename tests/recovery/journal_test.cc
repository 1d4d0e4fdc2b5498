// The journal's room: what is said when it fills, and how protection comes back when it was full.
#include <unistd.h>

#include <cstring>

#include "check.h"
#include "checkpoint/resources/objects.h"
#include "recovery/server.h"

namespace {

using namespace recovery_test;  // NOLINT: a test

using checkpoint::Journal;
using ring::JournalKind;

constexpr uint64_t kArea = kSmall.journal_bytes;

// A channel whose server has a store.
struct WithStore : Bench {
  WithStore() {
    std::string error;
    object.open(&error);
    CHECK_EQ(error, "");
    ring::ChannelFds fds = channel->dup_fds();
    fds.store = UniqueFd(dup(object.fd));
    ring::ChannelSizes sizes = channel->sizes();
    sizes.pinned = 0;
    sizes.store = object.bytes;
    server_side = ring::Channel::map(ring::Role::kServer, 0, std::move(fds), sizes, &error);
    CHECK_EQ(error, "");
  }
  ring::StoreHeader& header() const { return *reinterpret_cast<ring::StoreHeader*>(object.at); }
  uint32_t wanted() const { return channel->control().cuts_wanted; }
  std::unique_ptr<ring::Channel> server_side;
};

bool add(Journal& journal, uint64_t seq, uint64_t bytes) {
  return journal.add(seq, 0, JournalKind::kSource, bytes, bytes) != nullptr;
}

TEST(a_journal_that_fills_asks_for_a_snapshot_once) {
  WithStore bench;
  Journal journal(*bench.server_side);
  CHECK_EQ(journal.adopt(), "");
  const uint64_t piece = kArea / 20 / 64 * 64 - 64;  // with its header
  uint64_t seq = 1;
  for (; seq <= 16; ++seq) CHECK(add(journal, seq, piece));
  CHECK_EQ(bench.wanted(), 0u);
  for (; seq <= 19; ++seq) CHECK(add(journal, seq, piece));
  CHECK_EQ(bench.wanted(), 1u);
  CHECK_EQ(bench.header().journal_lost.load(), 0u);
  journal.release_before(seq);
  CHECK_EQ(journal.used(), 0u);
  // The next time.
  for (uint64_t last = seq + 18; seq < last; ++seq) CHECK(add(journal, seq, piece));
  CHECK_EQ(bench.wanted(), 2u);
  CHECK(!journal.lacks());
}

TEST(what_is_lost_is_shown_until_a_snapshot_has_been_made_behind_it) {
  WithStore bench;
  Journal journal(*bench.server_side);
  CHECK(add(journal, 5, kArea / 2));
  CHECK(!add(journal, 7, kArea / 2));
  const ring::ControlPage& page = bench.channel->control();
  CHECK_EQ(page.journal_lost.load(), 7u);
  CHECK_EQ(bench.header().journal_losses.load(), 1u);
  CHECK_EQ(bench.wanted(), 1u);
  CHECK(!journal.lost(6) && journal.lost(7) && journal.lacks());
  CHECK(!add(journal, 8, kArea / 2));
  CHECK_EQ(bench.header().journal_losses.load(), 1u);
  CHECK_EQ(bench.wanted(), 1u);  // no more than once a second
  journal.release_before(7);     // a snapshot of before
  CHECK_EQ(page.journal_lost.load(), 7u);
  journal.release_before(9);
  CHECK_EQ(page.journal_lost.load(), 0u);
  CHECK(!journal.lacks());
  CHECK(!add(journal, 10, 2 * kArea));
  CHECK_EQ(page.journal_lost.load(), 10u);
  CHECK_EQ(bench.header().journal_losses.load(), 2u);
  CHECK_EQ(bench.wanted(), 2u);
}

// Until a cut is decided nothing before it is free, so that entries behind it find no room either.
TEST(what_is_lost_behind_a_cut_stays_lost_when_that_is_snapshotted) {
  WithStore bench;
  Journal journal(*bench.server_side);
  CHECK(add(journal, 5, kArea / 2));
  CHECK(!add(journal, 7, kArea / 2));
  for (const uint64_t behind : {12u, 14u}) CHECK(!add(journal, behind, kArea / 2));
  const uint32_t wanted = bench.wanted();
  journal.release_before(10);
  const ring::ControlPage& page = bench.channel->control();
  CHECK_EQ(page.journal_lost.load(), 12u);
  CHECK(!journal.lost(11) && journal.lost(12) && journal.lacks());
  CHECK_EQ(bench.wanted(), wanted + 1);
  journal.release_before(13);
  CHECK_EQ(page.journal_lost.load(), 14u);
  journal.release_before(15);
  CHECK(!journal.lacks());
  CHECK_EQ(page.journal_lost.load(), 0u);
}

// More of them than are known one by one: what lies in between counts as lost.
TEST(many_losses_are_none_too_few) {
  WithStore bench;
  Journal journal(*bench.server_side);
  for (uint64_t seq = 1; seq <= 10'000; seq += 2) CHECK(!add(journal, seq, 2 * kArea));
  journal.release_before(9'500);
  CHECK(!journal.lost(9'499) && journal.lost(9'501));
  journal.release_before(10'001);
  CHECK(!journal.lacks());
}

// The next server finds what the one before could not keep.
TEST(a_loss_outlives_its_server) {
  WithStore bench;
  CHECK(!add(*std::make_unique<Journal>(*bench.server_side), 3, 2 * kArea));
  Journal next(*bench.server_side);
  CHECK_EQ(next.adopt(), "");
  CHECK(next.lost(3));
}

TEST(snapshots_come_as_often_as_the_journal_needs_it) {
  WithStore bench;
  bench.memory.allocate(10'000, 1);
  Server server(*bench.server_side, bench.object, bench.memory, true);
  server.restart(checkpoint::SnapshotOptions{50'000'000, 16});
  const auto& every = bench.channel->control().cut_every;  // what the client goes by
  Journal& journal = server.recovery.journal();
  CHECK(server.cut(1));
  uint64_t snapshotted = 1;
  for (uint64_t cut = 2; cut <= 64; ++cut) {
    for (int i = 0; i < 10; ++i) CHECK(add(journal, (cut - 1) * 10 + 5, kArea / 64));  // a step's
    if (server.cut(cut)) snapshotted = cut;
    CHECK(cut - snapshotted <= 2);  // a third of the journal, and what one more step reads
  }
  CHECK(every.load() <= 2u);
  CHECK_EQ(bench.header().journal_lost.load(), 0u);
  CHECK_EQ(bench.header().journal_losses.load(), 0u);
}

TEST(after_a_loss_each_step_comes_nearer_to_a_snapshot) {
  WithStore bench;
  bench.memory.allocate(10'000, 1);
  Server server(*bench.server_side, bench.object, bench.memory, true);
  server.restart(checkpoint::SnapshotOptions{50'000'000, 64});
  CHECK(server.cut(1));
  CHECK(!add(server.recovery.journal(), 15, 2 * kArea));
  // The forced cut that the client makes when it is asked.
  CHECK_EQ(bench.wanted(), 1u);
  CHECK(server.cut(2, {}, true));
  CHECK_EQ(bench.channel->control().journal_lost.load(), 0u);
  // One that cannot be snapshotted: the next steps are.
  CHECK(!add(server.recovery.journal(), 25, 2 * kArea));
  bench.memory.capturing = true;
  CHECK(!server.cut(3, {}, true));
  bench.memory.capturing = false;
  uint64_t cut = 4;
  while (cut < 20 && !server.cut(cut)) ++cut;
  CHECK(cut < 12);
  CHECK_EQ(bench.channel->control().journal_lost.load(), 0u);
}

TEST(what_lies_before_a_snapshot_is_not_kept) {
  WithStore bench;
  bench.memory.allocate(10'000, 1);
  Server server(*bench.server_side, bench.object, bench.memory, true);
  Journal& journal = server.recovery.journal();
  CHECK(server.cut(1));
  CHECK(add(journal, 15, kArea / 64));
  server.snapshotter->gate();
  CHECK(journal.used() > 0);  // since the cut
  bench.memory.capturing = true;
  CHECK(!server.cut(2));
  bench.memory.capturing = false;
  server.snapshotter->gate();
  CHECK(journal.used() > 0);
  CHECK(server.cut(3));
  server.snapshotter->gate();
  CHECK_EQ(journal.used(), 0u);
}

struct NoObjects : checkpoint::ObjectMaker {
  std::string execute(const ring::EntryHeader&, std::span<const std::byte>,
                      std::span<const std::byte>) override {
    return {};
  }
  bool failed() override { return false; }
  bool imports(const ring::EntryHeader&) const override { return false; }
};

TEST(a_restore_without_all_objects_is_refused) {
  Bench bench;
  bench.memory.allocate(10'000, 1);
  Server server(*bench.channel, bench.object, bench.memory, true);
  CHECK(server.cut(1));
  NoObjects none;
  bench.channel->log().objects_missing = 3;
  checkpoint::Restored restored =
      checkpoint::restore_objects(server.channel, *server.store, server.fake, server.fake, none);
  CHECK(restored.error.find("the object log lacks [3] objects") == 0);
  CHECK(restored.error.find("PYFT_OBJECT_LOG_MB") != std::string::npos);
  bench.channel->log().objects_missing = 0;
  restored =
      checkpoint::restore_objects(server.channel, *server.store, server.fake, server.fake, none);
  CHECK(restored.error.find("object log") == std::string::npos);
}

}  // namespace

CHECK_MAIN
