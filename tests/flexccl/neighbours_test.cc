// One rank whose neighbours are the test: what it asks them while it is in doubt, what it takes
// when it is told, and what it tells those that are behind.
#include <chrono>
#include <optional>

#include "neighbour.h"

using namespace members;

TEST(a_rank_in_doubt_asks_for_the_decision) {
  const Membership self = membership(0, 3, {step_to(1, 1)});
  const auto one = Neighbour::at(self, 1), fresh = Neighbour::at(self, 2);
  fresh->status = [](int) { return status_in(2, Availability::kHere); };
  {
    OperationRunner runner(self, 0);
    runner.agree({step_to(2, 2)});
    const auto begun = std::chrono::steady_clock::now();
    const Receiving receiving(runner);
    CHECK(comes([&] { return one->asked_for_steps >= 3; }));  // again and again
    // Each 20 ms, not whenever it looks at the page.
    const auto asked = one->asked_for_steps.load();
    CHECK(asked <= (std::chrono::steady_clock::now() - begun) / std::chrono::milliseconds(20));
    CHECK_EQ(runner.membership().epoch, 1u);
    one->steps = {step_to(1, 1), step_to(2, 2)};
    CHECK(comes([&] { return runner.membership().epoch == 2; }));
  }
  one->leave(), fresh->leave();
}

