// Memory pools: memory that is allocated and freed in the order of streams.
//
// A pool reserves chunks of device memory and cuts them into pieces. A freed piece is known by the
// stream that frees it and by what had been submitted until then. It may be used again at once by
// the same stream, by others once the host has waited for that point: facts that do not depend on
// timing, so that addresses repeat from run to run.
#ifndef SOFTGPU_DEVICE_MEMORY_POOL_H_
#define SOFTGPU_DEVICE_MEMORY_POOL_H_

#include <driver_types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "stream/stream.h"

namespace softgpu {

class MemoryPool {
 public:
  // `max_bytes` 0: no limit but the device's.
  MemoryPool(int device, uint64_t max_bytes);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // All thread-safe.
  cudaError_t allocate(const std::shared_ptr<Stream>& stream, uint64_t bytes, uint64_t* address);
  bool owns(uint64_t address) const;
  // Work that is on the stream now may still use the memory; cudaErrorInvalidValue if it is not
  // the begin of an allocation.
  cudaError_t free(const std::shared_ptr<Stream>& stream, uint64_t address);
  // Gives chunks without a used piece back to the device until `keep` bytes are left.
  void trim(uint64_t keep);
  // The same down to the release threshold; the host has just waited for something.
  void after_wait();
  cudaError_t get(cudaMemPoolAttr attribute, void* value) const;
  cudaError_t set(cudaMemPoolAttr attribute, const void* value);
  bool empty() const;  // nothing is reserved
  const int device;

 private:
  struct Piece {
    uint64_t bytes = 0;
    bool used = false;
    std::shared_ptr<Stream> freed_on;  // empty: any stream may have it
    uint64_t freed_after = 0;          // the last work submitted before it was freed
  };
  using Pieces = std::map<uint64_t, Piece>;

  bool take(const Stream& stream, uint64_t bytes, uint64_t* address);
  cudaError_t grow(uint64_t bytes);
  void settle(bool ask_streams);
  void merge();
  void release_chunks(uint64_t keep);

  const uint64_t max_bytes_;
  mutable std::mutex mutex_;
  Pieces pieces_;
  std::map<uint64_t, uint64_t> chunks_;
  uint64_t reserved_ = 0, reserved_high_ = 0, used_ = 0, used_high_ = 0, threshold_ = 0;
  int flags_[3] = {1, 1, 1};  // the three reuse switches: kept, but they change nothing
};

// Handles. A destroyed pool lives on until its last allocation is freed.
std::shared_ptr<MemoryPool> find_pool(const void* handle);  // empty if there is none
void* create_pool(int device, uint64_t max_bytes);
cudaError_t destroy_pool(const void* handle);
void* default_pool(int device);
void* current_pool(int device);
cudaError_t set_current_pool(int device, const void* handle);
// The pool that an address was allocated from; empty if none.
std::shared_ptr<MemoryPool> pool_of(uint64_t address);

// The host has waited for work of a device: unused memory goes back as the thresholds say.
void pools_after_wait(int device);

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_MEMORY_POOL_H_
