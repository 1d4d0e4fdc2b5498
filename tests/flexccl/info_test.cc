// What a rank says of its communicator to a new process, what that makes of it, and what the other
// ranks take from the new one: every field, the limits, and infos that are signed but wrong.
#include "check.h"
#include "members.h"

namespace {

using namespace members;

Membership joined(const Info& info, int slot, int number = 30, std::uint64_t* position = nullptr) {
  std::uint64_t unused = 0;
  return join_as(raw_of(info), slot, address_of(number), position ? position : &unused);
}

ncclResult_t exported(const Membership& from, int slot) {
  return result_of([&] { export_info(from, slot, 0); });
}

ncclResult_t taken(const Membership& self, const flexcclInfo_t& info, int slot = 1,
                   Repair repair = Repair::kReplace) {
  return result_of([&] { missing_steps(self, info, repair, slot); });
}

bool is_live(const Info& info, int slot) {
  return info.live[slot / 8] >> slot % 8 & 1;
}

template <class Change>
Info changed(Info info, const Change& change) {
  change(&info);
  return info;
}

}  // namespace

TEST(only_for_a_slot_of_another_rank) {
  CHECK_EQ(exported(member(1, 3, 1), 0), ncclSuccess);
  CHECK_EQ(exported(member(1, 3, 1), 3), ncclSuccess);
  for (const int slot : {-1, 1, 4}) CHECK_EQ(exported(member(1, 3, 1), slot), ncclInvalidArgument);
  CHECK_EQ(exported(member(0, 8192, 0), 8191), ncclSuccess);
  CHECK_EQ(exported(member(0, 8192, 1), 8191), ncclInvalidUsage);
}

TEST(an_info_has_all_that_a_new_process_needs) {
  Membership self = member(1, 20, 1);
  self.transport = flexcclTcp;
  self.repair_ms = 77;
  self.take({1, 12, Repair::kRemove});
  const Info info = export_info(self, 0, 5);
  CHECK_EQ(info.magic, kMagic);
  CHECK_EQ(info.version, kWireVersion);
  CHECK_EQ(info.comm, 7u);
  CHECK_EQ(info.change.epoch, 2u);
  CHECK_EQ(info.change.slot, 0);
  CHECK(info.change.repair == Repair::kReplace);
  CHECK_EQ(info.change.padding, 0u);
  CHECK(info.key == self.key);
  CHECK_EQ(info.position, 5u);
  CHECK_EQ(info.timeout_ms, 1000u);
  CHECK_EQ(info.repair_ms, 77u);
  CHECK_EQ(info.transport, static_cast<std::uint32_t>(flexcclTcp));
  CHECK_EQ(info.slots, 21u);
  CHECK_EQ(info.change_count, 1u);
  for (int slot = 0; slot < 24; ++slot) CHECK_EQ(is_live(info, slot), slot < 20 && slot != 12);
  CHECK(export_info(self, 12, 0).change.repair == Repair::kAdd);
  CHECK(export_info(self, 20, 0).change.repair == Repair::kAdd);
}

// Those that it has to call first, then the exporting rank, then others while there is room.
TEST(an_info_names_the_neighbours_first) {
  Membership self = member(20, 40, 0);
  self.take({1, 3, Repair::kReplace, 0, Address{}});  // where that is, is not known here
  const Info info = export_info(self, 10, 0);
  std::vector<int> expected{9, 11, 20};
  for (int slot = 0; expected.size() < 32; ++slot)
    if (slot != 3 && slot != 9 && slot != 10 && slot != 11 && slot != 20) expected.push_back(slot);
  CHECK_EQ(info.known_count, 32u);
  for (std::size_t i = 0; i < 32; ++i) {
    CHECK_EQ(info.known[i].slot, expected[i]);
    CHECK_EQ(info.known[i].padding, 0u);
    CHECK_EQ(int(info.known[i].address.port), expected[i] + 1);
  }
  CHECK_EQ(export_info(member(0, 4, 0), 1, 0).known_count, 3u);
}

