// How many cuts lie between two snapshots, and whether copies are made behind the program.
#include "checkpoint/snapshot/interval.h"

#include <algorithm>
#include <utility>

#include "check.h"

namespace {

using pyft::checkpoint::Interval;
using pyft::checkpoint::Late;

constexpr double kBudget = 0.5;  // numbers that a double has
constexpr int kNew = 3;          // snapshots into new memory, which do not count

struct Program {
  explicit Program(uint64_t fixed = 0, Late late = Late::kNever, uint64_t period = 100)
      : interval(fixed, kBudget, late), period(period) {
    for (int i = 0; i < kNew; ++i) snapshot(1'000'000);
  }
  // One that costs so much, after so many cuts.
  void snapshot(uint64_t cost, uint64_t cuts = 1) {
    now += period * std::max<uint64_t>(cuts, 1);
    interval.snapshot_taken(cuts, now, cost);
  }
  uint64_t every() const { return interval.every(); }
  Interval interval;
  uint64_t period, now = 5'000;
};

TEST(snapshots_into_new_memory_do_not_count) {
  Program program;
  CHECK_EQ(program.every(), 1u);
  program.snapshot(200);
  CHECK_EQ(program.every(), 4u);
}

TEST(so_many_cuts_lie_between_two_that_the_budget_suffices) {
  for (const auto& [cost, every] :
       {std::pair(0, 1), std::pair(50, 1), std::pair(51, 2), std::pair(100, 2), std::pair(101, 4),
        std::pair(800, 16), std::pair(100'000, 64)}) {
    Program program;
    program.snapshot(cost);
    CHECK_EQ(program.every(), static_cast<uint64_t>(every));
  }
}

TEST(the_time_is_that_of_a_cut) {
  Program program;
  program.snapshot(800, 4);  // 400 have passed
  CHECK_EQ(program.every(), 16u);
  program.snapshot(800, 16);
  CHECK_EQ(program.every(), 16u);
  Program again;
  again.snapshot(100, 0);  // the same cut once more
  CHECK_EQ(again.every(), 2u);
}

// Both numbers are averages.
TEST(one_snapshot_that_costs_little_does_not_count_for_much) {
  Program program;
  program.snapshot(200);
  CHECK_EQ(program.every(), 4u);
  program.snapshot(0);  // 150 on average
  CHECK_EQ(program.every(), 4u);
  program.snapshot(0);  // 112
  program.snapshot(0);  // 84
  CHECK_EQ(program.every(), 2u);
}

TEST(the_unit_of_time_does_not_matter) {
  Program program(0, Late::kNever, 2);
  program.snapshot(1);
  CHECK_EQ(program.every(), 1u);
  program.snapshot(9);  // 3 on average
  CHECK_EQ(program.every(), 4u);
}

TEST(snapshots_come_more_often_only_when_that_is_clear) {
  Program program;
  program.snapshot(56);
  CHECK_EQ(program.every(), 2u);
  program.snapshot(28);  // 49 on average: one of each cut would do
  CHECK_EQ(program.every(), 2u);
  program.snapshot(0);  // 37
  CHECK_EQ(program.every(), 2u);
  program.snapshot(0);  // 28
  CHECK_EQ(program.every(), 1u);
}

TEST(seven_tenths_of_fewer_cuts_are_clear) {
  Program program;
  program.snapshot(52);
  program.snapshot(8);   // 41 on average
  program.snapshot(17);  // 35: seven tenths of what one of each cut may cost
  CHECK_EQ(program.every(), 2u);
  program.snapshot(31);  // 34
  CHECK_EQ(program.every(), 1u);
}

TEST(a_fixed_interval_is_kept) {
  Program program(3);
  program.snapshot(100'000);
  CHECK_EQ(program.every(), 3u);
}

TEST(copies_are_made_behind_the_program_when_they_take_half_of_the_budget) {
  for (const Late late : {Late::kNever, Late::kAsCostSays, Late::kAlways})
    for (const uint64_t fixed : {0, 1}) {
      Program program(fixed, late);
      CHECK_EQ(program.interval.late(), late == Late::kAlways);
      program.snapshot(25);
      CHECK_EQ(program.interval.late(), late == Late::kAlways);
      program.snapshot(29);  // 26 on average
      CHECK_EQ(program.interval.late(), late != Late::kNever);
      program.snapshot(0);  // and then for good
      program.snapshot(0);
      CHECK_EQ(program.interval.late(), late != Late::kNever);
    }
}

TEST(what_has_to_be_kept_bounds_the_interval_for_good) {
  Program program;
  program.interval.at_most(12);
  program.snapshot(100'000);
  CHECK_EQ(program.every(), 8u);
  program.interval.too_seldom();
  CHECK_EQ(program.every(), 4u);
  program.interval.at_most(0);
  program.snapshot(100'000);
  CHECK_EQ(program.every(), 1u);
}

}  // namespace

CHECK_MAIN
