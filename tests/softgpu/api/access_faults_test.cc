// What a stream does where access was taken away: a fault of the device, not the process's end.
// A device that has failed stays so, hence one for each case.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "check.h"
#include "softgpu.h"

namespace {

constexpr size_t kBytes = 2 << 20;
constexpr int kOld = 0x05050505;

// Full of kOld.
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
    CHECK_EQ(cudaMemset(pointer(), kOld & 0xff, kBytes), cudaSuccess);
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  void allow(CUmemAccess_flags flags) const {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, flags};
    CHECK_EQ(cuMemSetAccess(at, kBytes, &access, 1), CUDA_SUCCESS);
  }
  void* pointer() const { return reinterpret_cast<void*>(at); }
  bool unchanged() const {
    const int* const words = reinterpret_cast<const int*>(at);
    return std::all_of(words, words + kBytes / sizeof(int), [](int word) { return word == kOld; });
  }
  const int device;
  CUdeviceptr at = 0;
};

// The call may tell of it as well.
void check_refused(int device, const std::function<int(const Mapping&)>& write) {
  const Mapping mapping(device);
  mapping.allow(CU_MEM_ACCESS_FLAGS_PROT_READ);
  const int code = write(mapping);
  CHECK(code == cudaSuccess || code == cudaErrorIllegalAddress);
  CHECK_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  CHECK(mapping.unchanged());
}

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

TEST(a_memset_where_only_reading_is_allowed) {
  check_refused(2, [](const Mapping& m) { return cudaMemset(m.pointer(), 1, kBytes); });
}

TEST(a_copy_to_where_only_reading_is_allowed) {
  const std::vector<char> source(kBytes, 1);
  check_refused(3, [&](const Mapping& m) {
    return cudaMemcpy(m.pointer(), source.data(), kBytes, cudaMemcpyHostToDevice);
  });
}

TEST(a_value_that_a_stream_writes_where_only_reading_is_allowed) {
  check_refused(4, [](const Mapping& m) { return cuStreamWriteValue32(nullptr, m.at, 1, 0); });
}

TEST(a_copy_that_begins_where_writing_is_allowed) {
  const std::vector<char> source(2 * kBytes, 1);
  check_refused(5, [&](const Mapping& m) {
    CUdeviceptr both = 0;
    CUmemGenericAllocationHandle own = 0, before = 0;
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {m.device}};
    CHECK_EQ(cuMemRetainAllocationHandle(&own, m.pointer()), CUDA_SUCCESS);
    CHECK_EQ(cuMemCreate(&before, kBytes, &prop, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemAddressReserve(&both, 2 * kBytes, 0, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemMap(both, kBytes, 0, before, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemMap(both + kBytes, kBytes, 0, own, 0), CUDA_SUCCESS);
    CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {m.device}},
                           CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK_EQ(cuMemSetAccess(both, kBytes, &access, 1), CUDA_SUCCESS);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    CHECK_EQ(cuMemSetAccess(both + kBytes, kBytes, &access, 1), CUDA_SUCCESS);
    return cudaMemcpy(reinterpret_cast<void*>(both), source.data(), 2 * kBytes,
                      cudaMemcpyHostToDevice);
  });
}

TEST(a_flip_where_only_reading_is_allowed) {
  const Mapping mapping(7);
  mapping.allow(CU_MEM_ACCESS_FLAGS_PROT_READ);
  const std::string flip = "flip,address=" + std::to_string(mapping.at);
  CHECK_EQ(softgpu_inject(flip.c_str(), nullptr, 0), 0);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK(mapping.unchanged());
}

TEST(what_may_be_read_can_be_read_and_written_again_when_that_is_allowed) {
  const Mapping mapping(6);
  mapping.allow(CU_MEM_ACCESS_FLAGS_PROT_READ);
  int value = 0;
  CHECK_EQ(cudaMemcpy(&value, mapping.pointer(), 4, cudaMemcpyDeviceToHost), cudaSuccess);
  CHECK_EQ(value, kOld);
  CHECK_EQ(cuStreamWaitValue32(nullptr, mapping.at, kOld, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  mapping.allow(CU_MEM_ACCESS_FLAGS_PROT_NONE);
  mapping.allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK_EQ(cudaMemset(mapping.pointer(), 1, 4), cudaSuccess);
  CHECK_EQ(cudaMemcpy(&value, mapping.pointer(), 4, cudaMemcpyDeviceToHost), cudaSuccess);
  CHECK_EQ(value, 0x01010101);
}

CHECK_MAIN