TEST(a_new_process_is_what_the_info_says) {
  Membership self = member(1, 20, 2);
  self.transport = flexcclShm;
  self.repair_ms = 77;
  self.take({1, 12, Repair::kRemove});
  self.take({2, 13, Repair::kReplace, 0, address_of(60)});
  self.take({3, 8, Repair::kRemove});
  std::uint64_t position = 0;
  const Membership fresh = joined(export_info(self, 21, 9), 21, 30, &position);
  CHECK_EQ(position, 9u);
  CHECK_EQ(fresh.comm, 7u);
  CHECK_EQ(fresh.epoch, 4u);
  CHECK_EQ(fresh.slot, 21);
  CHECK(fresh.key == self.key);
  CHECK_EQ(fresh.transport, flexcclShm);
  CHECK_EQ(fresh.timeout_ms, 1000u);
  CHECK_EQ(fresh.repair_ms, 77u);
  CHECK_EQ(fresh.slots(), 22);
  for (int slot = 0; slot < 22; ++slot)
    CHECK_EQ(fresh.position(slot) >= 0, slot != 8 && slot != 12 && slot != 20);
  CHECK_EQ(fresh.members.size(), 19u);
  CHECK_EQ(int(fresh.address(0).port), 1);
  CHECK_EQ(int(fresh.address(13).port), 61);
  CHECK_EQ(int(fresh.address(12).port), 0);
  CHECK_EQ(int(fresh.address(21).port), 31);
  CHECK_EQ(fresh.changes.size(), 4u);
  CHECK_EQ(fresh.changes[0].slot, 12);
  CHECK_EQ(fresh.changes[3].slot, 21);
  CHECK_EQ(int(fresh.changes[3].address.port), 31);
}

// Of more ranks than an info names, the steps tell where a later one is.
TEST(a_new_process_learns_addresses_from_steps_too) {
  Membership self = member(0, 60, 0);
  self.take({1, 50, Repair::kReplace, 0, address_of(90)});
  const Membership fresh = joined(export_info(self, 1, 0), 1);
  CHECK_EQ(int(fresh.address(50).port), 91);
  CHECK_EQ(int(fresh.address(51).port), 0);
}

TEST(an_info_for_another_slot_or_a_damaged_one_is_refused) {
  const Info info = export_info(member(0, 4, 0), 1, 0);
  CHECK_EQ(result_of([&] { joined(info, 2); }), ncclInvalidArgument);
  const Info damaged = changed(info, [](Info* one) { one->timeout_ms ^= 1; });
  CHECK_EQ(result_of([&] { joined(damaged, 1); }), ncclInvalidArgument);
  CHECK_EQ(result_of([&] { joined(info, 1); }), ncclSuccess);
}

// A member of the job may write anything: rows of slots that there are not are left out.
TEST(rows_of_slots_that_are_not_there_are_left_out) {
  const Membership self = member(1, 5, 0);
  for (const int wrong : {-1, 5, 1 << 30}) {
    Info info = export_info(self, 2, 0);
    info.known[0].slot = wrong;
    info.known[0].address.process.fill(0xff);
    info.known[0].address.host = ~std::uint64_t{0};
    std::uint64_t position = 0;
    const Membership fresh = join_as(signed_anew(info, self.key), 2, address_of(8), &position);
    CHECK_EQ(fresh.slots(), 5);
    CHECK_EQ(int(fresh.address(0).port), 1);
    CHECK_EQ(int(fresh.address(4).port), 5);
  }
}

TEST(bits_of_slots_that_are_not_there_are_left_out) {
  const Membership self = member(1, 5, 0);
  Info info = export_info(self, 2, 0);
  info.live[0] = 0xff;
  std::uint64_t position = 0;
  const Membership fresh = join_as(signed_anew(info, self.key), 2, address_of(8), &position);
  CHECK_EQ(fresh.members.size(), 5u);
}

TEST(counts_beyond_their_limits_are_refused) {
  const Info info = export_info(member_after(32, 0, 40), 5, 0);
  CHECK_EQ(info.known_count, 32u);
  CHECK_EQ(info.change_count, 32u);
  CHECK_EQ(slot_of(raw_of(info)), 5);
  CHECK_EQ(slot_of(raw_of(export_info(member(0, 8192, 0), 6, 0))), 6);
  for (const auto& change : std::initializer_list<void (*)(Info*)>{
           [](Info* one) { one->magic ^= 1; }, [](Info* one) { one->version ^= 1; },
           [](Info* one) { one->known_count = 33; }, [](Info* one) { one->change_count = 33; },
           [](Info* one) { one->slots = 8193; }}) {
    const flexcclInfo_t wrong = raw_of(changed(info, change));
    CHECK_EQ(result_of([&] { slot_of(wrong); }), ncclInvalidArgument);
  }
}

