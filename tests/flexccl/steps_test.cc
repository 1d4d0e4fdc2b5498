// What a rank knows of steps that it has not taken: what it hears by message and what stands in the
// page of its host, what it has agreed to, and those that wait for either.
#include "membership/steps.h"

#include <thread>

#include "check.h"
#include "comes.h"
#include "members.h"

namespace {

using namespace members;
using Vote = Steps::Vote;

constexpr std::uint64_t kFar = 600'000;  // ms: nothing here may wait for a limit

// The process tells apart steps of one epoch.
Change step_to(std::uint32_t epoch, Repair repair = Repair::kReplace, std::uint8_t process = 1) {
  Change step{epoch, 1, repair, 0, address_of(1)};
  step.address.process[0] = process;
  return step;
}
std::vector<Change> steps_to(std::uint32_t from, std::uint32_t to) {
  std::vector<Change> steps;
  for (std::uint32_t epoch = from; epoch <= to; ++epoch) steps.push_back(step_to(epoch));
  return steps;
}

// That of a host, of a communicator that begins.
std::shared_ptr<MembershipLog> new_page() {
  static std::uint64_t comm = 500;
  Membership self = member(0, 4, 0);
  self.comm = ++comm;
  auto page = MembershipLog::begin(self);
  CHECK(page != nullptr);
  return page;
}

bool are(const std::vector<Change>& steps, std::uint32_t from, std::uint32_t to) {
  const auto wanted = steps_to(from, to);
  return std::ranges::equal(steps, wanted, {}, &Change::epoch, &Change::epoch);
}

bool learns(Steps& steps, const Change& step) {
  return steps.learn(std::span(&step, 1));
}

// Whether a thread that waits goes on once `event` has happened, and what it found.
template <class Wait, class Event>
auto waited(const Wait& wait, const Event& event) {
  decltype(wait()) found{};
  std::atomic<bool> begins = false;
  std::jthread waiter([&] {
    begins = true;
    found = wait();
  });
  CHECK(comes([&] { return begins.load(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // then it mostly waits already
  event();
  waiter.join();
  return found;
}

}  // namespace

TEST(steps_that_are_heard_are_decided) {
  Steps steps(0, nullptr);
  CHECK(steps.learn({}));
  CHECK_EQ(steps.newest(), 0u);
  CHECK(steps.decided(0).empty());
  CHECK(learns(steps, step_to(1)));
  CHECK(learns(steps, step_to(1)));
  CHECK_EQ(steps.newest(), 1u);
  CHECK(are(steps.decided(0), 1, 1));
  CHECK(steps.decided(1).empty());
  CHECK(!learns(steps, step_to(1, Repair::kReplace, 2)));
  CHECK_EQ(int(steps.decided(0)[0].address.process[0]), 1);
}

// A step that is missing comes later, from another rank.
TEST(only_steps_that_follow_each_other_are_taken) {
  Steps steps(0, nullptr);
  for (const std::uint32_t epoch : {1u, 3u}) CHECK(learns(steps, step_to(epoch)));
  CHECK_EQ(steps.newest(), 3u);
  CHECK(are(steps.decided(0), 1, 1));
  CHECK(steps.decided(1).empty());
  CHECK(are(steps.decided(2), 3, 3));
  CHECK(learns(steps, step_to(2)));
  CHECK(are(steps.decided(0), 1, 3));
}

TEST(the_page_has_room_for_all_its_readers) {
  Membership self = member(8191, 8192, 0);
  self.comm = 400;
  const auto page = MembershipLog::begin(self);
  CHECK(page && page->is_read_by(8191));
  Membership more = member(65535, 65536, 0);
  more.comm = 401;
  CHECK(!MembershipLog::begin(more));
}

// It is told of the last one, and finds those before it on the page.
TEST(what_stands_on_the_page_is_taken_with_what_is_heard) {
  const auto page = new_page();
  CHECK(page->publish(steps_to(1, 3)));
  Steps steps(0, page);
  CHECK(learns(steps, step_to(3)));
  CHECK(are(steps.decided(0), 1, 3));
}

TEST(what_follows_another_step_is_not_taken) {
  Steps steps(0, nullptr);
  CHECK(learns(steps, step_to(1)));
  CHECK(!steps.learn(std::vector{step_to(1, Repair::kReplace, 2), step_to(2)}));
  CHECK(are(steps.decided(0), 1, 1));
  CHECK_EQ(steps.newest(), 1u);
}

// Two ranks decide at once, some of these times; the one that is refused goes on with the other's.
TEST(a_rank_whose_step_is_refused_knows_the_other_one) {
  for (int round = 0; round < 400; ++round) {
    const auto page = new_page();
    Steps ranks[] = {Steps(0, page), Steps(0, page)};
    std::atomic<int> ready = 0, decide = 0;
    {
      std::vector<std::jthread> threads;
      for (const std::uint8_t mine : {0, 1})
        threads.emplace_back([&, mine] {
          const Change step = step_to(1, Repair::kReplace, mine);
          ++ready;
          while (ready < 2) continue;
          decide += learns(ranks[mine], step);
        });
    }
    CHECK_EQ(decide.load(), 1);
    CHECK(same_step(ranks[0].decided(0)[0], ranks[1].decided(0)[0]));
  }
}

TEST(what_is_older_than_its_epoch_is_no_news) {
  Steps steps(5, nullptr);
  CHECK_EQ(steps.newest(), 5u);
  CHECK(learns(steps, step_to(3)));
  CHECK_EQ(steps.newest(), 5u);
  for (const std::uint32_t epoch : {4u, 5u}) CHECK(steps.vote(step_to(epoch)) == Vote::kOther);
  CHECK(steps.vote(step_to(6)) == Vote::kOpen);
}

TEST(the_last_steps_are_kept) {
  Steps steps(0, nullptr);
  CHECK(steps.learn(steps_to(1, 32)));
  CHECK(are(steps.decided(0), 1, 32));
  CHECK(learns(steps, step_to(33)));
  CHECK(steps.decided(0).empty());
  CHECK(are(steps.decided(1), 2, 33));
}

TEST(ranks_of_a_host_hear_by_its_page) {
  const auto page = new_page();
  Steps one(0, page), other(0, page), third(0, page);
  CHECK(one.learn({}));
  CHECK(learns(one, step_to(1)));
  CHECK_EQ(page->epoch(), 1u);
  CHECK_EQ(other.newest(), 1u);
  CHECK(other.vote(step_to(1)) == Vote::kDecided);
  CHECK(are(other.decided(0), 1, 1));
  CHECK(!learns(third, step_to(1, Repair::kReplace, 2)));
  CHECK(learns(other, step_to(2)));
  CHECK(are(one.decided(0), 1, 2));
  CHECK(are(one.decided(1), 2, 2));
  Steps fourth(0, page);
  CHECK(fourth.vote(step_to(2, Repair::kReplace, 2)) == Vote::kOther);
}

TEST(a_rank_has_one_page) {
  const auto page = new_page();
  Steps steps(0, nullptr);
  steps.set_log(nullptr);
  CHECK(!steps.log());
  CHECK(steps.learn(steps_to(1, 2)));
  steps.set_log(page);
  CHECK(steps.log() == page);
  CHECK_EQ(page->epoch(), 0u);
  CHECK(steps.learn({}));
  CHECK_EQ(page->epoch(), 2u);  // what it has heard before is for the others, too
  steps.set_log(new_page());
  CHECK(steps.log() == page);
  CHECK(page->publish(std::vector{step_to(3)}));
  CHECK_EQ(steps.newest(), 3u);
}

// The page has room for 64.
TEST(a_rank_that_has_missed_too_many_is_told_by_message) {
  const auto page = new_page();
  Steps often(0, page), late(0, page);
  for (const std::uint32_t to : {40u, 80u}) {
    CHECK(page->publish(steps_to(to - 39, to)));
    CHECK(are(often.decided(to - 40), to - 39, to));
  }
  CHECK_EQ(late.newest(), 80u);
  CHECK(late.decided(0).empty());
  CHECK(late.decided(79).empty());
  CHECK(learns(late, step_to(81)));
  CHECK_EQ(page->epoch(), 81u);
  CHECK(are(late.decided(80), 81, 81));
}

TEST(an_agreement_is_in_doubt_until_it_is_decided) {
  Steps steps(0, nullptr);
  CHECK(!steps.in_doubt(0));
  CHECK(steps.vote(step_to(1)) == Vote::kOpen);
  steps.agree(step_to(1));
  CHECK(steps.in_doubt(0));
  CHECK(!steps.in_doubt(1));
  CHECK(steps.vote(step_to(1)) == Vote::kAgreed);
  CHECK(steps.vote(step_to(1, Repair::kReplace, 2)) == Vote::kOpen);
  CHECK(steps.decided(0).empty());
  CHECK(are(steps.expected(0), 1, 1));
  CHECK(learns(steps, step_to(1)));
  CHECK(!steps.in_doubt(0));
  CHECK(steps.vote(step_to(1)) == Vote::kDecided);
  CHECK(steps.vote(step_to(1, Repair::kReplace, 2)) == Vote::kOther);
  CHECK(are(steps.expected(0), 1, 1));
}

TEST(a_step_is_expected_when_it_follows_what_is_decided) {
  Steps steps(0, nullptr);
  CHECK(learns(steps, step_to(1)));
  steps.agree(step_to(3));
  CHECK(steps.in_doubt(0));
  CHECK(steps.in_doubt(2));
  CHECK(!steps.in_doubt(3));
  CHECK(are(steps.expected(0), 1, 1));
  CHECK(learns(steps, step_to(2)));
  CHECK(are(steps.expected(0), 1, 3));
  CHECK(are(steps.expected(2), 3, 3));
  CHECK(are(steps.decided(0), 1, 2));
  // Another rank was faster: it had agreed to a step before.
  Steps slow(0, nullptr);
  CHECK(learns(slow, step_to(3)));
  slow.agree(step_to(1));
  CHECK(!slow.in_doubt(0));
  CHECK(slow.expected(0).empty());
}

TEST(ranks_are_added_and_removed_when_the_caller_agrees) {
  for (const Repair repair : {Repair::kAdd, Repair::kRemove}) {
    Steps steps(0, nullptr);
    CHECK(steps.learn(std::vector{step_to(1), step_to(2, repair), step_to(3), step_to(4, repair)}));
    CHECK(are(steps.ready(0), 1, 1));
    CHECK(steps.any_ready(0));
    CHECK(!steps.any_ready(1));
    steps.agree(step_to(2, repair));
    CHECK(are(steps.ready(0), 1, 3));
    CHECK(are(steps.ready(1), 2, 3));
  }
}

TEST(a_new_rank_waits_for_the_vote) {
  const Deadline far = in_ms(kFar);
  for (const auto& [vote, event] : std::initializer_list<std::pair<Vote, void (*)(Steps&)>>{
           {Vote::kDecided, [](Steps& steps) { CHECK(learns(steps, step_to(1))); }},
           {Vote::kOther, [](Steps& steps) { CHECK(learns(steps, step_to(2))); }},
           {Vote::kAgreed, [](Steps& steps) { steps.agree(step_to(1)); }}}) {
    Steps steps(0, nullptr);
    CHECK(waited([&] { return steps.wait_for_vote(step_to(1), far); }, [&] { event(steps); }) ==
          vote);
    CHECK(steps.wait_for_vote(step_to(1), far) == vote);
  }
  Steps steps(0, nullptr);
  CHECK(steps.wait_for_vote(step_to(1), in_ms(0)) == Vote::kOpen);
}

// Whichever thread of the rank looks at the page: all that wait hear of what is there.
TEST(a_new_rank_hears_of_what_another_thread_has_seen) {
  const auto page = new_page();
  Steps steps(0, page);
  const Vote vote = waited([&] { return steps.wait_for_vote(step_to(1), in_ms(kFar)); },
                           [&] {
                             CHECK(page->publish(steps_to(1, 1)));
                             CHECK(are(steps.decided(0), 1, 1));
                           });
  CHECK(vote == Vote::kDecided);
}

TEST(a_rank_waits_for_the_new_one_to_call) {
  Steps steps(0, nullptr);
  CHECK(!steps.wait_for_voter(step_to(1), std::chrono::milliseconds(0)));
  steps.note_voter(step_to(1, Repair::kReplace, 2));
  CHECK(!steps.wait_for_voter(step_to(1), std::chrono::milliseconds(0)));
  CHECK(waited([&] { return steps.wait_for_voter(step_to(1), std::chrono::milliseconds(kFar)); },
               [&] { steps.note_voter(step_to(1)); }));
  CHECK(steps.wait_for_voter(step_to(1), std::chrono::milliseconds(kFar)));
}

CHECK_MAIN
