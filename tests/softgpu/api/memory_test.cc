#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "gate.h"
#include "memory/memory.h"

namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kMemory = 1024 * kMiB;  // SOFTGPU_MEMORY of this test

size_t free_bytes() {
  size_t free_now = 0, total = 0;
  CHECK_EQ(cudaMemGetInfo(&free_now, &total), cudaSuccess);
  CHECK_EQ(total, kMemory);
  return free_now;
}

CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  return prop;
}

CUresult allow(CUdeviceptr address, size_t bytes) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {1}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return cuMemSetAccess(address, bytes, &access, 1);
}

}  // namespace

// First: device 1's window must not be in use yet.
TEST(virtual_memory_at_a_fixed_address) {
  CHECK_EQ(cudaSetDevice(1), cudaSuccess);
  const CUdeviceptr window = softgpu::kWindowBase + softgpu::kWindowBytes;
  CUdeviceptr base = 0;
  CHECK_EQ(cuMemAddressReserve(&base, softgpu::kWindowBytes, 0, window, 0), CUDA_SUCCESS);
  CHECK_EQ(base, window);
  const CUmemAllocationProp prop = on_device(1);
  size_t granularity = 0;
  CHECK_EQ(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
           CUDA_SUCCESS);
  CHECK_EQ(granularity, 2 * kMiB);

  const CUdeviceptr first = window + 512 * granularity, second = first + 64 * granularity;
  CUmemGenericAllocationHandle handle;
  const size_t before = free_bytes();
  CHECK_EQ(cuMemCreate(&handle, 2 * granularity, &prop, 0), CUDA_SUCCESS);
  CHECK_EQ(free_bytes(), before - 2 * granularity);
  CHECK_EQ(cuMemMap(first, 2 * granularity, 0, handle, 0), CUDA_SUCCESS);
  CHECK_EQ(cuMemsetD32(first, 5, 16), CUDA_ERROR_INVALID_VALUE);  // no access yet
  CHECK_EQ(allow(first, 2 * granularity), CUDA_SUCCESS);
  CHECK_EQ(cuMemsetD32(first, 5, 16), CUDA_SUCCESS);
  CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  CHECK_EQ(cuMemUnmap(first, 2 * granularity), CUDA_SUCCESS);
  CHECK_EQ(cuMemsetD32(first, 5, 16), CUDA_ERROR_INVALID_VALUE);

  // The content belongs to the handle, not to the address.
  CHECK_EQ(cuMemMap(second, 2 * granularity, 0, handle, 0), CUDA_SUCCESS);
  CHECK_EQ(allow(second, 2 * granularity), CUDA_SUCCESS);
  CHECK_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  unsigned value = 0;
  CHECK_EQ(cuMemcpyDtoH(&value, second + 60, sizeof value), CUDA_SUCCESS);
  CHECK_EQ(value, 5u);
  CHECK_EQ(cuMemUnmap(second, 2 * granularity), CUDA_SUCCESS);
  CHECK_EQ(free_bytes(), before);

  // With the window taken, plain allocations go elsewhere.
  void* memory = nullptr;
  CHECK_EQ(cudaMalloc(&memory, kMiB), cudaSuccess);
  const auto address = reinterpret_cast<uint64_t>(memory);
  CHECK(address >= softgpu::kAuxiliaryBase && address < softgpu::kWindowBase);
  CHECK_EQ(cudaFree(memory), cudaSuccess);
  CHECK_EQ(cuMemAddressFree(window, softgpu::kWindowBytes), CUDA_SUCCESS);
  CHECK_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(taken_addresses_are_not_given_twice) {
  constexpr CUdeviceptr kWanted = softgpu::kAuxiliaryBase - (CUdeviceptr{1} << 30);
  CUdeviceptr a = 0, b = 0;
  CHECK_EQ(cuMemAddressReserve(&a, 4 * kMiB, 0, kWanted, 0), CUDA_SUCCESS);
  CHECK_EQ(a, kWanted);
  CHECK_EQ(cuMemAddressReserve(&b, 4 * kMiB, 0, kWanted, 0), CUDA_SUCCESS);
  CHECK(b != a);
  CHECK_EQ(b % (2 * kMiB), CUdeviceptr{0});
  CHECK_EQ(cuMemAddressFree(a, 4 * kMiB), CUDA_SUCCESS);
  CHECK_EQ(cuMemAddressFree(b, 4 * kMiB), CUDA_SUCCESS);
}

TEST(allocations_repeat_their_addresses) {
  void *small = nullptr, *large = nullptr, *again = nullptr;
  CHECK_EQ(cudaMalloc(&small, 100), cudaSuccess);
  CHECK_EQ(reinterpret_cast<uint64_t>(small), softgpu::kWindowBase);
  CHECK_EQ(cudaMalloc(&large, 3 * kMiB), cudaSuccess);
  CHECK_EQ(reinterpret_cast<uint64_t>(large), softgpu::kWindowBase + 2 * kMiB);
  CHECK_EQ(cudaFree(large), cudaSuccess);
  CHECK_EQ(cudaMalloc(&again, 3 * kMiB), cudaSuccess);
  CHECK_EQ(again, large);
  CHECK_EQ(cudaFree(again), cudaSuccess);
  CHECK_EQ(cudaFree(small), cudaSuccess);
  CHECK_EQ(free_bytes(), kMemory);
  CHECK_EQ(cudaFree(small), cudaErrorInvalidValue);
}

TEST(out_of_memory_at_the_call) {
  void *most = nullptr, *rest = nullptr;
  CHECK_EQ(cudaMalloc(&most, kMemory + 1), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMalloc(&most, kMemory - 2 * kMiB), cudaSuccess);
  CHECK_EQ(cudaMalloc(&rest, 4 * kMiB), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMalloc(&rest, 1000), cudaSuccess);
  CHECK_EQ(cudaFree(most), cudaSuccess);
  CHECK_EQ(cudaFree(rest), cudaSuccess);
}

TEST(copies_are_checked_and_shaped) {
  void* memory = nullptr;
  CHECK_EQ(cudaMalloc(&memory, 4096), cudaSuccess);
  std::vector<unsigned char> rows(4 * 10), back(4 * 6);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<unsigned char>(i);
  CHECK_EQ(cudaMemcpy2D(memory, 16, rows.data(), 10, 6, 4, cudaMemcpyHostToDevice), cudaSuccess);
  CHECK_EQ(cudaMemcpy2D(back.data(), 6, memory, 16, 6, 4, cudaMemcpyDeviceToHost), cudaSuccess);
  for (size_t r = 0; r < 4; ++r) CHECK(std::memcmp(&back[r * 6], &rows[r * 10], 6) == 0);
  CHECK_EQ(cudaMemcpy(back.data(), rows.data(), 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy(memory, rows.data(), 1 << 30, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy2D(memory, 4, rows.data(), 10, 6, 4, cudaMemcpyHostToDevice),
           cudaErrorInvalidPitchValue);
  CHECK_EQ(cudaFree(memory), cudaSuccess);
  cudaGetLastError();
}

TEST(pointers_tell_what_they_are) {
  void *memory = nullptr, *pinned = nullptr;
  int local = 0;
  CHECK_EQ(cudaMalloc(&memory, 4096), cudaSuccess);
  CHECK_EQ(cudaHostAlloc(&pinned, 100, 0), cudaSuccess);
  cudaPointerAttributes is{};
  CHECK_EQ(cudaPointerGetAttributes(&is, static_cast<char*>(memory) + 4095), cudaSuccess);
  CHECK_EQ(is.type, cudaMemoryTypeDevice);
  CHECK_EQ(cudaPointerGetAttributes(&is, pinned), cudaSuccess);
  CHECK_EQ(is.type, cudaMemoryTypeHost);
  CHECK_EQ(is.devicePointer, pinned);
  CHECK_EQ(cudaPointerGetAttributes(&is, &local), cudaSuccess);
  CHECK_EQ(is.type, cudaMemoryTypeUnregistered);
  CHECK_EQ(cudaFreeHost(pinned), cudaSuccess);
  CHECK_EQ(cudaFree(memory), cudaSuccess);
}

TEST(registered_memory_is_pinned) {
  std::vector<char> mine(1 << 16);
  CHECK_EQ(cudaHostRegister(mine.data(), mine.size(), 0), cudaSuccess);
  CHECK_EQ(cudaHostRegister(mine.data(), 16, 0), cudaErrorHostMemoryAlreadyRegistered);
  void* seen = nullptr;
  CHECK_EQ(cudaHostGetDevicePointer(&seen, mine.data(), 0), cudaSuccess);
  CHECK_EQ(seen, static_cast<void*>(mine.data()));
  CHECK_EQ(cudaHostUnregister(mine.data()), cudaSuccess);
  CHECK_EQ(cudaHostUnregister(mine.data()), cudaErrorHostMemoryNotRegistered);
  cudaGetLastError();
}

TEST(memory_stays_registered_while_another_device_copies_it) {
  std::vector<char> mine(1 << 16, 7);
  CHECK_EQ(cudaHostRegister(mine.data(), mine.size(), 0), cudaSuccess);
  CHECK_EQ(cudaSetDevice(1), cudaSuccess);
  void* target = nullptr;
  cudaStream_t stream = nullptr;
  CHECK_EQ(cudaMalloc(&target, mine.size()), cudaSuccess);
  CHECK_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  Gate gate;
  gate.block(stream);
  CHECK_EQ(cudaMemcpyAsync(target, mine.data(), mine.size(), cudaMemcpyHostToDevice, stream),
           cudaSuccess);
  CHECK_EQ(cudaSetDevice(0), cudaSuccess);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    gate.open();
  });
  CHECK_EQ(cudaHostUnregister(mine.data()), cudaSuccess);
  CHECK_EQ(cudaStreamQuery(stream), cudaSuccess);
  later.join();
  CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  CHECK_EQ(cudaFree(target), cudaSuccess);
}

CHECK_MAIN
