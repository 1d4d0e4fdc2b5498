// CUPTI of the soft GPU: what devices do, and for which call.
#include <cuda_runtime_api.h>
#include <cupti_activity.h>

#include <algorithm>
#include <map>
#include <vector>

#include <cupti_runtime_cbid.h>
#include "check.h"

namespace {

constexpr size_t kBytes = 1 << 16;
std::vector<std::vector<uint64_t>> lent;
std::vector<std::pair<uint8_t*, size_t>> back;

void request(uint8_t** buffer, size_t* size, size_t* most) {
  lent.emplace_back(kBytes / 8);
  *buffer = reinterpret_cast<uint8_t*>(lent.back().data());
  *size = kBytes;
  *most = 0;
}

void complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  back.emplace_back(buffer, valid);
}

// All kinds that there are, on or off.
void want(bool on) {
  cuptiActivityRegisterCallbacks(request, complete);
  for (const auto kind :
       {CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_MEMCPY,
        CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL})
    CHECK_EQ(int{on ? cuptiActivityEnable(kind) : cuptiActivityDisable(kind)}, 0);
}

// The records since the last call. They live until the next one.
std::vector<const CUpti_Activity*> taken() {
  back.clear();
  cuptiActivityFlushAll(0);
  std::vector<const CUpti_Activity*> records;
  for (const auto& [buffer, valid] : back) {
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
      records.push_back(record);
  }
  return records;
}

template <class Record>
std::vector<const Record*> of_kind(const std::vector<const CUpti_Activity*>& records,
                                   CUpti_ActivityKind kind) {
  std::vector<const Record*> found;
  for (const CUpti_Activity* record : records)
    if (record->kind == kind) found.push_back(reinterpret_cast<const Record*>(record));
  return found;
}

char* memory_on(int device) {
  void* memory = nullptr;
  cudaSetDevice(device);
  CHECK_EQ(int{cudaMalloc(&memory, 4096)}, 0);
  return static_cast<char*>(memory);
}

TEST(copies_and_fills_say_what_they_did_and_for_whom) {
  char* const second = memory_on(1);
  char* const first = memory_on(0);
  std::vector<char> host(4096, 3);
  want(true);
  cudaMemcpy(first, host.data(), 1000, cudaMemcpyHostToDevice);
  cudaMemsetAsync(first, 7, 100, nullptr);
  cudaMemcpyPeer(second, 1, first, 0, 50);
  cudaMemcpy(host.data(), second, 50, cudaMemcpyDeviceToHost);
  cudaDeviceSynchronize();
  want(false);
  const auto records = taken();
  const auto calls = of_kind<CUpti_ActivityAPI>(records, CUPTI_ACTIVITY_KIND_RUNTIME);
  CHECK_EQ(calls.size(), 5u);
  const auto copies = of_kind<CUpti_ActivityMemcpy6>(records, CUPTI_ACTIVITY_KIND_MEMCPY);
  CHECK_EQ(copies.size(), 3u);
  CHECK_EQ(int{copies[0]->copyKind}, int{CUPTI_ACTIVITY_MEMCPY_KIND_HTOD});
  CHECK_EQ(copies[0]->bytes, 1000u);
  CHECK_EQ(copies[0]->correlationId, calls[0]->correlationId);
  CHECK(copies[0]->start >= calls[0]->start && copies[0]->end > copies[0]->start);
  CHECK(copies[0]->end <= calls[0]->end);  // which waits for it
  CHECK_EQ(int{copies[1]->copyKind}, int{CUPTI_ACTIVITY_MEMCPY_KIND_PTOP});
  CHECK_EQ(int{copies[2]->copyKind}, int{CUPTI_ACTIVITY_MEMCPY_KIND_DTOH});
  CHECK_EQ(copies[2]->correlationId, calls[3]->correlationId);
  const auto fills = of_kind<CUpti_ActivityMemset4>(records, CUPTI_ACTIVITY_KIND_MEMSET);
  CHECK_EQ(fills.size(), 1u);
  CHECK_EQ(fills[0]->value, 7u);
  CHECK_EQ(fills[0]->bytes, 100u);
  CHECK_EQ(fills[0]->correlationId, calls[1]->correlationId);
  CHECK_EQ(host[10], 7);
}

TEST(a_graph_is_recorded_when_it_runs_and_not_when_it_is_captured) {
  char* const memory = memory_on(0);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaStreamCreate(&stream);
  want(true);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  cudaMemsetAsync(memory, 1, 16, stream);
  cudaMemsetAsync(memory, 2, 32, stream);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  CHECK_EQ(of_kind<CUpti_ActivityMemset4>(taken(), CUPTI_ACTIVITY_KIND_MEMSET).size(), 0u);
  cudaGraphLaunch(exec, stream);
  cudaStreamSynchronize(stream);
  want(false);
  cudaGraphLaunch(exec, stream);
  cudaStreamSynchronize(stream);
  const auto records = taken();
  const auto fills = of_kind<CUpti_ActivityMemset4>(records, CUPTI_ACTIVITY_KIND_MEMSET);
  CHECK_EQ(fills.size(), 2u);
  const auto calls = of_kind<CUpti_ActivityAPI>(records, CUPTI_ACTIVITY_KIND_RUNTIME);
  CHECK_EQ(calls[0]->cbid, uint32_t{CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000});
  for (const auto* fill : fills) CHECK_EQ(fill->correlationId, calls[0]->correlationId);
}

}  // namespace

CHECK_MAIN
