// Which global addresses a kernel may touch. Device memory and pinned host memory live at their
// real host addresses in this process (a device pointer is directly dereferenceable), so the
// executor only has to ask whether a range is mapped, and for stores whether it may be written.
#ifndef SOFTGPU_CORE_ADDRESS_SPACE_H_
#define SOFTGPU_CORE_ADDRESS_SPACE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace softgpu {

struct Range {
  uint64_t begin = 0, end = 0;
  bool contains(uint64_t address, uint64_t size) const {
    return address >= begin && address < end && size <= end - address;
  }
};

// Thread-safe. Ranges never overlap; neighbouring ranges are reported merged by find(), since an
// access may span two mappings that touch.
class AddressSpace {
 public:
  void add(uint64_t begin, uint64_t size, bool writable = true) {
    std::unique_lock lock(mutex_);
    ranges_[begin] = {begin + size, writable};
    generation_.fetch_add(1, std::memory_order_release);
  }

  // Of a range that has been added.
  void set_writable(uint64_t begin, bool writable) {
    std::unique_lock lock(mutex_);
    const auto it = ranges_.find(begin);
    if (it == ranges_.end()) return;
    it->second.writable = writable;
    generation_.fetch_add(1, std::memory_order_release);
  }

  void remove(uint64_t begin) {
    std::unique_lock lock(mutex_);
    ranges_.erase(begin);
    generation_.fetch_add(1, std::memory_order_release);
  }

  // The maximal mapped range around `address`; empty if unmapped.
  Range find(uint64_t address) const { return find(address, false); }
  // The same of what may be written.
  Range find_writable(uint64_t address) const { return find(address, true); }

  // Changes whenever a range is added or removed: a cached find() is good while it stays.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

 private:
  struct Mapped {
    uint64_t end = 0;
    bool writable = true;
  };

  Range find(uint64_t address, bool writes) const {
    std::shared_lock lock(mutex_);
    const auto fits = [writes](const Mapped& mapped) { return mapped.writable || !writes; };
    auto it = ranges_.upper_bound(address);
    if (it == ranges_.begin()) return {};
    --it;
    if (address >= it->second.end || !fits(it->second)) return {};
    Range found{it->first, it->second.end};
    for (auto next = std::next(it); next != ranges_.end(); ++next) {
      if (next->first != found.end || !fits(next->second)) break;
      found.end = next->second.end;
    }
    for (auto prev = it; prev != ranges_.begin();) {
      --prev;
      if (prev->second.end != found.begin || !fits(prev->second)) break;
      found.begin = prev->first;
    }
    return found;
  }

  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Mapped> ranges_;
  std::atomic<uint64_t> generation_{0};
};

}  // namespace softgpu

#endif  // SOFTGPU_CORE_ADDRESS_SPACE_H_
