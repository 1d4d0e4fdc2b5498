#include "server/recovery/device_copies.h"

#include <algorithm>

#include "pyft/log.h"

namespace pyft::server {

namespace {

constexpr uint64_t kStagingBytes = uint64_t{1} << 20;

}  // namespace

// Not tried again when it is refused: it would be at each cut.
bool DeviceCopies::make(Slot* slot) {
  if (slot->ring || refused_) return slot->ring != nullptr;
  std::string why;
  slot->ring = PinnedRing::make(session_.backend(), &why);
  refused_ = !slot->ring;
  if (refused_)
    PYFT_LOG(kRecovery, kWarning,
             "device [%u]: snapshots copy through memory that is not page-locked, "
             "and at cuts only: %s",
             session_.device(), why.c_str());
  return slot->ring != nullptr;
}

int DeviceCopies::read(const checkpoint::NextRange& next, const checkpoint::TakePiece& take) {
  if (!make(&slots_[0])) return read_pageable(next, take);
  return slots_[0].ring->read(next, take, patience_.at_cuts_ns);
}

int DeviceCopies::write(uint64_t address, const std::byte* from, uint64_t bytes) {
  if (!make(&slots_[0])) return write_pageable(address, from, bytes);
  return slots_[0].ring->write(address, from, bytes, patience_.at_cuts_ns);
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

int DeviceCopies::write_pageable(uint64_t address, const std::byte* from, uint64_t bytes) {
  const backend::Table& api = session_.backend();
  const int code = api.cuMemcpyHtoDAsync_v2(address, from, bytes, nullptr);
  return code ? code : api.cuCtxSynchronize();
}

// Here and not when they are needed: to lock pages may wait for the device, which has nothing to do
// now.
bool DeviceCopies::ready_beside() {
  if (late_.load()) return false;
  return std::ranges::all_of(slots_,
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

void DeviceCopies::give_up_beside() {
  if (late_.exchange(true)) return;
  PYFT_LOG(kRecovery, kWarning,
           "device [%u]: snapshots copy at cuts only: a copy beside the program's "
           "work has not come for [%llu] ms",
           session_.device(), static_cast<unsigned long long>(patience_.beside_ns / 1'000'000));
}

int DeviceCopies::read_beside(const checkpoint::NextRange& next,
                              const checkpoint::TakePiece& take) {
  if (late_.load()) return PinnedRing::kLate;  // those that are left of this cut
  Slot* const slot = take_slot();
  if (!slot) return PinnedRing::kLate;
  const int code = slot->ring->read(next, take, patience_.beside_ns);
  {
    const std::lock_guard lock(mutex_);
    slot->busy = false;
  }
  if (code == PinnedRing::kLate) give_up_beside();
  // No other thread may ask the device before its next command.
  if (checkpoint::is_device_fault(code)) {
    session_.check_device(code, "a copy behind a cut");
    session_.set_sticky(code);
  }
  return code;
}

}  // namespace pyft::server
