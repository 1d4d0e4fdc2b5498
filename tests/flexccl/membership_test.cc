// What a rank knows of the others: cheap copies that do not see each other's changes, steps of the
// epoch, and infos, of which every byte that is used is signed.
#include "membership/membership.h"

#include "check.h"
#include "members.h"

namespace {

using namespace members;

ncclResult_t answer_to(const Membership& self, const flexcclInfo_t& info, int slot) {
  return result_of([&] { missing_steps(self, info, Repair::kReplace, slot); });
}

ncclResult_t taken(const Membership& self, const Change& step) {
  return result_of([&] { after(self, std::vector{step}); });
}

}  // namespace

TEST(a_copy_of_an_address_book_keeps_what_it_had) {
  AddressBook book(std::vector<Address>(50));
  std::vector<AddressBook> before;
  for (int round = 0; round < 3; ++round)
    for (int slot = 0; slot < 40; ++slot) {
      before.push_back(book);
      book.set(static_cast<std::size_t>(slot), address_of(100 * round + slot));
    }
  for (std::size_t at = 0; at < before.size(); ++at)
    for (std::size_t slot = 0; slot < 50; ++slot) {
      // The last time that `slot` was set before the copy number `at` was made.
      const std::size_t last = at > slot ? (at - slot - 1) / 40 : 0;
      const bool known = slot < 40 && at > slot;
      const int port = known ? int(100 * last + slot + 1) : 0;
      CHECK_EQ(int(before[at][slot].port), port);
    }
}

TEST(a_step_changes_one_slot_and_no_copy) {
  const Membership first = member(0, 4, 1);
  const Membership removed = after(first, std::vector{Change{1, 2, Repair::kRemove, 0, {}}});
  const Membership added =
      after(removed, std::vector{Change{2, 4, Repair::kAdd, 0, address_of(9)}});
  CHECK_EQ(first.members.size(), 4u);
  CHECK_EQ(first.position(2), 2);
  CHECK_EQ(removed.position(2), -1);
  CHECK_EQ(removed.position(3), 2);
  CHECK_EQ(int(removed.address(2).port), 0);
  CHECK_EQ(added.position(4), 3);
  CHECK_EQ(int(added.address(4).port), 10);
  CHECK_EQ(int(removed.address(4).port), 0);
  CHECK_EQ(int(added.address(3).port), 4);
}

// Slot 3 is free, slot 1 or 0 is its own.
TEST(a_step_that_makes_no_sense_is_refused) {
  const Membership one = member(1, 3, 1);
  for (const Change& step :
       {Change{1, 0, Repair::kReplace}, Change{1, 2, Repair::kRemove}, Change{1, 3, Repair::kAdd}})
    CHECK_EQ(taken(one, step), ncclSuccess);
  for (const Change& step :
       {Change{0, 2, Repair::kReplace}, Change{2, 2, Repair::kReplace}, Change{1, -1, Repair::kAdd},
        Change{1, 4, Repair::kAdd}, Change{1, 3, Repair::kReplace}, Change{1, 3, Repair::kRemove},
        Change{1, 0, Repair::kAdd}, Change{1, 2, Repair::kAdd}, Change{1, 1, Repair::kReplace},
        Change{1, 1, Repair::kRemove}})
    CHECK_EQ(taken(one, step), ncclInvalidUsage);
  CHECK_EQ(taken(member(0, 3, 1), {1, 1, Repair::kReplace}), ncclSuccess);
}

TEST(a_rank_keeps_its_last_steps) {
  for (const int steps : {31, 32, 33, 40}) {
    const Membership self = member_after(steps, 0, 4);
    CHECK_EQ(self.epoch, static_cast<std::uint32_t>(steps));
    CHECK_EQ(int(self.changes.size()), std::min(steps, 32));
    CHECK_EQ(int(self.changes.front().epoch), std::max(1, steps - 31));
    CHECK_EQ(int(self.changes.back().epoch), steps);
    CHECK_EQ(int(self.address(1).port), 100 + steps + 1);
  }
}

