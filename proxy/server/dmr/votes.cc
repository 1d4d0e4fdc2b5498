#include "server/dmr/votes.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace pyft::server::dmr {

namespace {

// Takes a number off the text, and what must follow it.
bool take(std::string_view* text, int base, size_t digits, char then, uint64_t* number) {
  const std::string_view part = text->substr(0, digits);
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *number, base);
  if (error != std::errc{}) return false;
  const auto read = static_cast<size_t>(end - part.data());
  if (base == 16 && read != digits) return false;
  text->remove_prefix(read);
  if (!then) return true;
  if (text->empty()) return then == ';';
  if (text->front() != then) return false;
  text->remove_prefix(1);
  return true;
}

bool take(std::string_view* text, char then, Digest* digest) {
  return take(text, 16, 16, 0, &digest->low) && take(text, 16, 16, then, &digest->high);
}

bool take(std::string_view* text, Dispute* dispute) {
  constexpr size_t kAny = 20;
  return take(text, 10, kAny, ',', &dispute->first) &&
         take(text, 10, kAny, ',', &dispute->second) && take(text, 10, kAny, ',', &dispute->last) &&
         take(text, ',', &dispute->inputs) && take(text, ',', &dispute->first_outputs) &&
         take(text, ';', &dispute->second_outputs);
}

}  // namespace

std::optional<std::vector<Dispute>> read_disputes(std::string_view text) {
  std::vector<Dispute> found;
  while (!text.empty())
    if (!take(&text, &found.emplace_back())) return std::nullopt;
  return found;
}

Votes::Votes(std::vector<Dispute> disputes) {
  for (const Dispute& one : disputes) {
    for (Open& before : open_)
      if (before.dispute.first == one.first && before.dispute.second == one.second)
        before.is_last = false;
    open_.emplace_back().dispute = one;
  }
}

std::vector<Votes::Said> Votes::add(uint64_t seq, const Digest& inputs, const Digest& outputs,
                                    bool again) {
  std::vector<Said> said;
  const std::lock_guard lock(mutex_);
  for (Open& open : open_) {
    const bool one_entry = open.dispute.first == open.dispute.second;
    if (again && !one_entry) continue;
    const bool is_first = seq == open.dispute.first && !again;
    if (!is_first && seq != open.dispute.second) continue;
    const Said one = say(&open, is_first ? 0 : 1, inputs, outputs);
    if (one.was_wrong || one.culprit) said.push_back(one);
  }
  return said;
}

bool Votes::wants_again(uint64_t seq) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(open_, [seq](const Open& open) {
    return open.dispute.first == seq && open.dispute.second == seq && !open.executed[1];
  });
}

Votes::Said Votes::say(Open* open, size_t which, const Digest& inputs, const Digest& outputs) {
  const Dispute& was = open->dispute;
  Said said;
  said.dispute = &was;
  if (std::exchange(open->executed[which], true)) return said;
  if (inputs == was.inputs) open->again[which] = outputs;
  said.was_wrong = which == 0 && open->again[0] && *open->again[0] != was.first_outputs;
  if (open->executed[0] && open->executed[1] && open->is_last) said.culprit = culprit(*open);
  return said;
}

std::optional<ring::msg::Culprit> Votes::culprit(const Open& open) {
  using ring::msg::Culprit;
  const auto& [first, second] = open.again;
  if (!first || !second) return Culprit::kUnknown;
  if (*first != *second) return std::nullopt;  // a mismatch again
  if (*first == open.dispute.second_outputs) return Culprit::kFirst;
  if (*first == open.dispute.first_outputs) return Culprit::kSecond;
  return Culprit::kBoth;
}

}  // namespace pyft::server::dmr
