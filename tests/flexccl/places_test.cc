// How a new rank takes its place among neighbours that are the test: which ranks it calls, which it
// passes over, when it has decided.
#include <arpa/inet.h>
#include <poll.h>

#include <chrono>
#include <string>

#include "membership/membership_log.h"
#include "neighbour.h"

using namespace members;

namespace {

struct Place {
  explicit Place(const std::function<void(JoinVisit&)>& visit, int ranks = 5,
                 std::vector<int> there = {1, 3})
      : self(membership(2, ranks, {step_to(1, 2)})) {
    for (const int slot : there) {
      others.push_back(Neighbour::at(self, slot));
      others.back()->visit = visit;
    }
  }
  ~Place() {
    for (const auto& other : others) other->leave();
  }
  ncclResult_t take(std::string* sentence = nullptr) {
    OperationRunner runner(self, 0);
    ncclResult_t code = ncclSuccess;
    try {
      runner.take_place();
    } catch (const Error& error) {
      code = error.code;
      if (sentence) *sentence = error.what();
    }
    placed = runner.placed();
    return code;
  }
  Membership self;
  std::vector<std::shared_ptr<Neighbour>> others;
  bool placed = false;
};

bool has(const std::string& sentence, const char* words) {
  if (sentence.find(words) != std::string::npos) return true;
  std::cerr << sentence << "\n";
  return false;
}

void agree(JoinVisit& call, const Answer& answer, int page) {
  call.answer(answer, page);
  try {
    while (!call.comes_decision()) {
    }
    call.give_receipt();
  } catch (const Error&) {
    // It has decided nothing.
  }
}

// That of another communicator of the job: it has no name.
std::shared_ptr<MembershipLog> page_of_a_host() {
  const auto page = MembershipLog::begin(membership(0, 5, {step_to(1, 2)}));
  CHECK(page != nullptr);
  return page;
}

}  // namespace

TEST(a_new_rank_pins_its_step_up_on_the_page_of_its_host) {
  const auto page = page_of_a_host();
  Place place([&](JoinVisit& call) { agree(call, {.epoch = 1}, page->fd()); });
  CHECK_EQ(place.take(), ncclSuccess);
  CHECK(place.placed);
  CHECK_EQ(page->epoch(), 1u);
  CHECK(same_step(page->steps_after(0).at(0), step_to(1, 2)));
  CHECK(page->is_read_by(2));
}

TEST(without_a_page_both_neighbours_have_to_hear_of_it) {
  std::atomic<int> heard = 0;
  Place place([&](JoinVisit& call) {
    agree(call, {.epoch = 1}, -1);
    ++heard;
  });
  CHECK_EQ(place.take(), ncclSuccess);
  CHECK(place.placed);
  CHECK(comes([&] { return heard == 2; }));
}

TEST(a_new_rank_has_no_place_where_something_else_was_decided) {
  std::string sentence;
  Place refused(
      [](JoinVisit& call) { call.answer({.availability = Availability::kGone, .epoch = 7}, -1); });
  CHECK_EQ(refused.take(&sentence), ncclInvalidUsage);
  CHECK(!refused.placed);
  CHECK(has(sentence, "knows another step of epoch [7]"));
  const auto page = page_of_a_host();
  CHECK(page->publish(std::vector{step_to(1, 3)}));
  Place late([&](JoinVisit& call) { agree(call, {.epoch = 1}, page->fd()); });
  CHECK_EQ(late.take(&sentence), ncclInvalidUsage);
  CHECK(!late.placed);
  CHECK(has(sentence, "something else was decided meanwhile"));
}

// Those that are gone are passed over, whenever that is found out: over a socket by its refusal.
TEST(a_new_rank_calls_the_nearest_that_are_there) {
  for (const auto transport : {flexcclLoopback, flexcclShm, flexcclTcp})
    for (const auto& [there, called] :
         std::initializer_list<std::pair<std::vector<int>, std::vector<int>>>{
             {{0, 1, 3, 4}, {1, 3}},
             {{0, 4}, {0, 4}},
             {{3, 4}, {3, 4}},
             {{0, 1}, {0, 1}},
             {{0}, {0}},
             {{3}, {3}}}) {
      std::atomic<int> heard = 0;
      Place place(
          [&](JoinVisit& call) {
            agree(call, {.epoch = 1}, -1);
            ++heard;
          },
          5, {0, 1, 3, 4});
      place.self.transport = transport;
      Endpoint::process().learn_key(place.self.key);
      for (const auto& other : place.others)
        if (!std::ranges::count(there, other->slot())) other->leave();
      CHECK_EQ(place.take(), ncclSuccess);
      CHECK(comes([&] { return heard == static_cast<int>(called.size()); }));
      for (const auto& other : place.others)
        CHECK_EQ(other->visited.load(), std::ranges::count(called, other->slot()));
    }
}

