// How a rank looks after a cut that waits, and where the next one waits for the decision about it.
#include <vector>

#include "check.h"
#include "checkpoint/bytes_passed.h"
#include "checkpoint/waiting.h"

namespace {

using namespace checkpoint_test;  // NOLINT: a test

// ---- a look ------------------------------------------------------------------------------------

TEST(a_cut_that_the_agent_commits_is_promoted_at_the_next_look) {
  Waiting rank;
  rank.waits.poll();
  rank.wait(1);
  rank.waits.poll();
  CHECK(rank.said.back() == (std::vector<uint64_t>{1, 10}));  // prepared
  CHECK(rank.participant.waits());
  rank.agreed = 1;
  rank.waits.poll();
  CHECK_EQ(rank.committed(), 1u);
  CHECK_EQ(rank.turns, 0u);
}

TEST(what_other_ranks_lack_keeps_a_cut_waiting) {
  Waiting rank(0);
  rank.coordinate();
  rank.communicators.has_all = false;
  rank.wait(1);
  rank.agreed = 1;
  rank.waits.poll();
  CHECK(rank.participant.waits());
  CHECK(!rank.has_asked());
}

TEST(a_cut_that_the_agent_aborts_is_dropped_and_nobody_is_asked) {
  for (const bool replaying : {false, true}) {
    Waiting rank;
    rank.recovery.set_replaying(replaying);
    rank.wait(1);
    rank.aborted = 1;
    rank.waits.poll();
    CHECK(!rank.participant.waits());
    CHECK(!rank.store->waiting());
    CHECK_EQ(rank.communicators.looks, 0u);
  }
}

TEST(a_replay_promotes_nothing_and_asks_nobody) {
  Waiting rank(0);
  rank.coordinate();
  rank.recovery.set_replaying(true);
  rank.wait(1, true);
  rank.participant.states().acknowledge();
  rank.agreed = 1;
  rank.waits.poll();
  CHECK(rank.participant.waits());
  CHECK_EQ(rank.communicators.looks, 0u);
  CHECK(!rank.has_asked());
}

// Its client has no room.
TEST(a_cut_that_is_wanted_is_decided_without_an_answer) {
  for (const bool full : {false, true}) {
    Waiting rank(1024);
    rank.coordinate();
    rank.wait(1, full);
    rank.waits.poll();
    for (const uint64_t began = ring::now_ns(); ring::now_ns() < began + 2000;) continue;
    rank.waits.poll();
    CHECK_EQ(rank.has_asked(), full);
    CHECK(rank.participant.waits());
    CHECK_EQ(rank.page().decided_cut.load(), full ? 1u : 0u);
    CHECK_EQ(rank.figures().cancelled.load(), full ? 1u : 0u);
    CHECK_EQ(rank.backoff.decision_ns(), full ? 512u : 1024u);
  }
}

// ---- the next cut ------------------------------------------------------------------------------

TEST(a_cut_is_undecided_while_the_agent_alone_may_decide) {
  Waiting rank;
  CHECK(!rank.waits.is_undecided());
  rank.wait(1);
  CHECK(rank.waits.is_undecided());
  rank.recovery.set_replaying(true);
  CHECK(!rank.waits.is_undecided());
  rank.recovery.set_replaying(false);
  rank.figures().compares = 2;
  CHECK(!rank.waits.is_undecided());
  Waiting alone;
  alone.rules = {};
  alone.wait(1);
  CHECK(!alone.waits.is_undecided());
}

TEST(a_decision_that_comes_in_time_makes_later_waits_longer) {
  Waiting rank;
  rank.backoff.waited(true);
  rank.wait(1);
  rank.at(3, [&] { rank.agreed = 1; });
  const uint64_t passed = checkpoint::bytes_passed;
  rank.await_decision();
  CHECK_EQ(rank.turns, 3u);
  CHECK_EQ(rank.committed(), 1u);
  CHECK_EQ(rank.backoff.decision_ns(), kLong);
  CHECK_EQ(checkpoint::bytes_passed.load(), passed + 3);  // seen from outside: it does not hang
}

TEST(a_decision_that_does_not_come_makes_later_waits_shorter) {
  Waiting rank(kSecond / 4);
  rank.await_decision();  // there is none to wait for
  CHECK_EQ(rank.backoff.decision_ns(), kSecond / 4);
  rank.wait(1);
  rank.await_decision();
  CHECK(rank.participant.waits());
  CHECK_EQ(rank.backoff.decision_ns(), kSecond / 4 / 2);
  CHECK(rank.turns >= 1);
  CHECK(rank.turns <= kSecond / 4 / 50'000 + 1);  // it sleeps in between
}

TEST(a_replay_that_begins_meanwhile_does_not_end_that) {
  Waiting rank(kShort);
  rank.wait(1);
  rank.at(1, [&] { rank.recovery.set_replaying(true); });
  rank.await_decision();
  CHECK_EQ(rank.backoff.decision_ns(), kShort / 2);
}

TEST(without_client_or_agent_nothing_is_waited_for) {
  for (const bool line : {false, true}) {
    Waiting rank;
    if (line) rank.coordinate();
    rank.wait(1);
    rank.at(2, [&] { rank.alive.status = ring::WaitStatus::kEnding; });
    line ? CHECK(!rank.await_line()) : rank.await_decision();
    CHECK_EQ(rank.turns, 2u);
    CHECK_EQ(rank.backoff.decision_ns(), kLong);
    CHECK(!rank.has_asked());
  }
}

// ---- the agent has to decide -------------------------------------------------------------------

TEST(an_answer_is_waited_for) {
  for (const bool commits : {false, true}) {
    Waiting rank;
    rank.options.answer_ns = kLong;
    rank.wait(1);
    rank.at(3, [&] { (commits ? rank.agreed : rank.aborted) = 1; });
    CHECK(rank.waits.force_decision());
    CHECK(rank.has_asked());
    CHECK_EQ(rank.turns, 3u);
    CHECK_EQ(rank.committed(), commits ? 1u : 0u);
    CHECK(!rank.participant.waits());
  }
}

TEST(an_agent_that_does_not_answer_is_not_waited_for) {
  Waiting rank;
  rank.wait(1);
  CHECK(!rank.waits.force_decision());
  CHECK(rank.participant.waits());
  CHECK_EQ(rank.figures().cancelled.load(), 1u);
  CHECK_EQ(rank.page().decided_cut.load(), 0u);  // no rank waits for this one
}

TEST(what_comes_while_a_cut_waits_is_left_out_unless_the_client_needs_it) {
  Waiting rank;
  CHECK(rank.admit(1, false));
  rank.wait(1);
  CHECK(!rank.admit(2, false));
  CHECK_EQ(rank.committed(), 0u);
  CHECK(rank.admit(2, true));
  CHECK_EQ(rank.committed(), 1u);
  CHECK_EQ(rank.figures().unchecked_cuts.load(), 1u);
  rank.wait(3);
  rank.agreed = 3;
  CHECK(rank.admit(4, true));
  CHECK_EQ(rank.committed(), 3u);
  CHECK_EQ(rank.figures().unchecked_cuts.load(), 1u);  // this one is checked
}

TEST(what_other_ranks_depend_on_is_decided_by_the_agent_alone) {
  Waiting rank;
  rank.figures().shares = 1;
  rank.rules.shares = true;
  rank.wait(1);
  CHECK(!rank.admit(2, true));
  CHECK(rank.has_asked());
  CHECK(rank.participant.waits());
  rank.aborted = 1;
  CHECK(rank.admit(2, true));
}

}  // namespace

CHECK_MAIN
