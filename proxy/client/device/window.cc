#include "client/device/window.h"

#include "ring/align.h"

namespace pyft::client {

RangePool::RangePool(uint64_t base, uint64_t bytes) {
  insert(base, bytes);
}

void RangePool::insert(uint64_t address, uint64_t bytes) {
  by_address_[address] = bytes;
  by_size_.insert({bytes, address});
}

void RangePool::erase(std::map<uint64_t, uint64_t>::iterator range) {
  by_size_.erase({range->second, range->first});
  by_address_.erase(range);
}

uint64_t RangePool::take(uint64_t bytes) {
  const auto fit = by_size_.lower_bound({bytes, 0});
  if (fit == by_size_.end()) return 0;
  const auto [size, address] = *fit;
  erase(by_address_.find(address));
  if (size > bytes) insert(address + bytes, size - bytes);
  return address;
}

bool RangePool::take_at(uint64_t address, uint64_t bytes) {
  auto range = by_address_.upper_bound(address);
  if (range == by_address_.begin()) return false;
  --range;
  const auto [start, size] = *range;
  const uint64_t before = address - start;
  if (before > size || bytes > size - before) return false;
  erase(range);
  if (before) insert(start, before);
  if (size - before > bytes) insert(address + bytes, size - before - bytes);
  return true;
}

void RangePool::give(uint64_t address, uint64_t bytes) {
  auto next = by_address_.lower_bound(address);
  if (next != by_address_.end() && address + bytes == next->first) {
    bytes += next->second;
    const auto joined = next++;
    erase(joined);
  }
  if (next != by_address_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == address) {
      address = previous->first;
      bytes += previous->second;
      erase(previous);
    }
  }
  insert(address, bytes);
}

Window::Window(uint64_t base, uint64_t bytes, uint64_t granule, uint64_t small_limit,
               uint64_t alignment)
    : granule_(granule), small_limit_(small_limit), alignment_(alignment), granules_(base, bytes) {}

uint64_t Window::carve(uint64_t bytes, uint64_t rounded) {
  for (auto& [start, slab] : slabs_) {
    const uint64_t address = slab.free.take(rounded);
    if (!address) continue;
    ++slab.users;
    blocks_[address] = {bytes, rounded, start};
    return address;
  }
  return 0;
}

uint64_t Window::allocate(uint64_t bytes, Region* map) {
  *map = {};
  if (bytes < small_limit_) {
    const uint64_t rounded = ring::align_up(bytes, alignment_);
    if (const uint64_t address = carve(bytes, rounded)) return address;
    const uint64_t slab = granules_.take(granule_);
    if (!slab) return 0;
    slabs_.emplace(slab, Slab{RangePool(slab, granule_)});
    *map = {slab, granule_};
    return carve(bytes, rounded);
  }
  if (bytes > UINT64_MAX - granule_) return 0;
  const uint64_t reserved = ring::align_up(bytes, granule_);
  const uint64_t address = granules_.take(reserved);
  if (!address) return 0;
  blocks_[address] = {bytes, reserved, 0};
  *map = {address, reserved};
  return address;
}

uint64_t Window::reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted) {
  const uint64_t unit = alignment > granule_ ? alignment : granule_;
  if (wanted && wanted % unit == 0 && granules_.take_at(wanted, bytes)) return wanted;
  const uint64_t spare = unit - granule_;
  if (bytes > UINT64_MAX - spare) return 0;
  const uint64_t found = granules_.take(bytes + spare);
  if (!found) return 0;
  const uint64_t address = ring::align_up(found, unit);
  const uint64_t tail = found + spare - address;
  if (address > found) granules_.give(found, address - found);
  if (tail) granules_.give(address + bytes, tail);
  return address;
}

void Window::cancel(uint64_t address) {
  Region unmap;
  uint64_t bytes;
  release(address, &unmap, &bytes);
}

bool Window::release(uint64_t address, Region* unmap, uint64_t* bytes) {
  *unmap = {};
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return false;
  const Block block = found->second;
  *bytes = block.bytes;
  blocks_.erase(found);
  if (!block.slab) {
    granules_.give(address, block.reserved);
    *unmap = {address, block.reserved};
    return true;
  }
  Slab& slab = slabs_.at(block.slab);
  slab.free.give(address, block.reserved);
  if (--slab.users == 0) {
    slabs_.erase(block.slab);
    granules_.give(block.slab, granule_);
    *unmap = {block.slab, granule_};
  }
  return true;
}

bool Window::find(uint64_t address, uint64_t* start, uint64_t* bytes) const {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return false;
  --after;
  if (address >= after->first + after->second.reserved) return false;
  *start = after->first;
  *bytes = after->second.bytes;
  return true;
}

}  // namespace pyft::client
