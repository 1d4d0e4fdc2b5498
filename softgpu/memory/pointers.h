// Every address range the GPU may touch, and what owns it: device allocations, mapped handles and
// pinned host memory. Keeps the executor's AddressSpace in step.
#ifndef SOFTGPU_MEMORY_POINTERS_H_
#define SOFTGPU_MEMORY_POINTERS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/address_space.h"

namespace softgpu {

enum class PointerKind : uint8_t { kDevice, kPinned, kRegistered };

struct PointerInfo {
  uint64_t base = 0, size = 0;
  PointerKind kind = PointerKind::kDevice;
  int device = 0;
  uint32_t flags = 0;   // of cudaHostAlloc / cudaHostRegister
  uint64_t serial = 0;  // order of allocation; given by the table
  bool is_host() const { return kind != PointerKind::kDevice; }
};

// Thread-safe. One table for all devices: addresses are unified, peers can always reach each other.
class PointerTable {
 public:
  // False if the range overlaps one that is already there.
  bool add(const PointerInfo& info, bool writable = true) {
    std::lock_guard lock(mutex_);
    const auto next = table_.lower_bound(info.base);
    if (next != table_.end() && next->first < info.base + info.size) return false;
    if (next != table_.begin()) {
      const PointerInfo& previous = std::prev(next)->second;
      if (previous.base + previous.size > info.base) return false;
    }
    table_[info.base] = info;
    table_[info.base].serial = ++last_serial_;
    space_.add(info.base, info.size, writable);
    return true;
  }
  void set_writable(uint64_t base, bool writable) { space_.set_writable(base, writable); }

  void remove(uint64_t base) {
    std::lock_guard lock(mutex_);
    if (table_.erase(base)) space_.remove(base);
  }

  // Parts of a range that has been added, for memory that is cut into pieces: the GPU may touch all
  // of the range, but only what has a name is an allocation to the program.
  void add_name(const PointerInfo& info) {
    std::lock_guard lock(mutex_);
    table_[info.base] = info;
    table_[info.base].serial = ++last_serial_;
  }
  void remove_name(uint64_t base) {
    std::lock_guard lock(mutex_);
    table_.erase(base);
  }
  void remove_space(uint64_t base) { space_.remove(base); }

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

  bool writable(uint64_t address, uint64_t size) const {
    return size == 0 || space_.find_writable(address).contains(address, size);
  }

  // Calls body() while the range cannot be unmapped; false if it is not all mapped. The body must
  // not call the table.
  template <class Body>
  bool with_mapped(uint64_t address, uint64_t size, Body body) const {
    std::lock_guard lock(mutex_);
    if (!covers(address, size)) return false;
    body();
    return true;
  }

  // Device memory of a device, oldest first.
  std::vector<PointerInfo> device_allocations(int device) const {
    std::vector<PointerInfo> found;
    std::lock_guard lock(mutex_);
    for (const auto& [base, info] : table_) {
      if (!info.is_host() && info.device == device) found.push_back(info);
    }
    std::ranges::sort(found, {}, &PointerInfo::serial);
    return found;
  }

  AddressSpace& space() { return space_; }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, PointerInfo> table_;
  uint64_t last_serial_ = 0;
  AddressSpace space_;
};

PointerTable& pointers();

}  // namespace softgpu

#endif  // SOFTGPU_MEMORY_POINTERS_H_
