// Every address range the GPU may touch, and who owns it: device allocations, mapped handles and
// pinned host memory. Keeps the executor's AddressSpace in step.
#ifndef SOFTGPU_CORE_POINTERS_H_
#define SOFTGPU_CORE_POINTERS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "core/address_space.h"

namespace softgpu {

enum class PointerKind : uint8_t { kDevice, kPinned, kRegistered };

struct PointerInfo {
  uint64_t base = 0, size = 0;
  PointerKind kind = PointerKind::kDevice;
  int device = 0;
  uint32_t flags = 0;  // of cudaHostAlloc / cudaHostRegister
  bool is_host() const { return kind != PointerKind::kDevice; }
};

// Thread-safe. One table for all devices: addresses are unified, peers can always reach each other.
class PointerTable {
 public:
  // False if the range overlaps one that is already there.
  bool add(const PointerInfo& info) {
    std::lock_guard lock(mutex_);
    const auto next = table_.lower_bound(info.base);
    if (next != table_.end() && next->first < info.base + info.size) return false;
    if (next != table_.begin()) {
      const PointerInfo& previous = std::prev(next)->second;
      if (previous.base + previous.size > info.base) return false;
    }
    table_[info.base] = info;
    space_.add(info.base, info.size);
    return true;
  }

  void remove(uint64_t base) {
    std::lock_guard lock(mutex_);
    if (table_.erase(base)) space_.remove(base);
  }

  std::optional<PointerInfo> find(uint64_t address) const {
    std::lock_guard lock(mutex_);
    auto it = table_.upper_bound(address);
    if (it == table_.begin()) return std::nullopt;
    const PointerInfo& info = std::prev(it)->second;
    if (address - info.base >= info.size) return std::nullopt;
    return info;
  }

  // Whether all of the range is reachable by the GPU.
  bool covers(uint64_t address, uint64_t size) const {
    return size == 0 || space_.find(address).contains(address, size);
  }

  AddressSpace& space() { return space_; }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, PointerInfo> table_;
  AddressSpace space_;
};

PointerTable& pointers();

}  // namespace softgpu

#endif  // SOFTGPU_CORE_POINTERS_H_