// The only other one is nearest on both sides.
TEST(a_new_rank_calls_no_rank_twice) {
  std::atomic<int> heard = 0;
  Place place(
      [&](JoinVisit& call) {
        agree(call, {.epoch = 1}, -1);
        ++heard;
      },
      3, {1});
  place.self.members = std::vector<int>{1, 2};
  CHECK_EQ(place.take(), ncclSuccess);
  CHECK(comes([&] { return heard == 1; }));
  CHECK_EQ(place.others[0]->visited.load(), 1);
}

namespace {

// The new rank, at this message: two words to its neighbours, two of theirs, two decisions. 0: not.
void cut_off_at(int message) {
  const std::string rule = "cut,on=repair,rank=2,frame=" + std::to_string(message);
  CHECK_EQ(flexcclSetFault(message ? rule.c_str() : nullptr), ncclSuccess);
}

}  // namespace

// It is not the neighbour that has failed.
TEST(a_new_rank_that_fails_itself_calls_nobody_else) {
  Place place([](JoinVisit& call) { agree(call, {.epoch = 1}, -1); });
  cut_off_at(1);
  CHECK_EQ(place.take(), ncclSystemError);
  cut_off_at(0);
  for (const auto& other : place.others) CHECK_EQ(other->visited.load(), 0);
}

// Of what has been decided others may know, whatever follows.
TEST(a_new_rank_has_its_place_as_soon_as_it_has_decided) {
  for (const bool on_page : {true, false})
    for (const int message : {4, 5, 6}) {
      const auto page = on_page ? page_of_a_host() : nullptr;
      Place place([page](JoinVisit& call) { agree(call, {.epoch = 1}, page ? page->fd() : -1); });
      cut_off_at(message);
      CHECK_EQ(place.take(), ncclSystemError);
      cut_off_at(0);
      CHECK_EQ(place.placed, message > (on_page ? 4 : 5));
    }
}

// At once: it does not go through all the others, whose addresses it may have to ask for.
TEST(a_new_rank_gives_up_when_its_time_is_over) {
  constexpr int kMany = 400;
  Place place([](JoinVisit&) {}, kMany, {});
  Address silent{};
  silent.ipv4 = htonl(INADDR_LOOPBACK);
  const Fd listener = listen_tcp(silent.ipv4, &silent.port);
  place.self.addresses = std::vector<Address>(kMany, silent);
  place.self.transport = flexcclTcp, place.self.timeout_ms = 200;
  std::string sentence;
  CHECK_EQ(place.take(&sentence), ncclRemoteError);
  CHECK(has(sentence, "took too long"));
}

// Both are on their way to it at the same time.
TEST(a_new_rank_is_connected_to_both_sides_before_it_speaks) {
  Place place([](JoinVisit&) {}, 5, {});
  Endpoint::process().learn_key(place.self.key);
  const std::uint32_t own = htonl(INADDR_LOOPBACK);
  std::vector<Address> addresses(5, Endpoint::process().address());
  for (Address& address : addresses) address.ipv4 = own, address.port = 0;
  Fd up = listen_tcp(own, &addresses[3].port), down = listen_tcp(own, &addresses[1].port);
  listen_tcp(own, &addresses[0].port), listen_tcp(own, &addresses[4].port);  // not any more
  place.self.addresses = addresses, place.self.transport = flexcclTcp;
  std::string sentence;
  std::thread taking([&] { CHECK_EQ(place.take(&sentence), ncclRemoteError); });
  const auto calls = [](const Fd& listener) {
    pollfd look{listener.get(), POLLIN, 0};
    return poll(&look, 1, 0) == 1;
  };
  CHECK(comes([&] { return calls(up) && calls(down); }));  // neither has said anything
  up = Fd(), down = Fd();
  taking.join();
  CHECK(has(sentence, "reaches none of the others"));
}

CHECK_MAIN
