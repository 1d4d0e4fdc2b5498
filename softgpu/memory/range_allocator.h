// Best-fit allocation of number ranges; knows nothing about what the numbers mean.
#ifndef SOFTGPU_MEMORY_RANGE_ALLOCATOR_H_
#define SOFTGPU_MEMORY_RANGE_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>

namespace softgpu {

// Deterministic: the smallest free range that fits, the lowest of equals. Not thread-safe.
class RangeAllocator {
 public:
  RangeAllocator() = default;
  RangeAllocator(uint64_t base, uint64_t size) { free_[base] = size; }

  std::optional<uint64_t> take(uint64_t size) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= size && (best == free_.end() || it->second < best->second)) best = it;
    }
    if (best == free_.end()) return std::nullopt;
    const auto [base, available] = *best;
    free_.erase(best);
    if (available > size) free_[base + size] = available - size;
    return base;
  }

  void give(uint64_t base, uint64_t size) {
    auto next = free_.lower_bound(base);
    if (next != free_.end() && base + size == next->first) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == base) {
        previous->second += size;
        return;
      }
    }
    free_[base] = size;
  }

  // Exactly this range; false if it is not all free.
  bool take_at(uint64_t base, uint64_t size) {
    auto next = free_.upper_bound(base);
    if (next == free_.begin()) return false;
    const auto [begin, available] = *std::prev(next);
    if (base - begin > available || size > available - (base - begin)) return false;
    free_.erase(std::prev(next));
    if (base > begin) free_[begin] = base - begin;
    if (begin + available > base + size) free_[base + size] = begin + available - (base + size);
    return true;
  }

 private:
  std::map<uint64_t, uint64_t> free_;
};

}  // namespace softgpu

#endif  // SOFTGPU_MEMORY_RANGE_ALLOCATOR_H_
