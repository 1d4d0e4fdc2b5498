#include "server/dmr/shadow.h"

#include <algorithm>

#include "ring/layout.h"

namespace pyft::server::dmr {

namespace {

constexpr uint64_t kAtOnce = uint64_t{16} << 20;

uint64_t rounded(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

ShadowMemory::ShadowMemory(const backend::Table& api, uint64_t most, int device)
    : api_(api), most_(most / ring::kGranule * ring::kGranule), device_(device) {}

std::shared_ptr<const ShadowMemory::Piece> ShadowMemory::take(uint64_t bytes) {
  if (!bytes || bytes > most_) return nullptr;
  bytes = rounded(bytes, kAlign);
  const std::lock_guard lock(mutex_);
  const auto find = [&] {
    return std::ranges::find_if(free_, [&](const auto& one) { return one.second >= bytes; });
  };
  auto fits = find();
  if (fits == free_.end() && grow(bytes)) fits = find();
  if (fits == free_.end()) return nullptr;
  const auto [address, size] = *fits;
  free_.erase(fits);
  if (size > bytes) free_.emplace(address + bytes, size - bytes);
  used_ += bytes;
  return std::make_shared<const Piece>(shared_from_this(), address, bytes);
}

uint64_t ShadowMemory::in_use() {
  const std::lock_guard lock(mutex_);
  return used_;
}

// What is free at the end becomes part of it.
bool ShadowMemory::grow(uint64_t bytes) {
  const uint64_t end = begin_ + taken_;
  const auto last = free_.empty() ? free_.end() : std::prev(free_.end());
  if (last != free_.end() && last->first + last->second == end) bytes -= last->second;
  bytes = rounded(bytes, ring::kGranule);
  if (bytes > most_ - taken_ || !api_.cuMemAddressReserve || !api_.cuMemCreate) return false;
  if (!begin_ && api_.cuMemAddressReserve(&begin_, most_, 0, 0, 0) != CUDA_SUCCESS) return false;
  bytes = std::max(bytes, std::min(kAtOnce, most_ - taken_));
  if (!map(begin_ + taken_, bytes)) return false;
  put_back(begin_ + taken_, bytes);
  taken_ += bytes;
  return true;
}

bool ShadowMemory::map(uint64_t address, uint64_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle memory{};
  if (api_.cuMemCreate(&memory, bytes, &properties, 0) != CUDA_SUCCESS) return false;
  const bool mapped = api_.cuMemMap(address, bytes, 0, memory, 0) == CUDA_SUCCESS;
  const bool there = mapped && api_.cuMemSetAccess(address, bytes, &access, 1) == CUDA_SUCCESS;
  if (mapped && !there) api_.cuMemUnmap(address, bytes);
  api_.cuMemRelease(memory);  // what is mapped stays
  return there;
}

void ShadowMemory::give(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  put_back(address, bytes);
}

void ShadowMemory::put_back(uint64_t address, uint64_t bytes) {
  auto at = free_.emplace(address, bytes).first;
  const auto next = std::next(at);
  if (next != free_.end() && next->first == at->first + at->second) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at == free_.begin()) return;
  const auto before = std::prev(at);
  if (before->first + before->second != at->first) return;
  before->second += at->second;
  free_.erase(at);
}

}  // namespace pyft::server::dmr
