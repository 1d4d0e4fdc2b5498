// Graphs that copy from or to page-locked memory: no log has what their launches read and write
// there.
#include <cuda_runtime_api.h>

#include <memory>

#include "api/mock_table.h"
#include "check.h"
#include "one_process.h"

using namespace pyft;  // NOLINT: a test

namespace {

constexpr uint64_t kPinnedBytes = 1 << 20;

backend::Table& table() {
  static backend::Table made = [] {
    backend::Table t = backend::mock_table();
    t.cuStreamCreateWithPriority = [](CUstream* out, unsigned, int) {
      *out = reinterpret_cast<CUstream>(0x5000);
      return CUDA_SUCCESS;
    };
    t.cuStreamEndCapture = [](CUstream, CUgraph* graph) {
      *graph = reinterpret_cast<CUgraph>(0x6000);
      return CUDA_SUCCESS;
    };
    return t;
  }();
  return made;
}

OneProcess& wire() {
  static auto* const one = std::make_unique<OneProcess>(&table(), kPinnedBytes).release();
  return *one;
}

// From which entry on a replay may differ, and from the start again.
uint64_t take_unreplayable() {
  return wire().device->channel().log().unreplayable_from.exchange(0);
}

cudaStream_t stream() {
  static cudaStream_t made = [] {
    cudaStream_t out = nullptr;
    CHECK_EQ(cudaStreamCreate(&out), cudaSuccess);
    return out;
  }();
  return made;
}

template <class Put>
uint64_t captured(Put put) {
  CHECK_EQ(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  put();
  cudaGraph_t graph = nullptr;
  CHECK_EQ(cudaStreamEndCapture(stream(), &graph), cudaSuccess);
  return take_unreplayable();
}

}  // namespace

TEST(what_graphs_do_with_page_locked_memory_is_said) {
  wire();
  auto* const device = reinterpret_cast<void*>(ring::kDeviceWindowBase);
  auto* const other = reinterpret_cast<void*>(ring::kDeviceWindowBase + 4096);
  void* const pinned = wire().device->channel().pinned();
  const auto copy = [](void* to, const void* from) {
    CHECK_EQ(cudaMemcpyAsync(to, from, 64, cudaMemcpyDefault, stream()), cudaSuccess);
  };
  copy(device, pinned);  // is in the journal
  copy(pinned, device);
  CHECK_EQ(take_unreplayable(), 0u);
  CHECK_EQ(captured([&] { copy(device, other); }), 0u);
  CHECK(captured([&] { copy(device, pinned); }) != 0);
  CHECK(captured([&] { copy(pinned, device); }) != 0);
  CHECK(captured([&] {
          CHECK_EQ(cudaMemcpy2DAsync(device, 64, pinned, 64, 32, 2, cudaMemcpyDefault, stream()),
                   cudaSuccess);
        }) != 0);
  CHECK(captured([&] { CHECK_EQ(cudaMemsetAsync(pinned, 0, 64, stream()), cudaSuccess); }) != 0);
  CHECK_EQ(captured([&] { CHECK_EQ(cudaMemsetAsync(device, 0, 64, stream()), cudaSuccess); }), 0u);
}

CHECK_MAIN
