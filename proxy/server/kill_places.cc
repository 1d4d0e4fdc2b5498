#include "server/kill_places.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <type_traits>
#include <utility>

#include "ring/layout.h"

namespace pyft::server {

namespace {

constexpr std::string_view kKeys[] = {"kill", "cut", "rank", "note"};
constexpr size_t kNotes = std::extent_v<decltype(ring::ControlPage::fault_notes)>;
using Values = std::optional<uint64_t>[std::size(kKeys)];

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

// `cut=2`, where `separator` is between the two.
std::string read_value(std::string_view part, char separator, Values& values) {
  const size_t at = std::min(part.find(separator), part.size());
  const auto key = std::ranges::find(kKeys, part.substr(0, at));
  const std::string_view number = part.substr(std::min(at + 1, part.size()));
  if (key == std::end(kKeys) || (key == kKeys) != (separator == ':'))
    return "is not kill:C, cut=S, rank=R or note=N";
  std::optional<uint64_t>& value = values[key - kKeys];
  if (value) return "is there twice";
  const char* const end = number.data() + number.size();
  const auto read = std::from_chars(number.data(), end, value.emplace());
  return read.ec == std::errc() && read.ptr == end ? "" : "has no number that can be used";
}

std::string read_place(std::string_view text, KillPlace* place) {
  Values values;
  char separator = ':';
  for (const std::string_view part : split(text, ',')) {
    const std::string wrong = read_value(part, std::exchange(separator, '='), values);
    if (!wrong.empty()) return "[" + std::string(part) + "] " + wrong;
  }
  const auto& [entry, cut, rank, note] = values;
  const std::string whole = "[" + std::string(text) + "] ";
  if (!cut) return whole + "does not say after which cut: add cut=S";
  if (*entry == 0) return whole + "counts entries from 1";
  if (note && *note >= kNotes) return whole + "has a note of [256] or more";
  *place = {*entry, *cut, rank, note};
  return {};
}

}  // namespace

std::string read_kill_places(std::string_view text, std::vector<KillPlace>* places) {
  if (text.empty()) return {};
  for (const std::string_view part : split(text, ';')) {
    const std::string wrong = read_place(part, &places->emplace_back());
    if (!wrong.empty()) return "PYFT_KILL_AT is [" + std::string(text) + "]: " + wrong;
  }
  return {};
}

}  // namespace pyft::server
