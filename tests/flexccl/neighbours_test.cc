// One rank whose neighbours are the test: what it asks them while it is in doubt, what it tells
// those that are behind, and how it takes its place among them.
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "check.h"
#include "comes.h"
#include "members.h"
#include "membership/membership_log.h"
#include "runner/operation_runner.h"
#include "transport/endpoint.h"
#include "transport/join.h"

namespace {

using namespace members;

Key job_key() {
  Key key;
  key.bytes.fill(4);
  return key;
}

// Of a rank in this process whose other ranks are there, too.
Membership membership(int slot, int ranks, std::vector<Change> changes) {
  static std::uint64_t comm = 3000;
  Membership self = member(slot, ranks, 0);
  self.comm = ++comm, self.key = job_key(), self.transport = flexcclLoopback;
  self.addresses =
      std::vector<Address>(static_cast<std::size_t>(ranks), Endpoint::process().address());
  self.timeout_ms = self.repair_ms = 20'000;
  self.epoch = changes.back().epoch, self.changes = std::move(changes);
  return self;
}

Change step_to(std::uint32_t epoch, int slot) {
  Change step{epoch, slot, Repair::kReplace, 0, Endpoint::process().address()};
  step.address.process[0] = static_cast<std::uint8_t>(epoch);
  return step;
}

class Neighbour : public Responder {
 public:
  Neighbour(const Membership& self, int slot)
      : name_{self.comm, self.epoch, static_cast<std::uint32_t>(slot)} {}
  Answer answer(const Question& question, std::shared_ptr<const void>* owner,
                std::span<const std::byte>* payload) override {
    if (question.verb == Verb::kStatus) return status(++asked);
    if (question.verb != Verb::kSteps) return {};
    ++asked_for_steps;
    const auto all = std::make_shared<std::vector<Change>>(steps);
    all->resize(Info::kMaxChanges);
    *payload = std::as_bytes(std::span(*all)), *owner = all;
    return {};
  }
  void hear(std::span<const std::byte>) override {
    if (++heard <= deaf) fail(ncclRemoteError, "it does not listen");
  }
  void join(JoinVisit& call) override { visit(call); }
  static std::shared_ptr<Neighbour> at(const Membership& self, int slot) {
    auto made = std::make_shared<Neighbour>(self, slot);
    made->inbox_ = std::make_shared<Inbox>(fingerprint(self.key), self.epoch, made);
    Endpoint::process().add(made->name_, made->inbox_);
    return made;
  }
  void leave() {
    Endpoint::process().remove(name_, inbox_);
    inbox_.reset();
  }

  std::function<Answer(int times)> status = [](int) { return Answer(); };
  std::function<void(JoinVisit&)> visit = [](JoinVisit&) {};
  std::vector<Change> steps;
  std::atomic<int> asked = 0, asked_for_steps = 0, heard = 0, deaf = 0;

 private:
  InboxName name_;
  std::shared_ptr<Inbox> inbox_;
};

// Receives something of rank 1, until it is aborted.
struct Receiving {
  explicit Receiving(OperationRunner& runner)
      : runner(runner), thread([this] {
          PointToPoint call{.peer = 1, .buffers = {nullptr, reinterpret_cast<std::byte*>(&got)}};
          call.op.dtype = ncclFloat32, call.op.count = 1;
          result = result_of([&] { this->runner.run({call}); });
        }) {}
  ~Receiving() {
    runner.abort();
    thread.join();
    CHECK_EQ(result, ncclInvalidUsage);  // aborted
  }
  OperationRunner& runner;
  float got = 0;
  ncclResult_t result = ncclSuccess;
  std::thread thread;
};

Answer status_in(std::uint32_t epoch, Availability availability) {
  return {.availability = availability, .epoch = epoch};
}

}  // namespace

TEST(a_rank_in_doubt_asks_for_the_decision) {
  const Membership self = membership(0, 3, {step_to(1, 1)});
  const auto one = Neighbour::at(self, 1), fresh = Neighbour::at(self, 2);
  fresh->status = [](int) { return status_in(2, Availability::kHere); };
  {
    OperationRunner runner(self, 0);
    runner.agree({step_to(2, 2)});
    const Receiving receiving(runner);
    CHECK(comes([&] { return one->asked_for_steps >= 2; }));  // again and again
    CHECK_EQ(runner.membership().epoch, 1u);
    one->steps = {step_to(1, 1), step_to(2, 2)};
    CHECK(comes([&] { return runner.membership().epoch == 2; }));
  }
  one->leave(), fresh->leave();
}

