#include "server/dmr/shadow.h"

#include <algorithm>

namespace pyft::server::dmr {

namespace {

constexpr uint64_t kArea = uint64_t{16} << 20;

}  // namespace

std::shared_ptr<const ShadowMemory::Piece> ShadowMemory::take(uint64_t bytes) {
  if (!bytes || bytes > most_) return nullptr;
  bytes = (bytes + kAlign - 1) / kAlign * kAlign;
  const std::lock_guard lock(mutex_);
  for (int tries = 0; tries < 2; ++tries) {
    for (Area& area : areas_) {
      const auto fits =
          std::ranges::find_if(area.free, [&](const auto& f) { return f.second >= bytes; });
      if (fits == area.free.end()) continue;
      const auto [address, size] = *fits;
      area.free.erase(fits);
      if (size > bytes) area.free.emplace(address + bytes, size - bytes);
      used_ += bytes;
      return std::make_shared<const Piece>(shared_from_this(), address, bytes);
    }
    if (!grow(bytes)) return nullptr;
  }
  return nullptr;
}

uint64_t ShadowMemory::in_use() {
  const std::lock_guard lock(mutex_);
  return used_;
}

// The mutex is held.
bool ShadowMemory::grow(uint64_t bytes) {
  if (taken_ + bytes > most_ || !api_.cuMemAlloc_v2) return false;
  const uint64_t size = std::max(bytes, std::min(kArea, most_ - taken_));
  CUdeviceptr address = 0;
  if (api_.cuMemAlloc_v2(&address, size) != CUDA_SUCCESS) return false;
  taken_ += size;
  areas_.push_back({address, size, {{address, size}}});
  return true;
}

void ShadowMemory::give(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  for (Area& area : areas_) {
    if (address < area.address || address - area.address >= area.bytes) continue;
    auto at = area.free.emplace(address, bytes).first;
    const auto next = std::next(at);
    if (next != area.free.end() && next->first == at->first + at->second) {
      at->second += next->second;
      area.free.erase(next);
    }
    if (at == area.free.begin()) return;
    const auto before = std::prev(at);
    if (before->first + before->second != at->first) return;
    before->second += at->second;
    area.free.erase(at);
    return;
  }
}

}  // namespace pyft::server::dmr
