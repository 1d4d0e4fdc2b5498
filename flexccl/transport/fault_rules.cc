#include "transport/fault_rules.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"

namespace flexccl {
namespace {

constexpr std::pair<std::string_view, FaultAction> kActions[] = {
    {"kill", FaultAction::kKill},       {"cut", FaultAction::kCut},
    {"drop", FaultAction::kDrop},       {"delay", FaultAction::kDelay},
    {"corrupt", FaultAction::kCorrupt}, {"truncate", FaultAction::kTruncate}};

struct Rules {
  std::mutex mutex;
  bool set = false;
  std::vector<FaultRule> waiting;
  // Frames so far by communicator, rank, direction and peer; under kAnyPeer those of all links.
  std::map<std::tuple<std::uint64_t, std::uint32_t, bool, std::uint64_t>, std::uint64_t> frames;
  std::set<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> dead;
};
constexpr std::uint64_t kAnyPeer = UINT64_MAX, kNoFrame = UINT64_MAX - 1;  // minus its place

constexpr std::pair<std::string_view, FaultPlace> kPlaces[] = {
    {"send", FaultPlace::kSend},     {"receive", FaultPlace::kReceive},
    {"repair", FaultPlace::kRepair}, {"init", FaultPlace::kInit},
    {"split", FaultPlace::kSplit},   {"answer", FaultPlace::kAnswer}};

bool is_frame(FaultPlace place) {
  return place == FaultPlace::kSend || place == FaultPlace::kReceive;
}

Rules& rules() {
  static Rules all;
  return all;
}

[[noreturn]] void refuse(const std::string& rule, std::string_view part, const char* why) {
  fail(ncclInvalidArgument, "flexccl: fault rule [", rule, "]: [", part, "] ", why);
}

void set_value(FaultRule* rule, std::string_view pair) {
  const std::size_t equals = std::min(pair.find('='), pair.size());
  const std::string_view key = pair.substr(0, equals);
  const std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
  if (key == "on") {
    const auto* known = std::find_if(std::begin(kPlaces), std::end(kPlaces),
                                     [&](const auto& entry) { return entry.first == value; });
    if (known == std::end(kPlaces))
      refuse(rule->text, pair, "is none of send, receive, repair, init, split, answer");
    rule->on = known->second;
    return;
  }
  std::uint64_t number = 0;
  const auto end = std::from_chars(value.data(), value.data() + value.size(), number);
  if (value.empty() || end.ec != std::errc() || end.ptr != value.data() + value.size())
    refuse(rule->text, pair, "is not key=number");
  if (key == "rank")
    rule->rank = number;
  else if (key == "peer")
    rule->peer = number;
  else if (key == "frame" && number)
    rule->frame = number;
  else if (key == "bytes")
    rule->bytes = number;
  else if (key == "ms")
    rule->ms = number;
  else
    refuse(rule->text, pair, "is none of rank, peer, frame (from 1), on, bytes, ms");
}

// There was a colon behind the action, in place of a comma.
void say_new_spelling(std::string text, std::size_t colon) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  const std::string old = text;
  text[colon] = ',';
  log_line(kWarning,
           "the fault [%s] is spelled [%s] now: this version still takes the old "
           "spelling",
           old.c_str(), text.c_str());
}

FaultRule parse_rule(const std::string& text) {
  FaultRule rule;
  rule.text = text;
  const std::size_t end = std::min(text.find_first_of(":,"), text.size());
  const std::string_view action = std::string_view(text).substr(0, end);
  const auto* known = std::find_if(std::begin(kActions), std::end(kActions),
                                   [&](const auto& entry) { return entry.first == action; });
  if (known == std::end(kActions))
    refuse(text, action, "is none of kill, cut, drop, delay, corrupt, truncate");
  rule.action = known->second;
  std::istringstream pairs(text.substr(std::min(end + 1, text.size())));
  bool counts = end < text.size() && text[end] == ':';
  for (std::string pair; std::getline(pairs, pair, ','); counts = false) {
    // `kill:3` is the third frame.
    const bool number =
        counts && !pair.empty() && pair.find_first_not_of("0123456789") == pair.npos;
    if (counts && !number) say_new_spelling(text, end);
    set_value(&rule, number ? "frame=" + pair : pair);
  }
  const bool both_ways = rule.action == FaultAction::kKill || rule.action == FaultAction::kCut ||
                         rule.action == FaultAction::kDelay;
  if (rule.on == FaultPlace::kReceive && !both_ways) refuse(text, action, "works on=send only");
  if (!is_frame(rule.on) && (!both_ways || rule.action == FaultAction::kDelay))
    refuse(text, action, "does not work on=repair, init, split or answer");
  return rule;
}

}  // namespace