// The nearest one first, and none behind the one that has told it.
TEST(a_rank_in_doubt_asks_no_further_than_it_has_to) {
  for (const int knows : {1, 4}) {
    const Membership self = membership(0, 5, {step_to(1, 1)});
    const auto near = Neighbour::at(self, 1), far = Neighbour::at(self, 4);
    (knows == 1 ? near : far)->steps = {step_to(2, 2)};
    {
      OperationRunner runner(self, 0);
      runner.agree({step_to(2, 2)});
      const Receiving receiving(runner);
      CHECK(comes([&] { return runner.membership().epoch == 2; }));
      CHECK_EQ(near->asked_for_steps.load(), 1);
      CHECK_EQ(far->asked_for_steps.load(), knows == 4);
    }
    near->leave(), far->leave();
  }
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

// The rest of a frame that a repair has cut off is sent to a rank that has taken the step, too.
// Such a one has a link already, so that nothing else asks it how far it is, or tells it.
TEST(a_rank_pays_its_debt_to_one_that_has_come_as_far) {
  const Membership self = membership(0, 3, {step_to(1, 2)});
  const auto one = Neighbour::at(self, 1);
  std::atomic<std::uint32_t> epoch = 1;
  one->status = [&](int) { return status_in(epoch, Availability::kHere); };
  {
    OperationRunner runner(self, 0);
    const auto link = [&] { return one->inbox().find(0); };
    {
      const Sending cut_off(runner, 1 << 20);
      CHECK(comes([&] { return link() && !link()->peek().empty(); }));
      runner.change({step_to(2, 2)});
      CHECK(comes([&] { return cut_off.is_done.load(); }));  // the other side fetches it
    }
    link()->consume(link()->peek().size());
    const Sending sending(runner);
    CHECK(comes([&] { return one->heard == 1; }));
    const int before = one->asked;
    CHECK(comes([&] { return one->asked > before + 4; }));
    CHECK_EQ(one->heard.load(), 1);
    CHECK(link()->peek().empty());
    epoch = 2;
    CHECK(comes([&] {
      link()->consume(link()->peek().size());
      return sending.is_done.load();
    }));
    CHECK_EQ(one->heard.load(), 1);
  }
  one->leave();
}

// No rank is told that has come as far.
TEST(a_rank_that_has_come_as_far_is_told_nothing) {
  const Membership self = membership(0, 3, {step_to(1, 2)});
  const auto one = Neighbour::at(self, 1);
  one->status = [](int) { return status_in(2, Availability::kHere); };
  {
    OperationRunner runner(self, 0);
    const auto link = [&] { return one->inbox().find(0); };
    {
      const Sending cut_off(runner, 1 << 20);
      CHECK(comes([&] { return link() && !link()->peek().empty(); }));
      runner.change({step_to(2, 2)});
      CHECK(comes([&] { return cut_off.is_done.load(); }));
    }
    const Sending sending(runner);
    CHECK(comes([&] {
      link()->consume(link()->peek().size());
      return sending.is_done.load();
    }));
    CHECK_EQ(one->heard.load(), 0);
  }
  one->leave();
}

TEST(a_rank_that_is_told_takes_the_step_at_once) {
  const Membership self = membership(0, 3, {step_to(1, 1)});
  OperationRunner runner(self, 0);
  tell_of(self, {step_to(2, 2)});
  CHECK_EQ(runner.membership().epoch, 2u);
}

// What the new rank has heard of as decided is taken; its own step is in doubt.
TEST(a_rank_that_agrees_takes_what_was_decided_before_at_once) {
  const Membership self = membership(0, 5, {step_to(1, 1)});
  OperationRunner runner(self, 0);
  runner.agree({step_to(2, 1), step_to(3, 2)});
  CHECK_EQ(runner.membership().epoch, 2u);
  CHECK_EQ(runner.expected()->epoch, 3u);
}

// An average of two that one is left of when it is first tried: as of one.
TEST(an_operation_is_made_anew_for_a_step_before_its_first_attempt) {
  const Membership self = membership(0, 2, {step_to(1, 1)});
  OperationRunner runner(self, 0);
  float value = 1;
  auto* at = reinterpret_cast<std::byte*>(&value);
  int made = 0;
  std::optional<Changing> removing;
  runner.run([&](const Membership& now) {
    if (++made == 1) {
      const auto inbox = Endpoint::process().find({self.comm, 0, 0});
      const std::uint32_t before = inbox->doorbell().value();
      removing.emplace(runner, Change{2, 1, Repair::kRemove, 0, {}});
      CHECK(comes([&] { return inbox->doorbell().value() != before; }));  // it interrupts this
    }
    OpDescriptor op{};
    op.collective = Collective::kAllReduce, op.redop = ncclAvg, op.dtype = ncclFloat32;
    op.count = 1;
    return Operation{.op = op,
                     .reduction = average(ncclFloat32, now.ring().size),
                     .buffers = {at, at},
                     .reduce = all_reduce};
  });
  CHECK_EQ(made, 2);
  CHECK_EQ(value, 1.0f);
}

// As one does that too many ask at once.
TEST(a_rank_that_refuses_a_question_is_asked_again) {
  Membership self = membership(0, 2, {step_to(1, 1)});
  self.repair_ms = 2000;
  const auto one = Neighbour::at(self, 1);
  float value = 1, sum = 5;
  one->status = [](int) {
    Answer status = status_in(1, Availability::kHere);
    status.done_at_fence = 1;
    return status;
  };
  one->kept = [&](int times) {
    if (times == 1) fail(ncclRemoteError, "it is asked too much");
    const auto bytes = std::as_bytes(std::span(&sum, 1));
    return std::vector(bytes.begin(), bytes.end());
  };
  {
    OperationRunner runner(self, 0);
    auto* at = reinterpret_cast<std::byte*>(&value);
    const auto code = result_of([&] {
      runner.run([&](const Membership&) {
        OpDescriptor op{};
        op.collective = Collective::kAllReduce, op.dtype = ncclFloat32, op.count = 1;
        return Operation{.op = op, .buffers = {at, at}, .reduce = all_reduce};
      });
    });
    CHECK_EQ(code, ncclSuccess);
    CHECK_EQ(value, 5.0f);
    CHECK_EQ(one->fetched.load(), 3);  // refused, whether it has it, and what it has
    CHECK(!runner.paused());
  }
  one->leave();
}

TEST(where_nothing_is_to_come_a_rank_expects_what_it_has) {
  const Membership self = membership(0, 3, {step_to(1, 1)});
  OperationRunner runner(self, 0);
  CHECK(runner.expected() == runner.view());
  tell_of(self, {step_to(2, 0)});  // another process has its place: the next operation says that
  CHECK_EQ(runner.decided().size(), 1u);
  CHECK(runner.expected() == runner.view());
}

TEST(the_neighbours_ask_a_new_rank_that_has_not_called) {
  for (const int slot : {0, 1, 3, 4}) {
    const Membership self = membership(slot, 5, {step_to(1, 1)});
    const auto fresh = Neighbour::at(self, 2);
    fresh->status = [](int) { return status_in(2, Availability::kHere); };
    OperationRunner runner(self, 0);
    runner.agree({step_to(2, 2)});
    CHECK_EQ(fresh->asked.load(), slot == 1 || slot == 3);
    fresh->leave();
  }
}

// No rank would answer: there is only the call.
TEST(a_new_rank_that_has_called_is_not_asked) {
  const Membership self = membership(1, 3, {step_to(1, 1)});
  const Change step = step_to(2, 2);
  OperationRunner runner(self, 0);
  JoinCall call({self.address(1), self.comm, 1, self.transport, self.key, in_ms(20'000)}, 2, 2);
  call.speak(std::as_bytes(std::span(&step, 1)));
  // It may not have been heard yet.
  CHECK(comes([&] { return result_of([&] { runner.agree({step}); }) == ncclSuccess; }));
}

namespace {

// Whether an operation that sleeps is woken by `tell`. It looks by itself now and then, and may
// take the step before it can be woken.
bool wakes(const std::function<void(const Membership&, OperationRunner&)>& tell) {
  for (int time = 0; time < 20; ++time) {
    const Membership self = membership(0, 3, {step_to(1, 2)});
    const auto one = Neighbour::at(self, 1);
    OperationRunner runner(self, 0);
    const auto inbox = Endpoint::process().find({self.comm, 0, 0});
    bool rung = false;
    {
      const Receiving receiving(runner);
      CHECK(comes([&] { return one->asked == 1; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(time % 3));
      const std::uint32_t before = inbox->doorbell().value();
      tell(self, runner);
      rung = inbox->doorbell().value() != before;
      CHECK(comes([&] { return runner.membership().epoch == 2; }));
      CHECK(!receiving.is_done);
    }
    one->leave();
    if (rung) return true;
  }
  return false;
}

}  // namespace

TEST(a_rank_that_is_told_interrupts_its_operation) {
  CHECK(wakes([](const Membership& self, OperationRunner&) { tell_of(self, {step_to(2, 2)}); }));
}

// And does not wait until the operation is over.
TEST(a_change_interrupts_the_operation) {
  CHECK(wakes([](const Membership&, OperationRunner& runner) {
    const Changing changing(runner, step_to(2, 2));
    CHECK(comes([&] { return changing.is_done.load(); }));
    if (!changing.is_done) runner.abort();
  }));
}

// Others that sleep in the operation, and see what is decided on the page of their host, are woken.
TEST(a_rank_that_takes_a_step_rings_its_peers) {
  for (const bool changes : {true, false}) {
    const Membership self = membership(0, 3, {step_to(1, 2)});
    const auto one = Neighbour::at(self, 1);
    {
      OperationRunner runner(self, 0);
      {
        const Sending sending(runner);
        CHECK(comes([&] { return sending.is_done.load(); }));
      }
      const std::uint32_t before = one->inbox().doorbell().value();
      changes ? runner.change({step_to(2, 2)}) : tell_of(self, {step_to(2, 2)});
      CHECK(one->inbox().doorbell().value() != before);
    }
    one->leave();
  }
}

CHECK_MAIN
