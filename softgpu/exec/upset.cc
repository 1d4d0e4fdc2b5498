#include "exec/upset.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "decode/decode.h"
#include "decode/table.h"
#include "exec/lower.h"

namespace softgpu {
namespace {

thread_local Upsets* upsets_here = nullptr;

// splitmix64
uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

enum Draws : uint64_t { kBlockDraw, kWarpDraw, kInstructionDraw, kLaneDraw, kRowDraw, kBitDraw };

}  // namespace

UpsetsHere::UpsetsHere(Upsets* upsets) : before_(upsets_here) {
  upsets_here = upsets;
}
UpsetsHere::~UpsetsHere() {
  upsets_here = before_;
}
Upsets* UpsetsHere::current() {
  return upsets_here;
}

uint64_t draw(const Upset& upset, uint64_t what, uint64_t bound) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  const uint64_t z = mixed(mixed(upset.aim.seed + (upset.times + 1) * kGolden) + what * kGolden);
  return static_cast<uint64_t>(static_cast<unsigned __int128>(z) * bound >> 64);
}

uint32_t upset_bits(const Upset& upset, uint32_t old, uint32_t right) {
  const auto drawn = [&](uint64_t n, uint64_t bound) {
    return static_cast<uint32_t>(draw(upset, kBitDraw + n, bound));
  };
  switch (upset.aim.model) {
    case UpsetModel::kSingle:
      return right ^ 1u << drawn(0, 32);
    case UpsetModel::kDouble: {
      const uint32_t first = drawn(0, 32);
      return right ^ 1u << first ^ 1u << (first + 1 + drawn(1, 31)) % 32;
    }
    case UpsetModel::kByte:
      return right ^ (1 + drawn(1, 255)) << 8 * drawn(0, 4);
    case UpsetModel::kWord:
      return drawn(0, uint64_t{1} << 32);
    case UpsetModel::kZero:
      return 0;
    case UpsetModel::kStale:
      return old;
    case UpsetModel::kMask:
      break;
  }
  return right ^ upset.aim.mask;
}

