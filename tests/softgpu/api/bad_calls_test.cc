// Calls that a program must not make: CUDA's error, no crash, and the device goes on.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "check.h"
#include "softgpu/loader/images.h"

extern "C" cudaError_t cudaGetDeviceProperties_v2(void* properties, int device);

namespace {

CUfunction kernel(uint32_t local_bytes = 0) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CHECK_EQ(cuModuleLoadData(&module, images::cubin(local_bytes).data()), CUDA_SUCCESS);
  CHECK_EQ(cuModuleGetFunction(&function, module, "k"), CUDA_SUCCESS);
  return function;
}

CUresult launch(CUfunction function, dim3 grid, dim3 block, unsigned shared = 0) {
  uint64_t pointer = 0;
  int number = 0;
  void* arguments[] = {&pointer, &number};
  return cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
                        nullptr, arguments, nullptr);
}

void still_works() {
  CHECK_EQ(launch(kernel(), 4, 128), CUDA_SUCCESS);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

char* device_bytes(size_t bytes) {
  void* out = nullptr;
  CHECK_EQ(cudaMalloc(&out, bytes), cudaSuccess);
  return static_cast<char*>(out);
}

}  // namespace

TEST(bad_launch_configurations) {
  const CUfunction k = kernel();
  const auto refused = [&](dim3 grid, dim3 block, CUresult code, unsigned shared = 0) {
    CHECK_EQ(launch(k, grid, block, shared), code);
  };
  refused({0, 1, 1}, 32, CUDA_ERROR_INVALID_VALUE);
  refused(1, {0, 1, 1}, CUDA_ERROR_INVALID_VALUE);
  refused(1, 1025, CUDA_ERROR_INVALID_VALUE);
  refused(1, {1, 1, 65}, CUDA_ERROR_INVALID_VALUE);
  refused({1, 65536, 1}, 1, CUDA_ERROR_INVALID_VALUE);
  refused({0x80000000u, 1, 1}, 1, CUDA_ERROR_INVALID_VALUE);
  refused({1, 1, 65536}, 1, CUDA_ERROR_INVALID_VALUE);
  refused(1, 32, CUDA_ERROR_INVALID_VALUE, 49 * 1024);
  refused(1, 32, CUDA_ERROR_INVALID_VALUE, 0xffffffff);
  // More threads than the kernel was compiled for (maxntid 128).
  refused(1, 256, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  CHECK_EQ(launch(nullptr, 1, 1), CUDA_ERROR_INVALID_HANDLE);
  CHECK_EQ(cuLaunchKernel(k, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
           CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuFuncSetAttribute(k, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65 * 1024),
           CUDA_ERROR_INVALID_VALUE);
  // More local memory per thread than any device gives.
  CHECK_EQ(launch(kernel(0xfffffff0), 1, 32), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  still_works();
}

TEST(cooperative_grids_have_to_be_resident) {
  const CUfunction k = kernel();
  uint64_t pointer = 0;
  int number = 0;
  void* arguments[] = {&pointer, &number};
  CHECK_EQ(cuLaunchCooperativeKernel(k, 1 << 20, 1, 1, 128, 1, 1, 0, nullptr, arguments),
           CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CHECK_EQ(cuLaunchCooperativeKernel(k, 2, 1, 1, 128, 1, 1, 0, nullptr, arguments), CUDA_SUCCESS);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(handles_of_nothing) {
  int local = 0;
  const auto stream = reinterpret_cast<cudaStream_t>(&local);
  const auto event = reinterpret_cast<cudaEvent_t>(&local);
  CHECK_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaMemsetAsync(device_bytes(4), 0, 4, stream), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaEventSynchronize(event), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
  cudaEvent_t real;
  CHECK_EQ(cudaEventCreate(&real), cudaSuccess);
  CHECK_EQ(cudaEventDestroy(real), cudaSuccess);
  CHECK_EQ(cudaEventDestroy(real), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaEventQuery(real), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  CHECK_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  // A code, not a state: the next call is fine.
  CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  CHECK_EQ(cudaGetLastError(), cudaSuccess);
  still_works();
}

TEST(pointers_that_are_not_allocations) {
  char* const memory = device_bytes(1024);
  int local = 0;
  CHECK_EQ(cudaFree(&local), cudaErrorInvalidValue);
  CHECK_EQ(cudaFree(memory + 512), cudaErrorInvalidValue);
  CHECK_EQ(cudaFree(memory), cudaSuccess);
  CHECK_EQ(cudaFree(memory), cudaErrorInvalidValue);  // twice
  CHECK_EQ(cudaFree(nullptr), cudaSuccess);
  CHECK_EQ(cudaMemset(memory, 0, 1024), cudaErrorInvalidValue);  // after the free
  CHECK_EQ(cudaMemcpy(&local, memory, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  CHECK_EQ(cudaFreeHost(&local), cudaErrorInvalidValue);
  void* out = nullptr;
  CHECK_EQ(cudaMalloc(nullptr, 4), cudaErrorInvalidValue);
  CHECK_EQ(cudaMalloc(&out, size_t{1} << 60), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaMalloc(&out, SIZE_MAX), cudaErrorMemoryAllocation);
  cudaGetLastError();
  still_works();
}

TEST(copies_beyond_the_end_and_in_the_wrong_direction) {
  char* const memory = device_bytes(2 << 20);
  std::vector<char> host(5 << 20);
  CHECK_EQ(cudaMemcpy(memory, host.data(), host.size(), cudaMemcpyHostToDevice),
           cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy(host.data(), memory, host.size(), cudaMemcpyDeviceToHost),
           cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy(host.data(), host.data() + 8, 8, cudaMemcpyHostToDevice),
           cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy(host.data(), host.data() + 8, 8, cudaMemcpyDeviceToDevice),
           cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy(memory, host.data(), 8, static_cast<cudaMemcpyKind>(9)),
           cudaErrorInvalidMemcpyDirection);
  CHECK_EQ(cudaMemcpy(memory, nullptr, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  CHECK_EQ(cudaMemcpy2D(memory, 4, host.data(), 16, 8, 2, cudaMemcpyHostToDevice),
           cudaErrorInvalidPitchValue);
  CHECK_EQ(cudaMemcpy(memory, host.data(), SIZE_MAX, cudaMemcpyHostToDevice),
           cudaErrorInvalidValue);
  CHECK_EQ(cudaMemset(memory, 0, SIZE_MAX), cudaErrorInvalidValue);
  CHECK_EQ(cudaFree(memory), cudaSuccess);
  cudaGetLastError();
  still_works();
}

// Written with the four fields that CUDA 12 and 13 have in common.
TEST(structures_of_cuda_12_are_not_written_beyond_their_end) {
  alignas(16) unsigned char pointer[sizeof(cudaPointerAttributes)];
  alignas(16) unsigned char properties[1032 + 16];
  std::memset(pointer, 0xaa, sizeof pointer);
  std::memset(properties, 0xaa, sizeof properties);
  CHECK_EQ(
      cudaPointerGetAttributes(reinterpret_cast<cudaPointerAttributes*>(pointer), device_bytes(8)),
      cudaSuccess);
  CHECK_EQ(pointer[24], 0xaa);
  CHECK_EQ(cudaGetDeviceProperties_v2(properties, 0), cudaSuccess);
  CHECK_EQ(properties[1032], 0xaa);
  int major = 0;
  std::memcpy(&major, properties + 360, sizeof major);
  CHECK_EQ(major, 7);
}

CHECK_MAIN
