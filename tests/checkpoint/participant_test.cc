// What a rank does in the two-phase commit of cuts: which are told, which threads are woken, what
// is counted.
#include "checkpoint/snapshot/participant.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "checkpoint/rank.h"

namespace {

using namespace checkpoint_test;  // NOLINT: a test
using Do = checkpoint::CutAction::Do;

TEST(the_agent_is_told_what_the_machine_says_and_nothing_is_counted) {
  Rank rank;
  rank.hash(3);
  const uint64_t table = rank.store->waiting_offset();
  rank.do_one({Do::kPrepare, 3});
  rank.do_one({Do::kAsk, 3});
  rank.do_one({Do::kPass, 4});
  const std::vector<std::vector<uint64_t>> wanted = {{3, table, 30}, {3, 30}, {3}, {4, 0, 0}};
  CHECK(rank.said == wanted);
  rank.do_one({Do::kWait, 3});
  rank.do_one({Do::kRelease, 30});
  rank.do_one({Do::kDecide, 3});
  rank.do_one({Do::kDrop, 3});
  rank.hash(5);
  rank.do_one({Do::kPromote, 5});
  CHECK_EQ(rank.figures().skipped.load(), 0u);
  CHECK_EQ(rank.figures().cancelled.load(), 0u);
  CHECK_EQ(rank.figures().compared_cuts.load(), 0u);  // it has not waited
  rank.do_one({Do::kSkip, 6});
  CHECK_EQ(rank.figures().skipped.load(), 1u);
  CHECK_EQ(rank.figures().cancelled.load(), 0u);
  rank.do_one({Do::kCancel, 7});
  CHECK_EQ(rank.figures().skipped.load(), 1u);
  CHECK_EQ(rank.figures().cancelled.load(), 1u);
}

TEST(a_cut_that_becomes_the_committed_snapshot_is_known_to_all) {
  Rank rank;
  rank.wait(1);
  CHECK(rank.participant.holds_output());
  CHECK_EQ(rank.store->has_committed(), false);
  rank.agreed = 1;
  rank.do_one({Do::kPromote, 1});
  CHECK_EQ(rank.store->committed().manifest.cut, 1u);
  CHECK(rank.communicators.last == std::pair(uint64_t{1}, uint64_t{10}));
  CHECK_EQ(rank.figures().live_bytes.load(), kBlock);
  CHECK(!rank.participant.waits());
  CHECK(!rank.participant.holds_output());
  CHECK_EQ(rank.figures().compared_cuts.load(), 1u);
  rank.wait(2);
  rank.do_one({Do::kPromote, 2});  // without an answer
  CHECK_EQ(rank.figures().compared_cuts.load(), 1u);
}

TEST(a_cut_that_is_dropped_waits_no_longer) {
  Rank rank(0);
  rank.wait(1, true);
  rank.do_one({Do::kDrop, 1});
  CHECK(!rank.participant.waits());
  CHECK(!rank.store->waiting());
  CHECK(!rank.participant.is_wanted());
}

TEST(the_agent_knows_since_when_it_compares) {
  Rank rank;
  const uint64_t before = ring::now_ns();
  rank.hash(1);
  CHECK(rank.participant.asked_ns() >= before);
  CHECK(rank.participant.asked_ns() <= ring::now_ns());
}

TEST(a_client_without_room_wants_its_cut_once_the_time_is_over) {
  Rank patient, at_once(0), other(0);
  patient.wait(1, true);
  CHECK(!patient.participant.is_wanted());
  at_once.wait(1, true);
  CHECK(at_once.participant.is_wanted());
  CHECK(!at_once.participant.is_wanted());  // which is said once
  other.wait(1);                            // for which none waits
  CHECK(!other.participant.is_wanted());
  at_once.do_one({Do::kDrop, 1});
  at_once.wait(2, true);
  at_once.do_one({Do::kPromote, 2});
  CHECK(!at_once.participant.is_wanted());
}

TEST(other_ranks_are_seldom_looked_at) {
  Rank rank;
  rank.wait(7);
  CHECK(!rank.participant.is_acknowledged());  // a cut that begins to wait is looked at at once
  CHECK_EQ(rank.communicators.looks, 1u);
  CHECK_EQ(rank.communicators.asked, 7u);
  rank.do_one({Do::kWait, 7});
  const uint64_t began = ring::now_ns();
  uint64_t now = began;
  for (; now < began + 300'000; now = ring::now_ns()) CHECK(!rank.participant.is_acknowledged());
  const uint64_t most = 2 + (ring::now_ns() - began) / 1'000'000;
  CHECK(rank.communicators.looks >= 2 && rank.communicators.looks <= most);
  rank.communicators.has_all = true;
  rank.do_one({Do::kWait, 7});
  CHECK(rank.participant.is_acknowledged());
  const uint64_t looks = rank.communicators.looks;
  CHECK(rank.participant.is_acknowledged());  // and it stays so
  CHECK_EQ(rank.communicators.looks, looks);
}

// Whether a thread that sleeps on a word is woken by that.
bool wakes(const std::atomic<uint32_t>& word, const std::function<void()>& act) {
  std::atomic<bool> woken{false};
  std::jthread sleeper([&, seen = word.load()] {
    const uint64_t until = ring::now_ns() + 5'000'000'000;
    ring::futex_wait(word, seen, 5'000'000'000);
    woken = ring::now_ns() < until;
  });
  usleep(20'000);
  act();
  sleeper.join();
  return woken;
}

TEST(who_looks_after_a_cut_that_waits_is_woken) {
  Rank rank;
  rank.hash(1);
  const uint32_t rung = rank.page().doorbell;
  CHECK(wakes(rank.page().doorbell, [&] { rank.do_one({Do::kWait, 1}); }));
  CHECK_EQ(rank.page().doorbell.load(), rung + 1);
  CHECK(rank.participant.waits());
}

TEST(who_waits_for_a_decision_is_woken) {
  Rank rank;
  ring::ControlPage& page = rank.page();
  rank.do_one({Do::kDecide, 4});
  CHECK_EQ(page.decided_futex.load(), 0u);  // none does
  page.decided_waiters = 1;
  CHECK(wakes(page.decided_futex, [&] { rank.do_one({Do::kDecide, 5, true}); }));
  CHECK_EQ(page.decided_futex.load(), 1u);
}

TEST(a_decision_that_comes_again_takes_nothing_back) {
  Rank rank;
  const ring::ControlPage& page = rank.page();
  rank.do_one({Do::kDecide, 5});
  CHECK_EQ(page.decided_cut.load(), 5u);
  CHECK_EQ(page.snapshot_cut.load(), 0u);
  rank.do_one({Do::kDecide, 3, true});
  CHECK_EQ(page.decided_cut.load(), 5u);
  CHECK_EQ(page.snapshot_cut.load(), 3u);
  rank.do_one({Do::kDecide, 8, true});
  CHECK_EQ(page.decided_cut.load(), 8u);
  CHECK_EQ(page.snapshot_cut.load(), 8u);
}

TEST(the_last_committed_snapshot_is_told_if_nobody_knows_it) {
  for (const uint64_t known : {0, 4, 5, 6}) {
    const Bench bench;
    std::string error;
    const auto store = bench.object.open(&error);
    ring::Manifest manifest{};
    manifest.cut = known == 0 ? 0 : 5;
    if (known) CHECK(store->publish(manifest, {}));
    ring::ControlPage& page = bench.channel->control();
    page.snapshot_cut = page.decided_cut = known;
    page.decided_waiters = 1;
    const AlwaysAlive alive;
    checkpoint::Recovery recovery(*bench.channel);
    const checkpoint::Log log{*bench.channel, alive, recovery};
    Fake fake;
    const checkpoint::SnapshotOptions options;
    const checkpoint::Coordination coordination(options, store->header());
    checkpoint::CommitBackoff backoff(0, 0);
    std::optional<checkpoint::PreImages> pre_images;
    checkpoint::CutSchedule schedule(log, *store, fake, fake, coordination, options);
    checkpoint::Participant participant(log, *store, fake, fake, coordination,
                                        {schedule, backoff, pre_images});
    CHECK_EQ(participant.states().last(), manifest.cut);
    participant.tell_last();
    CHECK_EQ(page.snapshot_cut.load(), std::max(known, manifest.cut));
    CHECK_EQ(page.decided_cut.load(), std::max(known, manifest.cut));
    CHECK_EQ(page.decided_futex.load(), known == 4 ? 1u : 0u);
  }
}

// What is written to the log meanwhile.
std::string logged(const std::function<void()>& act) {
  const UniqueFd file(memfd_create("log", MFD_CLOEXEC)), before(dup(2));
  dup2(file.get(), 2);
  act();
  dup2(before.get(), 2);
  std::string text(4096, '\0');
  text.resize(std::max<ssize_t>(0, pread(file.get(), text.data(), text.size(), 0)));
  return text;
}

TEST(why_a_cut_is_not_snapshotted_is_said_once) {
  Rank rank;
  const auto cancel = [&] { rank.do_one({Do::kCancel, 1}, "the streams do not end"); };
  CHECK(logged(cancel).find("a cut is not snapshotted: the streams do not end") !=
        std::string::npos);
  CHECK_EQ(logged(cancel), "");
  CHECK_EQ(rank.figures().cancelled.load(), 2u);
}

TEST(what_lies_in_gpus_only_is_said_once) {
  Rank rank;
  const auto commit = [&](uint64_t cut, uint64_t step, uint64_t elsewhere) {
    rank.hash(cut, false, step, elsewhere);
    return logged([&] { rank.do_one({Do::kPromote, cut}); });
  };
  CHECK_EQ(commit(1, 1, 100), "");  // other ranks' stores have it
  rank.pre_images.emplace(*rank.store, rank.fake.device());
  CHECK_EQ(commit(2, 0, 100), "");  // no other rank has such a cut
  CHECK_EQ(commit(3, 3, 0), "");
  const std::string said = commit(4, 4, 100);
  CHECK(said.find("of [740] bytes at cut [4], [100] are kept in GPUs only") != std::string::npos);
  CHECK_EQ(commit(5, 5, 100), "");
}

}  // namespace

CHECK_MAIN
