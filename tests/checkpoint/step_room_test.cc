// Whether a step's cut comes before the log is full.
#include "checkpoint/snapshot/step_room.h"

#include "check.h"

namespace {

using pyft::checkpoint::LogUse;
using pyft::checkpoint::StepRoom;

constexpr LogUse kRoom{0, 1000, 1000, 0};

TEST(before_the_first_steps_the_log_is_enough_for_a_while) {
  StepRoom room(kRoom, {});
  CHECK(room.lasts({0, 750, 0, 0}));
  CHECK(!room.lasts({0, 760, 0, 0}));
  CHECK(!room.lasts({0, 0, 760, 0}));
  room.step({1, 700, 0, 0});  // the program's start is no step
  room.line({1, 700, 0, 0});
  CHECK(room.lasts({1, 1400, 0, 0}));
  StepRoom short_start(kRoom, {});
  short_start.step({1, 100, 0, 0});
  short_start.line({1, 100, 0, 0});
  CHECK(short_start.lasts({1, 850, 0, 0}));
}

TEST(a_step_lasts_if_it_ends_where_the_last_one_did) {
  StepRoom room(kRoom, {});
  room.step({1, 700, 0, 0});
  room.step({2, 1200, 10, 0});
  CHECK(!room.lasts({2, 1400, 20, 0}));  // its cut will be at 1700, and the line is at 0
  room.line({1, 700, 0, 0});
  CHECK(room.lasts({2, 1400, 20, 0}));
  room.line({2, 1200, 10, 0});
  room.step({3, 1900, 15, 0});
  CHECK(!room.lasts({3, 2000, 15, 0}));  // a longer one: its cut would be at 2600
  room.line({3, 1900, 15, 0});
  CHECK(room.lasts({3, 2000, 15, 0}));
}

TEST(a_step_may_fill_the_log) {
  StepRoom room(kRoom, {});
  room.step({1, 200, 0, 0});
  room.step({2, 600, 0, 0});
  CHECK(room.lasts({2, 700, 0, 0}));  // its cut will be at 1000
  StepRoom longer(kRoom, {});
  longer.step({1, 200, 0, 0});
  longer.step({2, 601, 0, 0});
  CHECK(!longer.lasts({2, 700, 0, 0}));
}

TEST(a_step_is_no_more_than_a_quarter_longer_than_the_last_one) {
  StepRoom room(kRoom, {});
  room.step({1, 100, 0, 0});
  room.line({1, 100, 0, 0});
  room.step({2, 500, 0, 0});
  CHECK(room.lasts({2, 1000, 0, 0}));
  CHECK(!room.lasts({2, 1001, 0, 0}));
}

TEST(half_of_the_log_is_enough_without_steps) {
  StepRoom room(kRoom, {});
  room.step({1, 100, 0, 0});
  room.step({2, 300, 0, 0});
  room.line({2, 300, 0, 0});
  CHECK(room.lasts({2, 800, 0, 0}));
  CHECK(!room.lasts({2, 801, 0, 0}));
}

TEST(what_is_longer_than_a_step_is_none) {
  StepRoom room(kRoom, {});
  room.step({1, 100, 0, 0});
  room.step({2, 200, 1, 0});
  room.line({2, 200, 1, 0});
  CHECK(room.lasts({2, 600, 400, 0}));  // late, and there is room
  CHECK(!room.lasts({2, 800, 1, 0}));
  CHECK(!room.lasts({2, 300, 600, 0}));
}

TEST(a_kind_without_room_is_none) {
  StepRoom room({0, 1000, 1000, 0}, {});
  CHECK(room.lasts({0, 10, 10, uint64_t{1} << 40}));
}

}  // namespace

CHECK_MAIN