namespace exec {
namespace {

Unit unit_of(std::string_view op) {
  const auto any_of = [op](std::initializer_list<std::string_view> beginnings) {
    return std::ranges::any_of(beginnings, [op](std::string_view b) { return op.starts_with(b); });
  };
  if (any_of({"HMMA", "IMMA"})) return Unit::kTensor;
  if (any_of({"MUFU"})) return Unit::kMufu;
  if (any_of({"LD", "ATOM"})) return Unit::kLsu;
  if (any_of({"FADD", "FFMA", "FMUL", "IMAD", "UIMAD", "HADD2", "HFMA2", "HMUL2", "DADD", "DFMA",
              "DMUL", "IDP"})) {
    return Unit::kFma;
  }
  return Unit::kAlu;
}

// IMAD means IMAD.WIDE as well.
bool named(std::string_view op, std::string_view mnemonic) {
  return op.empty() || op == mnemonic ||
         (mnemonic.starts_with(op) && mnemonic.substr(op.size()).starts_with('.'));
}

uint32_t drawn_lane(const Upset& upset, uint32_t exec) {
  auto left = draw(upset, kLaneDraw, static_cast<uint64_t>(std::popcount(exec)));
  for (; left; --left) exec &= exec - 1;
  return static_cast<uint32_t>(first_lane(exec));
}

std::string changed_bits(uint32_t right, uint32_t wrong) {
  char text[64];
  std::snprintf(text, sizeof text, "[0x%08x] is now [0x%08x]", right, wrong);
  return text;
}

}  // namespace

UpsetRun::UpsetRun(const LaunchState& state, Upsets* upsets)
    : code_(state.program->code.data()), upsets_(upsets) {
  read_code(*state.launch->kernel);
  for (Upset& upset : *upsets) {
    places_.push_back(drawn_place(state, upset));
    upset.sentence = upset.aim.stuck ? "the launch has nothing for the unit"
                                     : "the launch has ended before the place that was drawn";
  }
}

void UpsetRun::read_code(const Kernel& kernel) {
  targets_.resize(kernel.text.size() / kInstrBytes + 1);  // the last one faults
  for (size_t n = 0; n + 1 < targets_.size(); ++n) {
    Word word;
    std::memcpy(&word.lo, kernel.text.data() + n * kInstrBytes, 8);
    std::memcpy(&word.hi, kernel.text.data() + n * kInstrBytes + 8, 8);
    Instr instr;
    if (!decode(word, static_cast<uint32_t>(n * kInstrBytes), &instr).empty()) continue;
    const FormInfo& form = form_info(instr.form);
    const bool to_nothing = instr.rd == (instr.rd_uniform ? kURZ : kRZ);
    targets_[n] = {form.mnemonic, form.rd != Destination::kNone && !to_nothing, instr.rd_uniform,
                   instr.rd, unit_of(form.mnemonic)};
  }
}

const UpsetRun::Target& UpsetRun::target(const Inst* in) const {
  return targets_[static_cast<size_t>(in - code_)];
}

// Each warp of the launch alike, each of the instructions that one is expected to execute alike.
UpsetRun::Place UpsetRun::drawn_place(const LaunchState& state, const Upset& upset) const {
  const uint64_t known = state.program->experience.instructions_per_block;
  const uint64_t each = known ? std::max<uint64_t>(known / state.warps, 1) : targets_.size();
  return {draw(upset, kBlockDraw, state.launch->grid.count()), draw(upset, kWarpDraw, state.warps),
          draw(upset, kInstructionDraw, each)};
}

void UpsetRun::before(const Inst* in, Warp* warp) {
  if (target(in).writes) std::memcpy(before_.data(), dest(warp, in->rd), sizeof before_);
}

void UpsetRun::after(const Inst* in, Warp* warp, uint32_t exec) {
  const Target& about = target(in);
  for (size_t i = 0; i < upsets_->size(); ++i) {
    Upset& upset = (*upsets_)[i];
    if (upset.aim.stuck) {
      if (about.writes) stick(&upset, in, warp, exec);
    } else if (!upset.done && due(upset, &places_[i], about, warp)) {
      hit(&upset, in, warp, exec);
    }
  }
}

bool UpsetRun::due(const Upset& upset, Place* place, const Target& target, const Warp* warp) const {
  const bool fits = target.writes && named(upset.aim.op, target.mnemonic);
  if (upset.aim.nth) return fits && ++place->seen == *upset.aim.nth;
  if (warp->block->linear != place->block || warp->index != place->warp) return false;
  return ++place->seen > place->instruction && fits;
}

// How many rows the instruction has changed, at least one.
uint32_t UpsetRun::written_rows(const Inst* in, Warp* warp, uint32_t exec) const {
  const Row* now = dest(warp, in->rd);
  uint32_t rows = 1;
  for (uint32_t r = 1; r < kMostRows; ++r) {
    for_lanes(exec, [&](int lane) {
      if (now[r].lane[lane] != before_[r].lane[lane]) rows = r + 1;
    });
  }
  return rows;
}

void UpsetRun::hit(Upset* upset, const Inst* in, Warp* warp, uint32_t exec) {
  const uint32_t rows = written_rows(in, warp, exec);
  const auto row = upset->aim.reg.value_or(static_cast<unsigned>(draw(*upset, kRowDraw, rows)));
  const uint32_t lane = upset->aim.lane.value_or(drawn_lane(*upset, exec));
  if (row >= kMostRows || !(exec >> lane & 1)) {
    upset->sentence = "lane or register do not take part in the instruction";
    return;
  }
  uint32_t* lanes = dest(warp, in->rd)[row].lane;
  const uint32_t right = lanes[lane];
  const uint32_t wrong = upset_bits(*upset, before_[row].lane[lane], right);
  // A uniform register is one for all lanes.
  if (target(in).uniform) {
    std::fill_n(lanes, kLanes, wrong);
  } else {
    lanes[lane] = wrong;
  }
  upset->done = true;
  upset->sentence = "upset of " + where(in, warp, lane, row) + changed_bits(right, wrong);
}

void UpsetRun::stick(Upset* upset, const Inst* in, Warp* warp, uint32_t exec) {
  const UpsetAim& aim = upset->aim;
  const unsigned lane = aim.lane.value_or(0);
  if (target(in).unit != aim.unit || target(in).uniform || !(exec >> lane & 1) ||
      warp->block->sm != aim.sm) {
    return;
  }
  uint32_t& word = dest(warp, in->rd)->lane[lane];
  const uint32_t right = word;
  word = aim.to ? right | 1u << aim.bit : right & ~(1u << aim.bit);
  if (word == right || upset->done) return;
  upset->done = true;
  upset->sentence = "bit [" + std::to_string(aim.bit) + "] of the " +
                    std::string(kUnitNames[static_cast<size_t>(aim.unit)]) + " unit of SM [" +
                    std::to_string(aim.sm) + "] is stuck, first seen in " +
                    where(in, warp, lane, 0) + changed_bits(right, word);
}

std::string UpsetRun::where(const Inst* in, const Warp* warp, uint32_t lane, uint32_t row) const {
  const Target& about = target(in);
  char text[160];
  std::snprintf(text, sizeof text,
                "[%s] at [0x%zx] in block [%" PRIu64 "], warp [%u], lane [%u], register [%s%u]: ",
                about.mnemonic, static_cast<size_t>(in - code_) * kInstrBytes, warp->block->linear,
                warp->index, lane, about.uniform ? "UR" : "R", about.rd + row);
  return text;
}

}  // namespace exec
}  // namespace softgpu
