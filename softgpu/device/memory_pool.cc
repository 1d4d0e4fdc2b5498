#include "device/memory_pool.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "device/device.h"
#include "memory/pointers.h"

namespace softgpu {
namespace {

struct Pools {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<MemoryPool>> all;
  std::vector<std::shared_ptr<MemoryPool>> ending;  // destroyed, with allocations left
  std::map<int, void*> defaults, current;
};

// Never destroyed: threads may free memory while the process exits.
Pools& pools() {
  static auto* const all = std::make_unique<Pools>().release();
  return *all;
}

std::atomic<bool> any_pool_used{false};

std::vector<std::shared_ptr<MemoryPool>> pools_of(int device) {
  std::vector<std::shared_ptr<MemoryPool>> found;
  const std::scoped_lock lock(pools().mutex);
  for (const auto& [handle, pool] : pools().all) {
    if (pool->device == device) found.push_back(pool);
  }
  for (const auto& pool : pools().ending) {
    if (pool->device == device) found.push_back(pool);
  }
  return found;
}

}  // namespace

MemoryPool::MemoryPool(int device, uint64_t max_bytes) : device(device), max_bytes_(max_bytes) {}

MemoryPool::~MemoryPool() {
  for (const auto& [base, bytes] : chunks_) {
    pointers().remove_space(base);
    softgpu::device(device).memory().release(base);
  }
}

// The smallest piece that fits, the lowest of equals.
bool MemoryPool::take(const Stream& stream, uint64_t bytes, uint64_t* address) {
  auto best = pieces_.end();
  for (auto it = pieces_.begin(); it != pieces_.end(); ++it) {
    const Piece& piece = it->second;
    if (piece.used || piece.bytes < bytes) continue;
    if (piece.freed_on && piece.freed_on.get() != &stream) continue;
    if (best == pieces_.end() || piece.bytes < best->second.bytes) best = it;
  }
  if (best == pieces_.end()) return false;
  Piece& piece = best->second;
  if (piece.bytes > bytes) {
    Piece rest = piece;
    rest.bytes -= bytes;
    pieces_[best->first + bytes] = std::move(rest);
  }
  piece = {bytes, true, nullptr, 0};
  *address = best->first;
  used_ += bytes;
  used_high_ = std::max(used_high_, used_);
  pointers().add_name({*address, bytes, PointerKind::kDevice, device, 0});
  return true;
}

cudaError_t MemoryPool::grow(uint64_t bytes) {
  const uint64_t chunk = round_up(bytes, kGranule);
  if (max_bytes_ && reserved_ + chunk > max_bytes_) return cudaErrorMemoryAllocation;
  uint64_t base = 0;
  const cudaError_t bad = softgpu::device(device).memory().allocate(chunk, &base);
  if (bad != cudaSuccess) return bad;
  pointers().remove_name(base);
  chunks_[base] = chunk;
  pieces_[base] = {chunk, false, nullptr, 0};
  reserved_ += chunk;
  reserved_high_ = std::max(reserved_high_, reserved_);
  return cudaSuccess;
}

cudaError_t MemoryPool::allocate(const std::shared_ptr<Stream>& stream, uint64_t bytes,
                                 uint64_t* address) {
  any_pool_used = true;
  if (bytes > softgpu::device(device).memory().capacity()) return cudaErrorMemoryAllocation;
  const uint64_t rounded = round_up(bytes, kSmallUnit);
  // Each try costs more: what the stream may have at once, what the host knows to be free, new
  // memory, new memory after the device's other pools gave theirs back and all frees have happened.
  for (int attempt = 0; attempt < 2; ++attempt) {
    {
      const std::scoped_lock lock(mutex_);
      if (take(*stream, rounded, address)) return cudaSuccess;
      settle(attempt > 0);
      if (take(*stream, rounded, address)) return cudaSuccess;
      if (grow(rounded) == cudaSuccess && take(*stream, rounded, address)) return cudaSuccess;
    }
    if (attempt == 0) softgpu::device(device).scheduler().wait_device();
    for (const auto& pool : pools_of(device)) pool->trim(0);
  }
  const std::scoped_lock lock(mutex_);
  if (grow(rounded) == cudaSuccess && take(*stream, rounded, address)) return cudaSuccess;
  return cudaErrorMemoryAllocation;
}

bool MemoryPool::owns(uint64_t address) const {
  const std::scoped_lock lock(mutex_);
  const auto next = chunks_.upper_bound(address);
  if (next == chunks_.begin()) return false;
  const auto& [base, bytes] = *std::prev(next);
  return address - base < bytes;
}

cudaError_t MemoryPool::free(const std::shared_ptr<Stream>& stream, uint64_t address) {
  const std::scoped_lock lock(mutex_);
  const auto it = pieces_.find(address);
  if (it == pieces_.end() || !it->second.used) return cudaErrorInvalidValue;
  Piece& piece = it->second;
  used_ -= piece.bytes;
  piece.used = false;
  piece.freed_on = stream;
  piece.freed_after = Scheduler::last_submitted();
  pointers().remove_name(address);
  merge();
  return cudaSuccess;
}

// Pieces whose free the host knows to have happened belong to any stream.
void MemoryPool::settle(bool ask_streams) {
  Scheduler& scheduler = softgpu::device(device).scheduler();
  for (auto& [address, piece] : pieces_) {
    if (piece.used || !piece.freed_on) continue;
    if (scheduler.host_has_seen(*piece.freed_on, piece.freed_after) ||
        (ask_streams && scheduler.reached(*piece.freed_on, piece.freed_after))) {
      piece.freed_on = nullptr;
    }
  }
  merge();
}

// Joins free neighbours of one chunk that the same stream, or any, may have.
void MemoryPool::merge() {
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    const auto next = std::next(it);
    if (next == pieces_.end()) return;
    Piece &a = it->second, &b = next->second;
    const bool touch = it->first + a.bytes == next->first && !chunks_.contains(next->first);
    if (!touch || a.used || b.used || a.freed_on != b.freed_on) {
      it = next;
      continue;
    }
    a.bytes += b.bytes;
    a.freed_after = std::max(a.freed_after, b.freed_after);
    pieces_.erase(next);
  }
}

