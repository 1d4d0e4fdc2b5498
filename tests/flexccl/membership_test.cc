// What a rank knows of the others: cheap copies that do not see each other's changes, steps of the
// epoch, and infos, of which every byte that is used is signed.
#include "membership/membership.h"

#include <cstring>

#include "base/error.h"
#include "check.h"

namespace {

using namespace flexccl;

Address address_of(int number) {
  Address address{};
  address.port = static_cast<std::uint16_t>(number + 1);
  return address;
}

Membership member(int slot, int ranks, int free) {
  std::vector<Address> addresses;
  std::vector<int> members;
  for (int i = 0; i < ranks; ++i) addresses.push_back(address_of(i)), members.push_back(i);
  addresses.resize(static_cast<std::size_t>(ranks + free));
  Membership self{.comm = 7, .slot = slot, .timeout_ms = 1000};
  self.members = members;
  self.addresses = addresses;
  self.key.bytes.fill(3);
  return self;
}

flexcclInfo_t raw_of(const Info& info) {
  flexcclInfo_t raw{};
  std::memcpy(&raw, &info, sizeof info);
  return raw;
}

ncclResult_t answer_to(const Membership& self, const flexcclInfo_t& info, int slot) {
  try {
    missing_steps(self, info, Repair::kReplace, slot);
    return ncclSuccess;
  } catch (const Error& error) {
    return error.code;
  }
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

TEST(every_used_byte_of_an_info_is_signed) {
  const Membership survivor = member(0, 12, 1);
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

CHECK_MAIN
