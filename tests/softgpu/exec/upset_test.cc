// Upsets of instructions and stuck bits hit what they are asked for, and nothing else.
#include <map>

#include "one_warp.h"

namespace softgpu::exec {

// Three registers become 1 in all lanes; the guard keeps the last one to lanes that P0 names.
static OneWarp three_moves() {
  const Words move("00000000f00_0000000100047802");
  return OneWarp({move.rd(4), move.rd(5), move.rd(6).guard(0)});
}

static Upset upset(const UpsetAim& aim) {
  Upset made;
  made.aim = aim;
  return made;
}

static bool said(const Upset& upset, std::string_view part) {
  const bool found = upset.sentence.find(part) != std::string::npos;
  if (!found) std::cerr << "[" << upset.sentence << "] lacks [" << part << "]\n";
  return found;
}

// (register, lane) -> what it is instead of 1.
using Wrong = std::map<std::pair<int, int>, uint32_t>;
static Wrong run(Upsets* upsets) {
  OneWarp w = three_moves();
  w.pred(0) = 0xff;
  for (int r = 4; r < 7; ++r) w.reg(r).lane[9] = 77;
  w.wrong(upsets);
  CHECK(w.run());
  Wrong wrong;
  for (int r = 4; r < 7; ++r) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint32_t right = r < 6 || lane < 8 ? 1 : lane == 9 ? 77 : 0;
      if (w.reg(r).lane[lane] != right) wrong[{r, lane}] = w.reg(r).lane[lane];
    }
  }
  return wrong;
}

TEST(the_chosen_bit_of_the_chosen_instruction) {
  UpsetAim aim;
  aim.nth = 2;
  aim.lane = 5;
  aim.model = UpsetModel::kMask;
  aim.mask = 1 << 3;
  Upsets upsets{upset(aim)};
  CHECK((run(&upsets) == Wrong{{{5, 5}, 9}}));
  CHECK(upsets[0].done);
  CHECK(said(upsets[0],
             "upset of [MOV] at [0x10] in block [0], warp [0], lane [5], register [R5]: "
             "[0x00000001] is now [0x00000009]"));
}

TEST(each_instruction_and_lane_can_be_drawn_and_the_seed_decides) {
  std::map<std::pair<int, int>, int> found;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    UpsetAim aim;
    aim.seed = seed;
    Upsets upsets{upset(aim)}, again{upset(aim)};
    const Wrong wrong = run(&upsets);
    CHECK(wrong == run(&again));
    CHECK(upsets[0].sentence == again[0].sentence);
    CHECK_EQ(wrong.size(), size_t{upsets[0].done});
    for (const auto& [place, value] : wrong) {
      ++found[place];
      CHECK_EQ(std::popcount(value ^ 1), 1);
    }
  }
  CHECK_EQ(found.size(), size_t{32 + 32 + 8});  // no lane that the guard keeps out
}

TEST(models) {
  const auto of = [](UpsetModel model) {
    UpsetAim aim;
    aim.nth = 1;
    aim.lane = 9;
    aim.model = model;
    Upsets upsets{upset(aim)};
    const Wrong wrong = run(&upsets);
    CHECK(upsets[0].done);
    return wrong.empty() ? 1 : wrong.at({4, 9});
  };
  CHECK_EQ(of(UpsetModel::kZero), 0u);
  CHECK_EQ(of(UpsetModel::kStale), 77u);
  CHECK_EQ(std::popcount(of(UpsetModel::kSingle) ^ 1), 1);
  CHECK_EQ(std::popcount(of(UpsetModel::kDouble) ^ 1), 2);
  const uint32_t byte = of(UpsetModel::kByte) ^ 1;
  CHECK(byte != 0 && std::countr_zero(byte) / 8 == (31 - std::countl_zero(byte)) / 8);
  CHECK(of(UpsetModel::kWord) != 1);
}

TEST(what_is_not_there_is_not_hit_and_says_so) {
  UpsetAim aim;
  aim.op = "FFMA";
  Upsets upsets{upset(aim)};
  CHECK(run(&upsets).empty());
  CHECK(!upsets[0].done && said(upsets[0], "has ended before"));
  aim.op = "MOV";
  aim.nth = 4;
  upsets = {upset(aim)};
  CHECK(run(&upsets).empty());
  CHECK(!upsets[0].done);
}

TEST(a_stuck_bit_is_in_each_result_of_its_lane_and_unit) {
  UpsetAim aim;
  aim.stuck = true;
  aim.lane = 3;
  aim.bit = 0;
  aim.to = 0;
  aim.unit = Unit::kAlu;
  Upset stuck = upset(aim);
  stuck.sms = {2, 0};
  Upsets upsets{stuck};
  CHECK((run(&upsets) == Wrong{{{4, 3}, 0}, {{5, 3}, 0}, {{6, 3}, 0}}));
  CHECK(
      said(upsets[0], "bit [0] of the alu unit of SM [0] is stuck, first seen in [MOV] at [0x0]"));
  stuck.aim.sm = 1;  // the only block is on SM 0
  upsets = {stuck};
  CHECK(run(&upsets).empty() && !upsets[0].done);
  stuck.aim.sm = 0;
  stuck.aim.unit = Unit::kFma;
  upsets = {stuck};
  CHECK(run(&upsets).empty() && !upsets[0].done);
}

}  // namespace softgpu::exec

CHECK_MAIN
