#include "membership/membership.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/error.h"

namespace flexccl {
namespace {

constexpr std::size_t kHead = offsetof(Info, known);

std::size_t live_bytes(const Info& info) {
  return (info.slots + 7) / 8;
}

// Of a parsed info: its counts are in range.
std::uint64_t info_mac(const Key& key, const Info& info) {
  std::byte text[sizeof(Info)];
  std::size_t size = 0;
  const auto append = [&](const void* from, std::size_t bytes) {
    std::memcpy(text + size, from, bytes);
    size += bytes;
  };
  append(&info, kHead);
  append(info.known, info.known_count * sizeof(Info::Known));
  append(info.changes, info.change_count * sizeof(Change));
  append(info.live, live_bytes(info));
  return keyed_hash64(key, std::span(text).first(size));
}

// Once, also if the exporting rank is a neighbour of the slot.
void add_known(Info* info, const Membership& from, int slot) {
  const std::span rows(info->known, info->known_count);
  if (rows.size() == Info::kMaxKnown || slot == info->change.slot || !from.address(slot).port ||
      std::ranges::any_of(rows, [slot](const Info::Known& row) { return row.slot == slot; }))
    return;
  info->known[info->known_count++] = {slot, 0, from.address(slot)};
}

Info parse(const flexcclInfo_t& raw) {
  Info info;
  const auto copy = [&](std::size_t offset, std::size_t bytes) {
    std::memcpy(reinterpret_cast<std::byte*>(&info) + offset, raw.internal + offset, bytes);
  };
  copy(0, kHead);
  if (info.magic != kMagic || info.version != kWireVersion || info.known_count > Info::kMaxKnown ||
      info.change_count > Info::kMaxChanges || info.slots > Info::kMaxSlots)
    fail(ncclInvalidArgument, "flexccl: an info with magic [", info.magic, "] and version [",
         info.version, "] was not made by this version of flexccl");
  copy(kHead, info.known_count * sizeof(Info::Known));
  copy(offsetof(Info, changes), info.change_count * sizeof(Change));
  copy(offsetof(Info, live), live_bytes(info));
  copy(offsetof(Info, mac), sizeof info.mac);
  return info;
}

void fill_changes(Info* info, const Membership& from) {
  const std::size_t count = std::min(from.changes.size(), Info::kMaxChanges);
  std::copy(from.changes.end() - static_cast<std::ptrdiff_t>(count), from.changes.end(),
            info->changes);
  info->change_count = static_cast<std::uint32_t>(count);
}

}  // namespace

bool same_step(const Change& a, const Change& b) {
  return a.epoch == b.epoch && a.slot == b.slot && a.repair == b.repair &&
         a.address.process == b.address.process;
}

int Membership::position(int of) const {
  const auto found = std::lower_bound(members.begin(), members.end(), of);
  return found != members.end() && *found == of ? static_cast<int>(found - members.begin()) : -1;
}

bool Membership::has_removed(int of) const {
  return position(of) < 0 && std::ranges::any_of(
                                 changes,
                                 [of](const Change& step) {
                                   return step.slot == of && step.repair == Repair::kRemove;
                                 });
}

void Membership::check(const Change& change) const {
  const bool live = position(change.slot) >= 0;
  if (change.epoch != epoch + 1 || change.slot < 0 || change.slot >= slots() ||
      live == (change.repair == Repair::kAdd) || change.slot == slot)
    fail(ncclInvalidUsage, "flexccl: rank [", slot, "] in epoch [", epoch,
         "] cannot take the step to epoch [", change.epoch, "], repair [", int(change.repair),
         "] of slot [", change.slot, "]");
}

void Membership::take(const Change& change) {
  check(change);
  epoch = change.epoch;
  addresses.set(static_cast<std::size_t>(change.slot), change.address);
  if (change.repair == Repair::kRemove)
    members.edit([&](std::vector<int>& slots) { std::erase(slots, change.slot); });
  if (change.repair == Repair::kAdd)
    members.edit([&](std::vector<int>& slots) {
      slots.insert(std::lower_bound(slots.begin(), slots.end(), change.slot), change.slot);
    });
  changes.push_back(change);
  if (changes.size() > Info::kMaxChanges) changes.erase(changes.begin());
}

Membership after(Membership self, std::span<const Change> steps) {
  for (const Change& step : steps) self.take(step);
  return self;
}

std::pair<int, int> neighbours(const Membership& from, int slot) {
  const auto here = std::lower_bound(from.members.begin(), from.members.end(), slot);
  const auto next = std::upper_bound(here, from.members.end(), slot);
  return {here == from.members.begin() ? from.members.back() : *(here - 1),
          next == from.members.end() ? from.members.front() : *next};
}

Info export_info(const Membership& from, int slot, std::uint64_t position) {
  if (slot < 0 || slot >= from.slots() || slot == from.slot)
    fail(ncclInvalidArgument, "flexccl: rank [", from.slot, "] cannot export for slot [", slot,
         "] of [", from.slots(), "]");
  if (from.addresses.size() > Info::kMaxSlots)
    fail(ncclInvalidUsage, "flexccl: [", from.slots(), "] slots do not fit into an info");
  Info info{};
  info.magic = kMagic, info.version = kWireVersion, info.comm = from.comm;
  const bool live = from.position(slot) >= 0;
  info.change = {from.epoch + 1, slot, live ? Repair::kReplace : Repair::kAdd, 0, {}};
  info.key = from.key, info.position = position;
  info.timeout_ms = from.timeout_ms, info.repair_ms = from.repair_ms;
  info.transport = static_cast<std::uint32_t>(from.transport);
  info.slots = static_cast<std::uint32_t>(from.slots());
  const auto [before, after] = neighbours(from, slot);
  for (const int member : {before, after, from.slot}) add_known(&info, from, member);
  for (const int member : from.members) add_known(&info, from, member);  // while there is room
  fill_changes(&info, from);
  for (const int member : from.members)
    info.live[member / 8] = static_cast<std::uint8_t>(info.live[member / 8] | 1 << member % 8);
  info.mac = info_mac(from.key, info);
  return info;
}

Membership join_as(const flexcclInfo_t& exported, int slot, const Address& own,
                   std::uint64_t* position) {
  const Info info = parse(exported);
  if (info.mac != info_mac(info.key, info) || info.change.slot != slot)
    fail(ncclInvalidArgument, "flexccl: the info was exported for slot [", info.change.slot,
         "], not for slot [", slot, "], or it is damaged");
  *position = info.position;
  Membership self{.comm = info.comm,
                  .epoch = info.change.epoch,
                  .slot = slot,
                  .key = info.key,
                  .transport = static_cast<flexcclTransport_t>(info.transport),
                  .timeout_ms = info.timeout_ms,
                  .repair_ms = info.repair_ms};
  const int slots = static_cast<int>(info.slots);
  std::vector<int> members;
  for (int i = 0; i < slots; ++i)
    if (i == slot || (info.live[i / 8] >> i % 8 & 1)) members.push_back(i);
  self.members = std::move(members);
  std::vector<Address> addresses(info.slots);
  const auto learn = [&](const auto& row) {
    if (row.slot >= 0 && row.slot < slots)
      addresses[static_cast<std::size_t>(row.slot)] = row.address;
  };
  std::for_each_n(info.known, info.known_count, learn);
  std::for_each_n(info.changes, info.change_count, learn);
  learn(Info::Known{slot, 0, own});
  self.addresses = std::move(addresses);
  self.changes.assign(info.changes, info.changes + info.change_count);
  self.changes.push_back(info.change);
  self.changes.back().address = own;
  return self;
}

Info new_node_info(const Membership& self) {
  Info info{};
  info.magic = kMagic, info.version = kWireVersion, info.comm = self.comm;
  info.change = self.changes.back();
  info.slots = static_cast<std::uint32_t>(self.slots());
  fill_changes(&info, self);
  info.mac = info_mac(self.key, info);
  return info;
}

int slot_of(const flexcclInfo_t& info) {
  return parse(info).change.slot;
}

std::vector<Change> missing_steps(const Membership& self, const flexcclInfo_t& raw, Repair repair,
                                  int slot) {
  const Info info = parse(raw);
  if (info.mac != info_mac(self.key, info) || info.comm != self.comm)
    fail(ncclInvalidArgument, "flexccl: the info is of another communicator, or damaged");
  if (info.change.slot != slot || info.change.repair != repair)
    fail(ncclInvalidArgument, "flexccl: the info is for slot [", info.change.slot,
         "], the call for slot [", slot, "], or it is for another kind of repair");
  std::vector<Change> steps;
  for (std::uint32_t i = 0; i < info.change_count; ++i)
    if (info.changes[i].epoch > self.epoch) steps.push_back(info.changes[i]);
  if (steps.size() == 1) self.check(steps[0]);
  if (steps.size() > 1) static_cast<void>(after(self, steps));
  const bool taken = !steps.empty() ||
                     std::any_of(self.changes.begin(), self.changes.end(),
                                 [&](const Change& step) { return same_step(step, info.change); });
  if (!taken)
    fail(ncclInvalidUsage, "flexccl: the info is for epoch [", info.change.epoch, "], rank [",
         self.slot, "] is in epoch [", self.epoch, "] already");
  return steps;
}

}  // namespace flexccl
