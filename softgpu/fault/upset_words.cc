#include "fault/upset_words.h"

#include <array>
#include <utility>

#include "fault/setting_value.h"

namespace softgpu {
namespace {

std::string read_model(std::string_view value, UpsetAim* aim) {
  constexpr std::array<std::pair<std::string_view, UpsetModel>, 6> kModels = {{
      {"single", UpsetModel::kSingle},
      {"double", UpsetModel::kDouble},
      {"byte", UpsetModel::kByte},
      {"word", UpsetModel::kWord},
      {"zero", UpsetModel::kZero},
      {"stale", UpsetModel::kStale},
  }};
  for (const auto& [name, model] : kModels) {
    if (name != value) continue;
    aim->model = model;
    return "";
  }
  return "[model] is " + bracketed(value) + ", none of [single, double, byte, word, zero, stale]";
}

std::string read_mask(std::string_view name, std::string_view value, UpsetAim* aim) {
  uint64_t bits = 0;
  std::string problem =
      name == "bit" ? number(name, value, 0, 31, &bits) : number(name, value, 1, UINT32_MAX, &bits);
  aim->mask = name == "bit" ? 1u << bits : static_cast<uint32_t>(bits);
  aim->model = UpsetModel::kMask;
  return problem;
}

template <class T>
std::string read_number(std::string_view name, std::string_view value, uint64_t least,
                        uint64_t most, T* out) {
  uint64_t read = 0;
  std::string problem = number(name, value, least, most, &read);
  *out = static_cast<unsigned>(read);
  return problem;
}

std::string read_unit(std::string_view value, UpsetAim* aim) {
  for (size_t i = 0; i < std::size(kUnitNames); ++i) {
    if (kUnitNames[i] != value) continue;
    aim->unit = static_cast<Unit>(i);
    return "";
  }
  return "[unit] is " + bracketed(value) + ", none of [alu, fma, mufu, lsu, tensor]";
}

std::string unknown(std::string_view name) {
  return bracketed(name) + " is no setting of it";
}

}  // namespace

std::string read_upset(std::string_view name, std::string_view value, UpsetAim* aim) {
  if (name == "model") return read_model(value, aim);
  if (name == "mask" || name == "bit") return read_mask(name, value, aim);
  if (name == "seed") return number(name, value, 0, UINT64_MAX, &aim->seed);
  if (name == "lane") return read_number(name, value, 0, 31, &aim->lane);
  if (name == "reg") return read_number(name, value, 0, 3, &aim->reg);
  if (name == "nth") return number(name, value, 1, UINT64_MAX, &aim->nth.emplace());
  if (name == "row") return number(name, value, 0, UINT64_MAX, &aim->row.emplace());
  if (name == "column") return number(name, value, 0, UINT64_MAX, &aim->column.emplace());
  if (name == "after") return number(name, value, 1, UINT64_MAX, &aim->after.emplace());
  if (name != "op") return unknown(name);
  aim->op = value;
  return value.empty() ? "[op] names none" : "";
}

std::string read_stuck(std::string_view name, std::string_view value, UpsetAim* aim) {
  if (name == "sm") return read_number(name, value, 0, 1023, &aim->sm);
  if (name == "unit") return read_unit(value, aim);
  if (name == "lane") return read_number(name, value, 0, 31, &aim->lane);
  if (name == "bit") return read_number(name, value, 0, 31, &aim->bit);
  if (name == "to") return read_number(name, value, 0, 1, &aim->to);
  return unknown(name);
}

std::string check_stuck(const UpsetAim& aim) {
  return aim.lane ? "" : "it needs a [lane]";
}

}  // namespace softgpu
