#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.h"
#include "device/device.h"
#include "gate.h"
#include "work/handles.h"

extern "C" cudaError_t cudaMemsetAsync_ptsz(void*, int, size_t, cudaStream_t);

namespace {

int* device_ints(size_t count) {
  void* out = nullptr;
  CHECK_EQ(cudaMalloc(&out, count * sizeof(int)), cudaSuccess);
  return static_cast<int*>(out);
}

int* pinned_ints(size_t count) {
  void* out = nullptr;
  CHECK_EQ(cudaHostAlloc(&out, count * sizeof(int), 0), cudaSuccess);
  return static_cast<int*>(out);
}

int read_int(const int* device) {
  int value = -1;
  cudaStream_t stream;
  CHECK_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  CHECK_EQ(cudaMemcpyAsync(&value, device, sizeof value, cudaMemcpyDeviceToHost, stream),
           cudaSuccess);
  cudaStreamDestroy(stream);
  return value;
}

cudaStream_t new_stream(unsigned flags) {
  cudaStream_t stream;
  CHECK_EQ(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
  return stream;
}

}  // namespace

TEST(pinned_source_is_read_when_the_stream_gets_there) {
  int *source = pinned_ints(1), *target = device_ints(1);
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  Gate gate;
  *source = 1;
  gate.block(stream);
  CHECK_EQ(cudaMemcpyAsync(target, source, sizeof(int), cudaMemcpyHostToDevice, stream),
           cudaSuccess);
  *source = 2;
  CHECK_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  gate.open();
  CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  CHECK_EQ(read_int(target), 2);
}

TEST(pageable_source_is_copied_at_the_call) {
  int* target = device_ints(1);
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  Gate gate;
  std::vector<int> source = {1};
  gate.block(stream);
  CHECK_EQ(cudaMemcpyAsync(target, source.data(), sizeof(int), cudaMemcpyHostToDevice, stream),
           cudaSuccess);
  source[0] = 2;
  gate.open();
  CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  CHECK_EQ(read_int(target), 1);
}

TEST(a_blocked_stream_does_not_hold_up_another) {
  cudaStream_t a = new_stream(cudaStreamNonBlocking), b = new_stream(cudaStreamNonBlocking);
  int* target = device_ints(1);
  Gate gate;
  gate.block(a);
  gate.wait_until_reached();
  CHECK_EQ(cudaMemsetAsync(target, 3, sizeof(int), b), cudaSuccess);
  CHECK_EQ(cudaStreamSynchronize(b), cudaSuccess);
  CHECK_EQ(read_int(target), 0x03030303);
  CHECK_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  gate.open();
  CHECK_EQ(cudaStreamSynchronize(a), cudaSuccess);
}

TEST(legacy_stream_waits_for_blocking_streams_only) {
  cudaStream_t blocking = new_stream(0), free_one = new_stream(cudaStreamNonBlocking);
  int *a = device_ints(1), *b = device_ints(1);
  CHECK_EQ(cudaMemset(a, 0, sizeof(int)), cudaSuccess);
  CHECK_EQ(cudaMemset(b, 0, sizeof(int)), cudaSuccess);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Gate gate;
  gate.block(blocking);
  gate.wait_until_reached();
  CHECK_EQ(cudaMemsetAsync(a, 1, sizeof(int), nullptr), cudaSuccess);   // held by `blocking`
  CHECK_EQ(cudaMemsetAsync(b, 2, sizeof(int), free_one), cudaSuccess);  // not held
  CHECK_EQ(cudaStreamSynchronize(free_one), cudaSuccess);
  CHECK_EQ(read_int(b), 0x02020202);
  CHECK_EQ(read_int(a), 0);
  CHECK_EQ(cudaStreamQuery(nullptr), cudaErrorNotReady);
  gate.open();
  CHECK_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  CHECK_EQ(read_int(a), 0x01010101);
}

TEST(blocking_streams_wait_for_the_legacy_stream) {
  cudaStream_t blocking = new_stream(0);
  int* a = device_ints(1);
  CHECK_EQ(cudaMemset(a, 0, sizeof(int)), cudaSuccess);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Gate gate;
  gate.block(nullptr);
  CHECK_EQ(cudaMemsetAsync(a, 1, sizeof(int), blocking), cudaSuccess);
  gate.wait_until_reached();
  CHECK_EQ(cudaStreamQuery(blocking), cudaErrorNotReady);
  CHECK_EQ(read_int(a), 0);
  gate.open();
  CHECK_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
  CHECK_EQ(read_int(a), 0x01010101);
}

TEST(events_order_streams_and_measure_time) {
  cudaStream_t a = new_stream(cudaStreamNonBlocking), b = new_stream(cudaStreamNonBlocking);
  cudaEvent_t start, end;
  CHECK_EQ(cudaEventCreate(&start), cudaSuccess);
  CHECK_EQ(cudaEventCreate(&end), cudaSuccess);
  CHECK_EQ(cudaEventQuery(start), cudaSuccess);  // never recorded
  int* target = device_ints(1);
  Gate gate;
  CHECK_EQ(cudaEventRecord(start, a), cudaSuccess);
  gate.block(a);
  CHECK_EQ(cudaEventRecord(end, a), cudaSuccess);
  CHECK_EQ(cudaStreamWaitEvent(b, end, 0), cudaSuccess);
  CHECK_EQ(cudaMemsetAsync(target, 7, sizeof(int), b), cudaSuccess);
  CHECK_EQ(cudaEventQuery(end), cudaErrorNotReady);
  CHECK_EQ(cudaStreamQuery(b), cudaErrorNotReady);
  float ms = -1;
  CHECK_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  gate.open();
  CHECK_EQ(cudaEventSynchronize(end), cudaSuccess);
  CHECK_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
  CHECK(ms >= 2 && ms < 10000);
  CHECK_EQ(cudaStreamSynchronize(b), cudaSuccess);
  CHECK_EQ(read_int(target), 0x07070707);
  CHECK_EQ(cudaEventDestroy(start), cudaSuccess);
  CHECK_EQ(cudaEventDestroy(start), cudaErrorInvalidResourceHandle);
}

TEST(events_order_streams_of_two_devices) {
  CHECK_EQ(cudaSetDevice(1), cudaSuccess);
  cudaStream_t other = new_stream(cudaStreamNonBlocking);
  CHECK_EQ(cudaSetDevice(0), cudaSuccess);
  cudaStream_t mine = new_stream(cudaStreamNonBlocking);
  cudaEvent_t event;
  CHECK_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  Gate gate;
  gate.block(mine);
  CHECK_EQ(cudaEventRecord(event, mine), cudaSuccess);
  CHECK_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  CHECK_EQ(cudaStreamQuery(other), cudaErrorNotReady);
  gate.open();
  CHECK_EQ(cudaStreamSynchronize(other), cudaSuccess);
}

TEST(streams_write_and_wait_for_values) {
  int* word = pinned_ints(2);
  word[0] = word[1] = 0;
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  const auto address = reinterpret_cast<CUdeviceptr>(word);
  CHECK_EQ(cuStreamWaitValue32(stream, address, 5, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
  CHECK_EQ(cuStreamWriteValue32(stream, address + 4, 9, 0), CUDA_SUCCESS);
  CHECK_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  std::atomic_ref(word[0]).store(5);
  CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  CHECK_EQ(word[1], 9);
}

TEST(null_stream_of_the_per_thread_variants_is_the_threads_own) {
  int* target = device_ints(1);
  CHECK_EQ(cudaMemset(target, 0, sizeof(int)), cudaSuccess);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  Gate gate;
  gate.block(cudaStreamPerThread);
  CHECK_EQ(cudaMemsetAsync_ptsz(target, 6, sizeof(int), nullptr), cudaSuccess);
  CHECK_EQ(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
  CHECK_EQ(read_int(target), 0);
  std::thread([] { CHECK_EQ(cudaStreamQuery(cudaStreamPerThread), cudaSuccess); }).join();
  gate.open();
  CHECK_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
  CHECK_EQ(read_int(target), 0x06060606);
}

TEST(destroyed_stream_finishes_its_work) {
  int* target = device_ints(1);
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  Gate gate;
  gate.block(stream);
  CHECK_EQ(cudaMemsetAsync(target, 4, sizeof(int), stream), cudaSuccess);
  CHECK_EQ(cudaStreamDestroy(stream), cudaSuccess);
  CHECK_EQ(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
  gate.open();
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_EQ(read_int(target), 0x04040404);
}

TEST(last_error_belongs_to_the_thread) {
  cudaGetLastError();
  CHECK_EQ(cudaSetDevice(99), cudaErrorInvalidDevice);
  std::thread([] { CHECK_EQ(cudaGetLastError(), cudaSuccess); }).join();
  CHECK_EQ(cudaPeekAtLastError(), cudaErrorInvalidDevice);
  CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  CHECK_EQ(cudaGetLastError(), cudaSuccess);
}

// Last: device 1 is dead afterwards.
TEST(fault_is_sticky_and_frees_whoever_waits) {
  CHECK_EQ(cudaSetDevice(1), cudaSuccess);
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  cudaEvent_t event;
  CHECK_EQ(cudaEventCreate(&event), cudaSuccess);
  softgpu::Work work;
  work.run = [] {
    return softgpu::Fault{softgpu::FaultKind::kMisalignedAddress, "the test asked for a fault"};
  };
  const auto queue = softgpu::find_stream(stream);
  softgpu::device(1).scheduler().submit(queue, std::move(work));
  cudaEventRecord(event, stream);
  CHECK_EQ(cudaEventSynchronize(event), cudaErrorMisalignedAddress);
  CHECK_EQ(cudaStreamSynchronize(stream), cudaErrorMisalignedAddress);
  void* memory = nullptr;
  CHECK_EQ(cudaMalloc(&memory, 16), cudaErrorMisalignedAddress);
  CHECK_EQ(cudaGetLastError(), cudaErrorMisalignedAddress);
  CHECK_EQ(cudaGetLastError(), cudaErrorMisalignedAddress);
  CHECK_EQ(cudaSetDevice(0), cudaSuccess);
  CHECK_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  cudaGetLastError();
}

CHECK_MAIN