TEST(members_stay_in_the_order_of_their_slots) {
  const Membership before = member(0, 4, 2);
  const Membership removed =
      after(before, std::vector{Change{1, 2, Repair::kRemove}, Change{2, 5, Repair::kAdd},
                                Change{3, 2, Repair::kAdd}});
  CHECK((std::vector<int>{removed.members.begin(), removed.members.end()}) ==
        (std::vector<int>{0, 1, 2, 3, 5}));
  CHECK_EQ(before.position(9), -1);
  CHECK_EQ(before.position(0), 0);
}

TEST(neighbours_are_the_nearest_live_slots_of_the_ring) {
  const Membership self = after(member(0, 5, 1), std::vector{Change{1, 2, Repair::kRemove}});
  const std::pair<int, int> expected[] = {{4, 1}, {0, 3}, {1, 3}, {1, 4}, {3, 0}, {4, 0}};
  for (int slot = 0; slot < 6; ++slot) {
    CHECK_EQ(neighbours(self, slot).first, expected[slot].first);
    CHECK_EQ(neighbours(self, slot).second, expected[slot].second);
  }
}

TEST(a_step_is_the_same_if_it_puts_the_same_process_there) {
  Change step{3, 2, Repair::kReplace, 0, address_of(1)};
  step.address.process[0] = 5;
  CHECK(same_step(step, step));
  Change other = step;
  other.address.port = 99;  // where a process is reached does not matter
  CHECK(same_step(step, other));
  for (const auto& change : std::initializer_list<void (*)(Change*)>{
           [](Change* one) { one->epoch = 4; }, [](Change* one) { one->slot = 1; },
           [](Change* one) { one->repair = Repair::kAdd; },
           [](Change* one) { one->address.process[0] = 6; }}) {
    other = step;
    change(&other);
    CHECK(!same_step(step, other));
    CHECK(!same_step(other, step));
  }
}

TEST(a_survivor_may_lack_several_steps) {
  const Membership survivor = member(0, 4, 0);
  const std::vector<Change> earlier{{1, 3, Repair::kReplace, 0, address_of(20)},
                                    {2, 1, Repair::kReplace, 0, address_of(21)}};
  std::uint64_t position = 0;
  const Info exported = export_info(after(survivor, earlier), 1, 5);
  const Membership joined = join_as(raw_of(exported), 1, address_of(22), &position);
  CHECK_EQ(position, 5u);
  const auto steps = missing_steps(survivor, raw_of(new_node_info(joined)), Repair::kReplace, 1);
  CHECK_EQ(steps.size(), 3u);
  const Membership now = after(survivor, steps);
  CHECK_EQ(now.epoch, 3u);
  CHECK_EQ(int(now.address(3).port), 21);
  CHECK_EQ(int(now.address(1).port), 23);
}

// The numbers of slots fill their last byte in part, or whole.
void every_used_byte_is_signed(int slots) {
  const Membership survivor = member(0, slots - 1, 1);
  std::uint64_t position = 0;
  const Membership joined =
      join_as(raw_of(export_info(survivor, 1, 0)), 1, address_of(30), &position);
  const Info info = new_node_info(joined);
  flexcclInfo_t raw = raw_of(info);
  CHECK_EQ(answer_to(survivor, raw, 1), ncclSuccess);
  const auto is_used = [&](std::size_t at) {
    const std::size_t changes = offsetof(Info, changes), live = offsetof(Info, live);
    return at < offsetof(Info, known) ||
           (at >= changes && at < changes + info.change_count * sizeof(Change)) ||
           (at >= live && at < live + (info.slots + 7) / 8) ||
           (at >= offsetof(Info, mac) && at < sizeof(Info));
  };
  for (std::size_t at = 0; at < sizeof raw.internal; ++at) {
    raw.internal[at] = static_cast<char>(raw.internal[at] ^ 0x10);
    CHECK_EQ(answer_to(survivor, raw, 1), is_used(at) ? ncclInvalidArgument : ncclSuccess);
    raw.internal[at] = static_cast<char>(raw.internal[at] ^ 0x10);
  }
}

TEST(every_used_byte_of_an_info_is_signed) {
  for (const int slots : {13, 16, 72}) every_used_byte_is_signed(slots);
}

CHECK_MAIN
