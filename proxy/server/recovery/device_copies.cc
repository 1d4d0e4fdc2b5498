#include "server/recovery/device_copies.h"

#include <algorithm>
#include <span>
#include <utility>

#include "pyft/log.h"

namespace pyft::server {

namespace {

constexpr uint64_t kStagingBytes = uint64_t{1} << 20;
constexpr size_t kBeside = 2;  // slots that copies beside the device's work use

}  // namespace

// Not tried again when it is refused: it would be at each cut.
bool DeviceCopies::make(Slot* slot) {
  if (slot->ring || refused_) return slot->ring != nullptr;
  std::string why;
  slot->ring = PinnedRing::make(session_.backend(), staging_of(slot), &why);
  refused_ = !slot->ring;
  if (refused_)
    PYFT_LOG(kRecovery, kWarning,
             "device [%u]: snapshots copy through memory that is not page-locked, "
             "and at cuts only: %s",
             session_.device(), why.c_str());
  return slot->ring != nullptr;
}

// The first ones have one: those by which snapshots copy.
std::shared_ptr<Staging> DeviceCopies::staging_of(const Slot* slot) const {
  static_assert(kBeside <= DeviceDigests::kStagings);
  const auto which = static_cast<size_t>(slot - slots_.data());
  if (!digests_ || which >= DeviceDigests::kStagings) return nullptr;
  return {digests_, digests_->staging(static_cast<unsigned>(which))};
}

int DeviceCopies::read(const checkpoint::NextRange& next, const checkpoint::TakePiece& take) {
  if (!make(&slots_[0])) return read_pageable(next, take);
  return slots_[0].ring->read(next, take, patience_.at_cuts_ns);
}

int DeviceCopies::read_hashed(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                              const checkpoint::TakeDigest& hashed) {
  if (!make(&slots_[0])) return checkpoint::kNotOnDevice;
  return slots_[0].ring->read_hashed(next, take, hashed, patience_.at_cuts_ns);
}

unsigned DeviceCopies::prepare_writers(unsigned wanted) {
  unsigned ready = 0;
  while (ready < std::min<size_t>(wanted, slots_.size()) && make(&slots_[ready])) ++ready;
  return std::max(ready, 1u);
}

int DeviceCopies::write(const checkpoint::NextContent& next) {
  Slot* const slot = take_slot();
  if (!slot) return write_pageable(next);
  const int code = slot->ring->write(next, patience_.at_cuts_ns);
  give_back(slot);
  return code;
}

bool DeviceCopies::make_room() {
  const std::lock_guard lock(mutex_);
  if (!digests_) return false;
  for (Slot& slot : slots_)
    if (slot.busy || (slot.ring && !slot.ring->stop_hashing())) return false;
  return std::exchange(digests_, nullptr)->drop_stagings();
}

// Both in the default stream: no snapshot is open.
int DeviceCopies::read_pageable(const checkpoint::NextRange& next,
                                const checkpoint::TakePiece& take) {
  const backend::Table& api = session_.backend();
  staging_.resize(kStagingBytes);
  for (checkpoint::MemoryRange range; next(&range);)
    for (uint64_t at = 0; at < range.bytes; at += kStagingBytes) {
      const uint64_t part = std::min(kStagingBytes, range.bytes - at);
      int code = api.cuMemcpyDtoHAsync_v2(staging_.data(), range.address + at, part, nullptr);
      if (!code) code = api.cuCtxSynchronize();
      if (code) return code;
      take(staging_.data(), part);
    }
  return 0;
}

int DeviceCopies::write_pageable(const checkpoint::NextContent& next) {
  const backend::Table& api = session_.backend();
  int code = 0;
  for (checkpoint::Content one; !code && next(&one);) {
    code = api.cuMemcpyHtoDAsync_v2(one.address, one.from, one.bytes, nullptr);
    if (!code) code = api.cuCtxSynchronize();
  }
  return code;
}

// Here and not when they are needed: to lock pages may wait for the device, which has nothing to do
// now.
bool DeviceCopies::ready_beside() {
  if (late_.load()) return false;
  return std::ranges::all_of(std::span(slots_).first(kBeside),
                             [this](Slot& slot) { return make(&slot) && slot.ring->rests() == 0; });
}

DeviceCopies::Slot* DeviceCopies::take_slot() {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_)
    if (slot.ring && !slot.busy) {
      slot.busy = true;
      return &slot;
    }
  return nullptr;
}

void DeviceCopies::give_back(Slot* slot) {
  const std::lock_guard lock(mutex_);
  slot->busy = false;
}

void DeviceCopies::give_up_beside() {
  if (late_.exchange(true)) return;
  PYFT_LOG(kRecovery, kWarning,
           "device [%u]: snapshots copy at cuts only: a copy beside the program's "
           "work has not come for [%llu] ms",
           session_.device(), static_cast<unsigned long long>(patience_.beside_ns / 1'000'000));
}

int DeviceCopies::read_beside(const checkpoint::NextRange& next, const checkpoint::TakePiece& take,
                              const checkpoint::TakeDigest* hashed) {
  if (late_.load()) return PinnedRing::kLate;  // those that are left of this cut
  Slot* const slot = take_slot();
  if (!slot) return PinnedRing::kLate;
  const int code = hashed ? slot->ring->read_hashed(next, take, *hashed, patience_.beside_ns)
                          : slot->ring->read(next, take, patience_.beside_ns);
  give_back(slot);
  if (code == PinnedRing::kLate) give_up_beside();
  // No other thread may ask the device before its next command.
  if (checkpoint::is_device_fault(code)) {
    session_.check_device(code, "a copy behind a cut");
    session_.set_sticky(code);
  }
  return code;
}

}  // namespace pyft::server
