// Where all ranks have to hold the same cut: how long one that needs room, or has come to the next
// step, waits for the one before.
#include "check.h"
#include "checkpoint/waiting.h"

namespace {

using namespace checkpoint_test;  // NOLINT: a test

// ---- a client that has no room -----------------------------------------------------------------

TEST(a_line_that_comes_in_time_makes_room) {
  Waiting rank;
  rank.coordinate();
  rank.backoff.waited(true);
  rank.wait(1);
  rank.at(3, [&] { rank.agreed = 1; });
  CHECK(!rank.await_line());  // no other one is needed
  CHECK_EQ(rank.committed(), 1u);
  CHECK(!rank.has_asked());
  CHECK_EQ(rank.backoff.decision_ns(), kLong);
}

TEST(where_there_is_no_line_another_one_may_be) {
  Waiting silent(kShort), aborts(kShort), commits(kShort);
  aborts.fake.calls.request_decision = [&](uint64_t name) { aborts.aborted = name; };
  commits.fake.calls.request_decision = [&](uint64_t name) { commits.agreed = name; };
  for (Waiting* rank : {&silent, &aborts, &commits}) {
    rank->coordinate();
    rank->wait(1);
    CHECK_EQ(rank->await_line(), rank != &commits);
    CHECK_EQ(rank->backoff.decision_ns(), kShort / 2);
  }
  CHECK(silent.has_asked());
  CHECK(silent.participant.waits());
  CHECK_EQ(silent.page().decided_cut.load(), 0u);
  CHECK(!aborts.participant.waits());
  CHECK_EQ(commits.committed(), 1u);
}

TEST(a_replay_that_begins_meanwhile_ends_waiting_for_a_line) {
  Waiting rank(kSecond);
  rank.coordinate();
  rank.wait(1);
  rank.at(1, [&] { rank.recovery.set_replaying(true); });
  rank.await_line();
  CHECK_EQ(rank.backoff.decision_ns(), kSecond);  // it was not in vain
}

// ---- a step's cut that is due ------------------------------------------------------------------

TEST(a_replay_makes_no_way) {
  Waiting rank;
  rank.coordinate();
  rank.wait(1, true);
  rank.recovery.set_replaying(true);
  rank.make_way();
  CHECK(!rank.has_asked());
  CHECK_EQ(rank.turns, 0u);
}

TEST(a_step_waits_for_the_auditor_of_the_one_before) {
  Waiting rank;
  rank.coordinate();
  rank.options.audits = true;
  rank.options.audit_wait_ns = kLong;
  rank.backoff.waited(true);
  rank.wait(1, true);
  rank.at(3, [&] { rank.agreed = 1; });
  rank.make_way();
  CHECK_EQ(rank.committed(), 1u);
  CHECK(!rank.has_asked());
  CHECK_EQ(rank.backoff.decision_ns(), kLong / 2);  // which says nothing of other ranks
  rank.options.audit_wait_ns = kSecond;
  rank.wait(2);
  rank.turns = 0;
  rank.at(1, [&] { rank.recovery.set_replaying(true); });
  rank.make_way();
  CHECK_EQ(rank.turns, 1u);
}

TEST(a_cut_for_want_of_space_is_decided_at_once) {
  Waiting rank;
  rank.coordinate();
  rank.wait(1, true);
  rank.make_way();
  CHECK(rank.has_asked());
}

TEST(a_step_waits_as_long_as_others_may_copy) {
  Waiting rank(1024);
  rank.coordinate();
  rank.backoff.snapshot_took(10'000'000'000);
  rank.wait(1);
  rank.at(3, [&] { rank.agreed = 1; });
  rank.make_way();
  CHECK_EQ(rank.committed(), 1u);
  CHECK(!rank.has_asked());
}

}  // namespace

CHECK_MAIN