std::vector<FaultRule> parse_fault_rules(const std::string& text) {
  std::vector<FaultRule> parsed;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) parsed.push_back(parse_rule(part));
  return parsed;
}

void set_faults(const char* text) {
  auto parsed = parse_fault_rules(text ? text : "");
  const std::scoped_lock lock(rules().mutex);
  rules().set = text != nullptr;
  rules().waiting = std::move(parsed);
  rules().frames.clear();
  rules().dead.clear();
}

void read_faults_from_environment() {
  static const bool once = [] {
    if (const char* text = settings::fault()) set_faults(text);
    return true;
  }();
  static_cast<void>(once);
}

bool faults_are_set() {
  const std::scoped_lock lock(rules().mutex);
  return rules().set;
}

namespace {

// Precondition: the rules are locked.
std::optional<FaultRule> use_up(const std::function<bool(const FaultRule&)>& applies) {
  auto& waiting = rules().waiting;
  const auto found = std::find_if(waiting.begin(), waiting.end(), applies);
  if (found == waiting.end()) return std::nullopt;
  const FaultRule rule = *found;
  waiting.erase(found);
  return rule;
}

}  // namespace

std::optional<FaultRule> next_fault(const LinkName& link, bool on_receive) {
  const std::scoped_lock lock(rules().mutex);
  const auto count = [&](std::uint64_t peer) -> std::uint64_t& {
    return rules().frames[{link.comm, link.rank, on_receive, peer}];
  };
  ++count(link.peer), ++count(kAnyPeer);
  return use_up([&](const FaultRule& rule) {
    return rule.on == (on_receive ? FaultPlace::kReceive : FaultPlace::kSend) &&
           rule.rank.value_or(link.rank) == link.rank &&
           rule.peer.value_or(link.peer) == link.peer &&
           rule.frame == count(rule.peer.value_or(kAnyPeer));
  });
}

std::optional<FaultRule> next_fault_at(FaultPlace place, const LinkName& link) {
  const std::scoped_lock lock(rules().mutex);
  const std::uint64_t counted = kNoFrame - static_cast<std::uint64_t>(place);
  const std::uint64_t number = ++rules().frames[{link.comm, link.rank, false, counted}];
  return use_up([&](const FaultRule& rule) {
    return rule.on == place && rule.rank.value_or(link.rank) == link.rank && rule.frame == number;
  });
}

// One write, so that lines of several processes stay whole.
void note_down(const FaultRule& rule) {
  const char* const path = settings::fault_notes();
  if (!*path) return;
  const std::string line = "happened FLEXCCL_FAULT=" + rule.text + "\n";
  const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return;
  if (write(fd, line.data(), line.size()) < 0)
    log_line(kWarning, "FLEXCCL_FAULT_NOTES: [%s] cannot be written", path);
  close(fd);
}

void cut(const LinkName& link) {
  const std::scoped_lock lock(rules().mutex);
  rules().dead.insert({link.comm, link.epoch, link.rank});
}

bool is_cut(const LinkName& link) {
  const std::scoped_lock lock(rules().mutex);
  return rules().dead.contains({link.comm, link.epoch, link.rank});
}

}  // namespace flexccl
