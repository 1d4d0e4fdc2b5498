// What goes to other ranks waits for the comparison of the last cut: how long, and what does not.
#include "check.h"
#include "checkpoint/waiting.h"

namespace {

using namespace checkpoint_test;  // NOLINT: a test

TEST(output_waits_for_the_comparison) {
  Waiting rank;
  CHECK(!rank.waits.commit_output());  // of nothing
  rank.figures().taken_step = 1;
  rank.wait(1);
  rank.at(3, [&] { rank.agreed = 1; });
  CHECK(rank.waits.commit_output());
  CHECK_EQ(rank.turns, 3u);
  CHECK(!rank.participant.holds_output());
  CHECK(!rank.waits.commit_output());  // it has waited already
  CHECK_EQ(rank.turns, 3u);
}

TEST(a_replay_and_ranks_with_one_line_hold_no_output) {
  for (const bool replays : {false, true}) {
    Waiting rank;
    rank.wait(1);
    if (replays) rank.recovery.set_replaying(true);
    if (!replays) rank.coordinate();
    CHECK(!rank.waits.commit_output());
    CHECK_EQ(rank.turns, 0u);
    CHECK(rank.participant.holds_output());
  }
}

TEST(output_is_held_where_a_difference_was_found_or_the_agent_is_behind) {
  for (const bool disputed : {false, true}) {
    Waiting rank(0);
    rank.figures().taken_step = disputed ? 2 : 1;
    rank.figures().disputed_step = disputed ? 2 : 1;
    rank.wait(2);
    rank.at(3, [&] { rank.agreed = 2; });
    CHECK(rank.waits.commit_output());
    CHECK_EQ(rank.turns, 3u);
  }
  Waiting other(0);  // nothing of that: as long as is allowed
  other.figures().taken_step = 2;
  other.figures().disputed_step = 1;
  other.wait(2);
  CHECK(other.waits.commit_output());
  CHECK_EQ(other.turns, 0u);
  CHECK(!other.participant.holds_output());
}

TEST(output_is_not_held_beyond_the_limit) {
  Waiting rank;
  rank.options.hold_limit_ns = 0;
  rank.figures().disputed_step = 1;
  rank.wait(1);
  CHECK(rank.waits.commit_output());
  CHECK_EQ(rank.turns, 0u);
}

TEST(the_time_counts_from_when_the_agent_knows_of_the_cut) {
  Waiting rank(kShort);
  rank.figures().taken_step = 1;
  rank.figures().taken_ns = ring::now_ns() + kLong;
  rank.wait(1);
  rank.at(100, [&] { rank.agreed = 1; });
  CHECK(rank.waits.commit_output());
  CHECK_EQ(rank.turns, 100u);
}

TEST(output_is_held_for_a_shorter_time_after_it_was_held_in_vain) {
  Waiting rank(40'000'000'000);
  rank.figures().taken_step = 100;
  for (uint64_t cut = 1; cut <= 10; ++cut) {
    rank.options.hold_limit_ns = 0;
    rank.wait(cut);
    CHECK(rank.waits.commit_output());
    rank.do_one({checkpoint::CutAction::Do::kPromote, cut});
  }
  rank.options.hold_limit_ns = kLimit;
  rank.wait(11);
  CHECK(rank.waits.commit_output());  // after 40 ms
  CHECK(!rank.participant.holds_output());
}

TEST(without_client_or_agent_output_is_not_given_away) {
  Waiting rank;
  rank.figures().taken_step = 1;
  rank.wait(1);
  rank.at(2, [&] { rank.alive.status = ring::WaitStatus::kEnding; });
  CHECK(!rank.waits.commit_output());
  CHECK_EQ(rank.turns, 2u);
  CHECK(rank.participant.holds_output());
}

}  // namespace

CHECK_MAIN