TEST(a_rank_asks_one_that_is_ahead_for_its_steps) {
  const Membership self = membership(0, 3, {step_to(1, 2)});
  const auto one = Neighbour::at(self, 1);
  one->steps = {step_to(2, 2)};
  one->status = [](int) { return status_in(2, Availability::kNotYet); };
  {
    OperationRunner runner(self, 0);
    const Receiving receiving(runner);
    CHECK(comes([&] { return runner.membership().epoch == 2; }));
    CHECK_EQ(one->asked_for_steps.load(), 1);
    CHECK_EQ(one->heard.load(), 0);
  }
  one->leave();
}

// A rank is added when the caller says so: the step is known meanwhile.
TEST(a_rank_asks_for_no_step_that_it_knows) {
  Membership self = membership(0, 3, {step_to(1, 2)});
  self.addresses = std::vector<Address>(4, Endpoint::process().address());
  const auto one = Neighbour::at(self, 1);
  Change added = step_to(2, 3);
  added.repair = Repair::kAdd;
  one->steps = {added};
  one->status = [](int) { return status_in(2, Availability::kNotYet); };
  {
    OperationRunner runner(self, 0);
    const Receiving receiving(runner);
    CHECK(comes([&] { return one->asked_for_steps == 1; }));
    const int before = one->asked;
    CHECK(comes([&] { return one->asked > before + 4; }));
    CHECK_EQ(one->asked_for_steps.load(), 1);
    CHECK_EQ(runner.membership().epoch, 1u);
  }
  one->leave();
}

TEST(a_rank_agrees_to_nothing_else_than_what_was_decided) {
  const Membership self = membership(0, 3, {step_to(1, 1)});
  const auto fresh = Neighbour::at(self, 2);
  fresh->status = [](int) { return status_in(2, Availability::kHere); };
  OperationRunner runner(self, 0);
  runner.change({step_to(2, 2)});
  CHECK_EQ(runner.membership().epoch, 2u);
  Change other = step_to(2, 2);
  other.address.process[0] ^= 1;
  CHECK_EQ(result_of([&] { runner.agree({other}); }), ncclInvalidUsage);
  CHECK_EQ(result_of([&] { runner.agree({step_to(2, 2)}); }), ncclSuccess);
  fresh->leave();
}

TEST(a_rank_that_is_behind_is_told_once) {
  for (const int deaf : {0, 2}) {
    const Membership self = membership(0, 3, {step_to(1, 2)});
    const auto one = Neighbour::at(self, 1);
    one->deaf = deaf;  // it is told until it has heard
    one->status = [](int) { return status_in(0, Availability::kNotYet); };
    {
      OperationRunner runner(self, 0);
      const Receiving receiving(runner);
      CHECK(comes([&] { return one->heard == deaf + 1; }));
      const int before = one->asked;
      CHECK(comes([&] { return one->asked > before + 4; }));
      CHECK_EQ(one->heard.load(), deaf + 1);
    }
    one->leave();
  }
}

namespace {

struct Place {
  explicit Place(const std::function<void(JoinVisit&)>& visit)
      : self(membership(2, 5, {step_to(1, 2)})),
        before(Neighbour::at(self, 1)),
        behind(Neighbour::at(self, 3)) {
    before->visit = behind->visit = visit;
  }
  ~Place() { before->leave(), behind->leave(); }
  ncclResult_t take(std::string* sentence = nullptr) {
    OperationRunner runner(self, 0);
    ncclResult_t code = ncclSuccess;
    try {
      runner.take_place();
    } catch (const Error& error) {
      code = error.code;
      if (sentence) *sentence = error.what();
    }
    CHECK_EQ(runner.placed(), code == ncclSuccess);
    return code;
  }
  Membership self;
  std::shared_ptr<Neighbour> before, behind;
};

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
  CHECK(comes([&] { return heard == 2; }));
}

TEST(a_new_rank_has_no_place_where_something_else_was_decided) {
  std::string sentence;
  Place refused(
      [](JoinVisit& call) { call.answer({.availability = Availability::kGone, .epoch = 7}, -1); });
  CHECK_EQ(refused.take(&sentence), ncclInvalidUsage);
  CHECK(sentence.find("knows another step of epoch [7]") != std::string::npos);
  const auto page = page_of_a_host();
  CHECK(page->publish(std::vector{step_to(1, 3)}));
  Place late([&](JoinVisit& call) { agree(call, {.epoch = 1}, page->fd()); });
  CHECK_EQ(late.take(&sentence), ncclInvalidUsage);
  CHECK(sentence.find("something else was decided meanwhile") != std::string::npos);
}

CHECK_MAIN
