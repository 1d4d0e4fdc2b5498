// Every order of cuts, copies, polls, decisions and a death, for each thing that the agent may have
// to do with the cuts of a rank.
#include "checkpoint/snapshot/cut_states.h"

#include <algorithm>
#include <deque>
#include <string>
#include <unordered_set>
#include <utility>

#include "check.h"
#include "checkpoint/cut_world.h"

namespace {

using namespace checkpoint_test;  // NOLINT: a test

std::string text(const std::vector<Event>& path) {
  static const char* const names[] = {
      "cut",  "left out", "full",   "hashed", "not hashed", "copied", "copied other", "acknowledge",
      "poll", "gate",     "wanted", "commit", "abort",      "dies",   "live"};
  static const char* const answers[] = {"", " (commit)", " (abort)"};
  std::string all;
  for (const Event& event : path)
    all += std::string(names[static_cast<int>(event.what)]) +
           answers[static_cast<int>(event.answer)] + ", ";
  return all;
}

// How many states there are. Says the shortest way to one in which something does not hold.
size_t explore(const CutRules& rules, uint64_t cuts) {
  std::unordered_set<std::string> seen;
  std::deque<std::pair<World, std::vector<Event>>> next;
  next.emplace_back(World(rules, cuts), std::vector<Event>());
  while (!next.empty()) {
    const auto [world, path] = std::move(next.front());
    next.pop_front();
    for (const bool commits : {true, false}) {
      World end = world;
      end.settle(commits);
      if (!end.broken().empty()) {
        CHECK_EQ(end.broken() + ", at the end of: " + text(path), "");
        return seen.size();
      }
    }
    for (const Event& event : world.possible()) {
      World after = world;
      after.happen(event);
      std::vector<Event> way = path;
      way.push_back(event);
      if (!after.broken().empty()) {
        CHECK_EQ(after.broken() + ", after: " + text(way), "");
        return seen.size();
      }
      if (seen.insert(after.key()).second) next.emplace_back(std::move(after), std::move(way));
    }
  }
  return seen.size();
}

TEST(every_order_of_one_rank) {
  CHECK(explore({}, 4) > 100);
}

TEST(every_order_of_ranks_that_compare) {
  CHECK(explore({.compares = true}, 4) > 1000);
}

TEST(every_order_of_ranks_that_share) {
  CHECK(explore({.compares = true, .shares = true}, 4) > 1000);
}

TEST(every_order_of_ranks_that_go_back_together) {
  CHECK(explore({.compares = true, .coordinated = true}, 4) > 1000);
}

// A client that has no room does not wait for an agent whose word no other rank depends on.
TEST(the_agent_is_asked_first_where_other_ranks_depend_on_it) {
  using Admission = CutStates::Admission;
  for (const bool shares : {false, true}) {
    const CutRules rules{.compares = true, .shares = shares};
    CutStates states;
    states.begin({1, 10, 1, false});
    states.hashed(true, rules);
    states.made(true, true);
    CHECK(states.waits());
    CHECK(states.admit({2, 20, 2, true}, rules) ==
          (shares ? Admission::kAskFirst : Admission::kPromoteFirst));
  }
}

TEST(the_agent_hears_of_a_step_that_is_left_out_if_it_compares) {
  const auto passes = [](const CutRules& rules, bool forced) {
    const auto todo = CutStates().skip({1, 10, 1, forced}, rules);
    return std::ranges::any_of(
        todo, [](const CutAction& action) { return action.what == CutAction::Do::kPass; });
  };
  CHECK(passes({.compares = true}, false));
  CHECK(!passes({.compares = true}, true));
  CHECK(!passes({}, false));
}

}  // namespace

CHECK_MAIN