// The highest chunks first, so that what stays lies together.
void MemoryPool::release_chunks(uint64_t keep) {
  for (auto it = chunks_.end(); it != chunks_.begin() && reserved_ > keep;) {
    --it;
    const auto [base, bytes] = *it;
    const auto piece = pieces_.find(base);
    if (piece->second.used || piece->second.freed_on || piece->second.bytes != bytes) continue;
    if (reserved_ - bytes < keep) continue;
    pointers().remove_space(base);
    softgpu::device(device).memory().release(base);
    reserved_ -= bytes;
    pieces_.erase(piece);
    it = chunks_.erase(it);
  }
}

void MemoryPool::trim(uint64_t keep) {
  const std::scoped_lock lock(mutex_);
  settle(true);
  release_chunks(keep);
}

void MemoryPool::after_wait() {
  const std::scoped_lock lock(mutex_);
  if (reserved_ <= threshold_ || reserved_ == used_) return;
  settle(false);
  release_chunks(threshold_);
}

bool MemoryPool::empty() const {
  const std::scoped_lock lock(mutex_);
  return reserved_ == 0;
}

cudaError_t MemoryPool::get(cudaMemPoolAttr attribute, void* value) const {
  const std::scoped_lock lock(mutex_);
  if (attribute >= cudaMemPoolReuseFollowEventDependencies &&
      attribute <= cudaMemPoolReuseAllowInternalDependencies) {
    *static_cast<int*>(value) = flags_[attribute - cudaMemPoolReuseFollowEventDependencies];
    return cudaSuccess;
  }
  const std::map<cudaMemPoolAttr, uint64_t> numbers = {
      {cudaMemPoolAttrReleaseThreshold, threshold_},
      {cudaMemPoolAttrReservedMemCurrent, reserved_},
      {cudaMemPoolAttrReservedMemHigh, reserved_high_},
      {cudaMemPoolAttrUsedMemCurrent, used_},
      {cudaMemPoolAttrUsedMemHigh, used_high_}};
  const auto found = numbers.find(attribute);
  if (found == numbers.end()) return cudaErrorInvalidValue;
  *static_cast<uint64_t*>(value) = found->second;
  return cudaSuccess;
}

