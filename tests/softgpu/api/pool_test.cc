// Memory in stream order: when freed memory may be used again, what pools keep, and that queues
// are bounded.
#include <cuda_runtime_api.h>

#include <atomic>
#include <thread>

#include "check.h"
#include "device/device.h"
#include "device/memory_pool.h"
#include "gate.h"

namespace {

constexpr size_t kBlock = 1 << 20;

cudaStream_t stream() {
  cudaStream_t made;
  CHECK_EQ(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), cudaSuccess);
  return made;
}

cudaMemPool_t new_pool(size_t max_bytes = 0) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, {0}};
  properties.maxSize = max_bytes;
  cudaMemPool_t made = nullptr;
  CHECK_EQ(cudaMemPoolCreate(&made, &properties), cudaSuccess);
  return made;
}

char* take(cudaMemPool_t pool, cudaStream_t s, size_t bytes = kBlock) {
  void* out = nullptr;
  CHECK_EQ(cudaMallocFromPoolAsync(&out, bytes, pool, s), cudaSuccess);
  return static_cast<char*>(out);
}

uint64_t number(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
  uint64_t value = 0;
  CHECK_EQ(cudaMemPoolGetAttribute(pool, attribute, &value), cudaSuccess);
  return value;
}

}  // namespace

TEST(freed_memory_waits_for_the_stream_that_freed_it) {
  cudaMemPool_t pool = new_pool();
  cudaStream_t a = stream(), b = stream();
  Gate gate;
  char* first = take(pool, a);
  gate.block(a);
  CHECK_EQ(cudaMemsetAsync(first, 1, kBlock, a), cudaSuccess);  // still to come
  CHECK_EQ(cudaFreeAsync(first, a), cudaSuccess);
  CHECK_EQ(cudaFreeAsync(first, a), cudaErrorInvalidValue);
  char* other = take(pool, b);
  CHECK(other != first);
  CHECK_EQ(cudaMemsetAsync(other, 2, kBlock, b), cudaSuccess);
  CHECK_EQ(cudaStreamSynchronize(b), cudaSuccess);
  char* same = take(pool, a);  // comes after the free in its own stream
  CHECK(same == first);
  gate.open();
  CHECK_EQ(cudaFreeAsync(same, a), cudaSuccess);
  CHECK_EQ(cudaStreamSynchronize(a), cudaSuccess);  // from here on the host knows
  char value = 0;
  CHECK_EQ(cudaMemcpy(&value, other + kBlock - 1, 1, cudaMemcpyDeviceToHost), cudaSuccess);
  CHECK_EQ(static_cast<int>(value), 2);
  CHECK_EQ(cudaFree(other), cudaSuccess);
  CHECK_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST(what_an_event_wait_has_seen_serves_other_streams) {
  cudaMemPool_t pool = new_pool();
  uint64_t keep = UINT64_MAX;
  CHECK_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), cudaSuccess);
  cudaStream_t a = stream(), b = stream();
  cudaEvent_t e;
  CHECK_EQ(cudaEventCreate(&e), cudaSuccess);
  char* first = take(pool, a);
  CHECK_EQ(cudaEventRecord(e, a), cudaSuccess);
  CHECK_EQ(cudaMemsetAsync(first, 1, kBlock, a), cudaSuccess);
  CHECK_EQ(cudaFreeAsync(first, a), cudaSuccess);
  CHECK_EQ(cudaEventSynchronize(e), cudaSuccess);
  char* second = take(pool, b);
  CHECK(second != first);  // the event was recorded before the free
  CHECK_EQ(cudaEventRecord(e, a), cudaSuccess);
  CHECK_EQ(cudaEventSynchronize(e), cudaSuccess);
  CHECK(take(pool, b) == first);
}