// A new process has one step more than its exporter: those that fit are passed on.
TEST(the_newest_steps_are_passed_on) {
  const Membership self = member_after(40, 0, 12);
  const Membership fresh = joined(export_info(self, 2, 0), 2);
  CHECK_EQ(fresh.changes.size(), 33u);
  const Info info = new_node_info(fresh);
  CHECK_EQ(info.magic, kMagic);
  CHECK_EQ(info.version, kWireVersion);
  CHECK_EQ(info.comm, 7u);
  CHECK_EQ(info.slots, 12u);
  CHECK(info.key == Key{});
  CHECK_EQ(info.known_count, 0u);
  CHECK_EQ(info.change_count, 32u);
  CHECK_EQ(info.change.epoch, 41u);
  CHECK_EQ(info.change.slot, 2);
  for (std::uint32_t i = 0; i < 32; ++i) CHECK_EQ(info.changes[i].epoch, 10 + i);
  CHECK(raw_of(info).internal[offsetof(Info, mac)] ==
        signed_anew(info, self.key).internal[offsetof(Info, mac)]);
}

// What lies behind the last step would be a step of a later epoch.
TEST(a_survivor_lacks_what_is_newer_than_its_epoch) {
  const Membership fresh = joined(export_info(member_after(40, 0, 12), 2, 0), 2);
  const flexcclInfo_t info = signed_anew(
      changed(new_node_info(fresh), [](Info* one) { std::memset(one->live, 0xff, 2); }), fresh.key);
  for (const int epoch : {9, 10, 39, 40}) {
    const auto steps = missing_steps(member_after(epoch, 0, 12), info, Repair::kReplace, 2);
    CHECK_EQ(int(steps.size()), 41 - epoch);
    CHECK_EQ(int(steps.front().epoch), epoch + 1);
    CHECK_EQ(int(steps.back().epoch), 41);
  }
  // It has missed more than the info has.
  CHECK_EQ(taken(member_after(8, 0, 12), info, 2), ncclInvalidUsage);
}

TEST(a_survivor_takes_only_what_it_is_asked_for) {
  Membership survivor = member(0, 4, 1);
  const Membership fresh = joined(export_info(survivor, 1, 0), 1);
  const flexcclInfo_t info = raw_of(new_node_info(fresh));
  CHECK_EQ(taken(survivor, info), ncclSuccess);
  CHECK_EQ(taken(survivor, info, 2), ncclInvalidArgument);
  CHECK_EQ(taken(survivor, info, 1, Repair::kAdd), ncclInvalidArgument);
  CHECK_EQ(taken(member(1, 4, 1), info), ncclInvalidUsage);  // it would replace itself
  Membership other = survivor;
  other.comm = 8;
  CHECK_EQ(taken(other, info), ncclInvalidArgument);
  other = survivor;
  other.key.bytes[0] ^= 1;
  CHECK_EQ(taken(other, info), ncclInvalidArgument);
  // Nothing is missing when the step was taken; another step of that epoch contradicts it.
  survivor.take(fresh.changes.back());
  CHECK(missing_steps(survivor, info, Repair::kReplace, 1).empty());
  other = member(0, 4, 1);
  other.take({1, 2, Repair::kReplace, 0, address_of(50)});
  CHECK_EQ(taken(other, info), ncclInvalidUsage);
}

TEST(of_several_steps_each_must_make_sense) {
  const Membership survivor = member(0, 4, 1);
  Membership ahead = survivor;
  ahead.take({1, 2, Repair::kReplace, 0, address_of(50)});
  const Info info = new_node_info(joined(export_info(ahead, 1, 0), 1));
  CHECK_EQ(taken(survivor, signed_anew(info, survivor.key)), ncclSuccess);
  for (const std::uint32_t wrong : {0u, 1u}) {
    const Info other = changed(info, [&](Info* one) { one->changes[wrong].slot = 4; });
    CHECK_EQ(taken(survivor, signed_anew(other, survivor.key)), ncclInvalidUsage);
  }
}

CHECK_MAIN