// The high marks can only be set back.
cudaError_t MemoryPool::set(cudaMemPoolAttr attribute, const void* value) {
  const std::scoped_lock lock(mutex_);
  if (attribute >= cudaMemPoolReuseFollowEventDependencies &&
      attribute <= cudaMemPoolReuseAllowInternalDependencies) {
    flags_[attribute - cudaMemPoolReuseFollowEventDependencies] = *static_cast<const int*>(value);
    return cudaSuccess;
  }
  const uint64_t number = *static_cast<const uint64_t*>(value);
  if (attribute == cudaMemPoolAttrReleaseThreshold) {
    threshold_ = number;
    return cudaSuccess;
  }
  if (number != 0) return cudaErrorInvalidValue;
  if (attribute == cudaMemPoolAttrReservedMemHigh) {
    reserved_high_ = reserved_;
  } else if (attribute == cudaMemPoolAttrUsedMemHigh) {
    used_high_ = used_;
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

std::shared_ptr<MemoryPool> find_pool(const void* handle) {
  const std::scoped_lock lock(pools().mutex);
  const auto found = pools().all.find(handle);
  return found == pools().all.end() ? nullptr : found->second;
}

void* create_pool(int device, uint64_t max_bytes) {
  auto pool = std::make_shared<MemoryPool>(device, max_bytes);
  void* handle = pool.get();
  const std::scoped_lock lock(pools().mutex);
  pools().all[handle] = std::move(pool);
  return handle;
}

cudaError_t destroy_pool(const void* handle) {
  const std::scoped_lock lock(pools().mutex);
  const auto found = pools().all.find(handle);
  if (found == pools().all.end()) return cudaErrorInvalidValue;
  const auto pool = found->second;
  const auto standard = pools().defaults.find(pool->device);
  if (standard != pools().defaults.end() && standard->second == handle) {
    return cudaErrorInvalidValue;
  }
  void*& current = pools().current[pool->device];
  if (current == handle) current = nullptr;  // the default one again
  pools().ending.push_back(pool);
  pools().all.erase(found);
  return cudaSuccess;
}

void* default_pool(int device) {
  {
    const std::scoped_lock lock(pools().mutex);
    const auto found = pools().defaults.find(device);
    if (found != pools().defaults.end()) return found->second;
  }
  void* made = create_pool(device, 0);
  const std::scoped_lock lock(pools().mutex);
  const auto [it, fresh] = pools().defaults.emplace(device, made);
  if (!fresh) pools().all.erase(made);  // another thread was first
  return it->second;
}

void* current_pool(int device) {
  void* const fallback = default_pool(device);
  const std::scoped_lock lock(pools().mutex);
  void* const chosen = pools().current[device];
  return chosen ? chosen : fallback;
}

cudaError_t set_current_pool(int device, const void* handle) {
  const auto pool = find_pool(handle);
  if (!pool || pool->device != device) return cudaErrorInvalidValue;
  const std::scoped_lock lock(pools().mutex);
  pools().current[device] = pool.get();
  return cudaSuccess;
}

std::shared_ptr<MemoryPool> pool_of(uint64_t address) {
  if (!any_pool_used) return nullptr;
  const std::scoped_lock lock(pools().mutex);
  for (const auto& [handle, pool] : pools().all) {
    if (pool->owns(address)) return pool;
  }
  for (const auto& pool : pools().ending) {
    if (pool->owns(address)) return pool;
  }
  return nullptr;
}

void pools_after_wait(int device) {
  if (!any_pool_used) return;
  for (const auto& pool : pools_of(device)) pool->after_wait();
  const std::scoped_lock lock(pools().mutex);
  std::erase_if(pools().ending, [&](const auto& pool) {
    if (pool->device != device) return false;
    pool->trim(0);
    return pool->empty();
  });
}

}  // namespace softgpu