TEST(attributes_thresholds_and_trimming) {
  cudaMemPool_t pool = new_pool();
  cudaStream_t s = stream();
  char* a = take(pool, s, 3 << 20);
  CHECK_EQ(number(pool, cudaMemPoolAttrUsedMemCurrent), 3u << 20);
  CHECK_EQ(number(pool, cudaMemPoolAttrReservedMemCurrent), 4u << 20);
  CHECK_EQ(cudaFreeAsync(a, s), cudaSuccess);
  CHECK_EQ(number(pool, cudaMemPoolAttrUsedMemCurrent), 0u);
  CHECK_EQ(cudaStreamSynchronize(s), cudaSuccess);
  CHECK_EQ(number(pool, cudaMemPoolAttrReservedMemCurrent), 0u);  // the threshold is 0
  uint64_t threshold = 64 << 20;
  CHECK_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold), cudaSuccess);
  CHECK_EQ(cudaFreeAsync(take(pool, s), s), cudaSuccess);
  CHECK_EQ(cudaStreamSynchronize(s), cudaSuccess);
  CHECK_EQ(number(pool, cudaMemPoolAttrReservedMemCurrent), 2u << 20);
  CHECK_EQ(number(pool, cudaMemPoolAttrReservedMemHigh), 4u << 20);
  uint64_t zero = 0;
  CHECK_EQ(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &zero), cudaSuccess);
  CHECK_EQ(number(pool, cudaMemPoolAttrReservedMemHigh), 2u << 20);
  CHECK_EQ(cudaMemPoolTrimTo(pool, 0), cudaSuccess);
  CHECK_EQ(number(pool, cudaMemPoolAttrReservedMemCurrent), 0u);
  CHECK_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
  CHECK_EQ(cudaMemPoolTrimTo(pool, 0), cudaErrorInvalidValue);
}

TEST(a_pool_ends_where_the_device_or_its_limit_does) {
  cudaMemPool_t limited = new_pool(4 << 20);
  cudaStream_t s = stream();
  void* out = nullptr;
  CHECK_EQ(cudaMallocFromPoolAsync(&out, 5 << 20, limited, s), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMallocAsync(&out, size_t{2} << 30, s), cudaErrorMemoryAllocation);
  cudaGetLastError();
  // Freed on one stream, needed on another: used again rather than running out of memory.
  cudaStream_t b = stream();
  constexpr size_t kMost = size_t{700} << 20;
  CHECK_EQ(cudaMallocAsync(&out, kMost, s), cudaSuccess);
  CHECK_EQ(cudaFreeAsync(out, s), cudaSuccess);
  CHECK_EQ(cudaMallocAsync(&out, kMost, b), cudaSuccess);
  CHECK_EQ(cudaFreeAsync(out, b), cudaSuccess);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(current_and_default_pools) {
  cudaMemPool_t pool = new_pool(), got = nullptr, standard = nullptr;
  CHECK_EQ(cudaDeviceGetDefaultMemPool(&standard, 0), cudaSuccess);
  CHECK_EQ(cudaDeviceSetMemPool(0, pool), cudaSuccess);
  CHECK_EQ(cudaDeviceGetMemPool(&got, 0), cudaSuccess);
  CHECK(got == pool && standard != pool);
  void* out = nullptr;
  CHECK_EQ(cudaMallocAsync(&out, 512, nullptr), cudaSuccess);
  CHECK_EQ(number(pool, cudaMemPoolAttrUsedMemCurrent), 512u);
  CHECK_EQ(cudaMemPoolDestroy(standard), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
  CHECK_EQ(cudaDeviceGetMemPool(&got, 0), cudaSuccess);
  CHECK(got == standard);
  CHECK_EQ(cudaMemset(out, 1, 512), cudaSuccess);  // outlives the handle of its pool
  CHECK_EQ(cudaFreeAsync(out, nullptr), cudaSuccess);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// A thread that submits without end is held up while the stream gets on.
TEST(a_queue_that_gets_on_is_bounded) {
  cudaStream_t s = stream();
  std::atomic<long> done{0};
  long worst = 0;
  for (long i = 0; i < 5000; ++i) {
    CHECK_EQ(cudaLaunchHostFunc(
                 s, [](void* count) { ++*static_cast<std::atomic<long>*>(count); }, &done),
             cudaSuccess);
    worst = std::max(worst, i + 1 - done.load());
  }
  CHECK(worst <= 1025);
  CHECK_EQ(cudaStreamSynchronize(s), cudaSuccess);
  CHECK_EQ(done.load(), 5000l);
}

// A stream that waits for the submitting thread itself never holds it up for good.
TEST(a_queue_that_waits_for_the_program_lets_it_through) {
  cudaStream_t s = stream();
  Gate gate;
  gate.block(s);
  std::atomic<long> done{0};
  for (long i = 0; i < 3000; ++i) {
    CHECK_EQ(cudaLaunchHostFunc(
                 s, [](void* count) { ++*static_cast<std::atomic<long>*>(count); }, &done),
             cudaSuccess);
  }
  CHECK_EQ(done.load(), 0l);
  gate.open();
  CHECK_EQ(cudaStreamSynchronize(s), cudaSuccess);
  CHECK_EQ(done.load(), 3000l);
}

CHECK_MAIN
