// Memberships of ranks that are nowhere, and infos that are changed and signed anew.
#ifndef PYFT_TESTS_FLEXCCL_MEMBERS_H_
#define PYFT_TESTS_FLEXCCL_MEMBERS_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "membership/membership.h"

namespace members {

using namespace flexccl;

inline Address address_of(int number) {
  Address address{};
  address.port = static_cast<std::uint16_t>(number + 1);
  return address;
}

// Of `ranks` live slots, and `free` ones behind them.
inline Membership member(int slot, int ranks, int free) {
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

// A rank that has seen its slot 1 replaced so many times.
inline Membership member_after(int steps, int slot, int ranks) {
  Membership self = member(slot, ranks, 0);
  for (int i = 1; i <= steps; ++i)
    self.take({static_cast<std::uint32_t>(i), 1, Repair::kReplace, 0, address_of(100 + i)});
  return self;
}

inline flexcclInfo_t raw_of(const Info& info) {
  flexcclInfo_t raw{};
  std::memcpy(&raw, &info, sizeof info);
  return raw;
}

// With the mac that a member of the job would give it.
inline flexcclInfo_t signed_anew(Info info, const Key& key) {
  std::vector<std::byte> text;
  const auto append = [&](const void* from, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(from);
    text.insert(text.end(), begin, begin + bytes);
  };
  append(&info, offsetof(Info, known));
  append(info.known, info.known_count * sizeof(Info::Known));
  append(info.changes, info.change_count * sizeof(Change));
  append(info.live, (info.slots + 7) / 8);
  info.mac = keyed_hash64(key, text);
  return raw_of(info);
}

// What a call throws; success: nothing.
inline ncclResult_t result_of(const std::function<void()>& call) {
  try {
    call();
    return ncclSuccess;
  } catch (const Error& error) {
    return error.code;
  }
}

}  // namespace members

#endif  // PYFT_TESTS_FLEXCCL_MEMBERS_H_
