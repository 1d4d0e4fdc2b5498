// What a stream does where access was taken away: a fault of the device, not the process's end.
// A device that has failed stays so, hence one for each case.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <functional>

#include "check.h"

namespace {

constexpr size_t kBytes = 2 << 20;

// Zeros.
struct Mapping {
  explicit Mapping(int device) : device(device) {
    CHECK_EQ(cudaSetDevice(device), cudaSuccess);
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    CUmemGenericAllocationHandle handle = 0;
    CHECK_EQ(cuMemCreate(&handle, kBytes, &prop, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemAddressReserve(&at, kBytes, 0, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemMap(at, kBytes, 0, handle, 0), CUDA_SUCCESS);
    allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQ(cudaMemset(pointer(), 0, kBytes), cudaSuccess);
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  void allow(CUmemAccess_flags flags) const {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, flags};
    CHECK_EQ(cuMemSetAccess(at, kBytes, &access, 1), CUDA_SUCCESS);
  }
  void* pointer() const { return reinterpret_cast<void*>(at); }
  const int device;
  CUdeviceptr at = 0;
};

void check_waits_in_vain(int device, const std::function<CUresult(CUdeviceptr)>& wait) {
  const Mapping mapping(device);
  CHECK_EQ(wait(mapping.at), CUDA_SUCCESS);
  CHECK_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  mapping.allow(CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CHECK_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

}  // namespace

TEST(a_word_that_goes_while_a_stream_waits_for_it) {
  check_waits_in_vain(0, [](CUdeviceptr at) {
    return cuStreamWaitValue32(nullptr, at, 1, CU_STREAM_WAIT_VALUE_EQ);
  });
  check_waits_in_vain(1, [](CUdeviceptr at) {
    return cuStreamWaitValue64(nullptr, at + 8, 1, CU_STREAM_WAIT_VALUE_EQ);
  });
}

CHECK_MAIN
