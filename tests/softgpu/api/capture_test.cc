// Stream capture: what it records, what it forbids, and the codes it forbids it with.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <thread>

#include "check.h"
#include "gate.h"

namespace {

cudaStream_t stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t made;
  CHECK_EQ(cudaStreamCreateWithFlags(&made, flags), cudaSuccess);
  return made;
}

cudaEvent_t event() {
  cudaEvent_t made;
  CHECK_EQ(cudaEventCreate(&made), cudaSuccess);
  return made;
}

int* device_int() {
  void* out = nullptr;
  CHECK_EQ(cudaMalloc(&out, sizeof(int)), cudaSuccess);
  return static_cast<int*>(out);
}

void begin(cudaStream_t s, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
  CHECK_EQ(cudaStreamBeginCapture(s, mode), cudaSuccess);
}

// The capture has been invalidated by what the test did.
void end_invalid(cudaStream_t s) {
  cudaStreamCaptureStatus status;
  CHECK_EQ(cudaStreamIsCapturing(s, &status), cudaSuccess);
  CHECK_EQ(status, cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(1);
  CHECK_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
  CHECK(graph == nullptr);
  CHECK_EQ(cudaStreamIsCapturing(s, &status), cudaSuccess);
  CHECK_EQ(status, cudaStreamCaptureStatusNone);
  cudaGetLastError();
}

size_t nodes_of(cudaGraph_t graph) {
  size_t count = 0;
  CHECK_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
  return count;
}

void destroy(cudaGraph_t graph) {
  CHECK_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace

TEST(a_capture_records_and_executes_nothing) {
  cudaStream_t s = stream();
  int* target = device_int();
  CHECK_EQ(cudaMemset(target, 0, sizeof(int)), cudaSuccess);
  begin(s);
  CHECK_EQ(cudaMemsetAsync(target, 1, sizeof(int), s), cudaSuccess);
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  cudaGraph_t growing = nullptr, graph = nullptr;
  const cudaGraphNode_t* last = nullptr;
  size_t count = 0;
  CHECK_EQ(cudaStreamGetCaptureInfo(s, &status, &id, &growing, &last, nullptr, &count),
           cudaSuccess);
  CHECK_EQ(status, cudaStreamCaptureStatusActive);
  CHECK(id != 0 && count == 1);
  CHECK_EQ(nodes_of(growing), 1u);
  CHECK_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  CHECK(graph == growing);
  int value = -1;
  CHECK_EQ(cudaMemcpy(&value, target, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  CHECK_EQ(value, 0);
  cudaGraphExec_t exec;
  CHECK_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  destroy(graph);
  CHECK_EQ(cudaGraphLaunch(exec, s), cudaSuccess);
  CHECK_EQ(cudaStreamSynchronize(s), cudaSuccess);
  CHECK_EQ(cudaMemcpy(&value, target, sizeof value, cudaMemcpyDeviceToHost), cudaSuccess);
  CHECK_EQ(value, 0x01010101);
  CHECK_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  CHECK_EQ(cudaGraphLaunch(exec, s), cudaErrorInvalidValue);
}

TEST(a_second_stream_joins_and_has_to_be_joined) {
  cudaStream_t a = stream(), b = stream();
  cudaEvent_t fork = event(), join = event();
  int* target = device_int();
  for (const bool joined : {true, false}) {
    begin(a);
    CHECK_EQ(cudaEventRecord(fork, a), cudaSuccess);
    CHECK_EQ(cudaStreamWaitEvent(b, fork, 0), cudaSuccess);
    CHECK_EQ(cudaMemsetAsync(target, 1, 4, b), cudaSuccess);
    CHECK_EQ(cudaMemsetAsync(target, 2, 4, a), cudaSuccess);
    cudaGraph_t graph;
    if (joined) {
      CHECK_EQ(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
      end_invalid(a);
      continue;
    }
    CHECK_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);
  }
  begin(a);
  CHECK_EQ(cudaEventRecord(fork, a), cudaSuccess);
  CHECK_EQ(cudaStreamWaitEvent(b, fork, 0), cudaSuccess);
  CHECK_EQ(cudaMemsetAsync(target, 1, 4, b), cudaSuccess);
  CHECK_EQ(cudaEventRecord(join, b), cudaSuccess);
  CHECK_EQ(cudaMemsetAsync(target, 2, 4, a), cudaSuccess);
  CHECK_EQ(cudaStreamWaitEvent(a, join, 0), cudaSuccess);
  CHECK_EQ(cudaMemsetAsync(target, 3, 4, a), cudaSuccess);
  cudaGraph_t graph;
  CHECK_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  size_t edges = 0;
  CHECK_EQ(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges), cudaSuccess);
  CHECK_EQ(nodes_of(graph), 3u);
  CHECK_EQ(edges, 2u);
  destroy(graph);
  CHECK_EQ(cudaMemsetAsync(target, 1, 4, b), cudaSuccess);  // b is an ordinary stream again
  CHECK_EQ(cudaStreamSynchronize(b), cudaSuccess);
}

TEST(waiting_for_a_capture_invalidates_it) {
  cudaStream_t s = stream();
  cudaEvent_t e = event();
  const auto refused = [&](cudaError_t wanted, auto call) {
    begin(s, cudaStreamCaptureModeRelaxed);
    CHECK_EQ(cudaEventRecord(e, s), cudaSuccess);
    CHECK_EQ(call(), wanted);
    end_invalid(s);
  };
  refused(cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamSynchronize(s); });
  refused(cudaErrorStreamCaptureUnsupported, [&] { return cudaStreamQuery(s); });
  refused(cudaErrorStreamCaptureUnsupported, [&] { return cudaDeviceSynchronize(); });
  refused(cudaErrorCapturedEvent, [&] { return cudaEventSynchronize(e); });
  refused(cudaErrorCapturedEvent, [&] { return cudaEventQuery(e); });
  refused(cudaErrorStreamCaptureUnsupported, [&] {
    return cudaStreamAddCallback(s, [](cudaStream_t, cudaError_t, void*) {}, nullptr, 0);
  });
  CHECK_EQ(cudaEventQuery(e), cudaErrorCapturedEvent);
  CHECK_EQ(cudaEventRecord(e, s), cudaSuccess);
  CHECK_EQ(cudaEventSynchronize(e), cudaSuccess);
}

TEST(orders_across_the_border_of_a_capture) {
  cudaStream_t a = stream(), b = stream(), outside = stream(), blocking = stream(0);
  cudaEvent_t e = event();
  int* target = device_int();
  CHECK_EQ(cudaEventRecord(e, outside), cudaSuccess);
  begin(a);
  CHECK_EQ(cudaStreamWaitEvent(a, e, 0), cudaErrorStreamCaptureIsolation);
  end_invalid(a);
  begin(a);
  begin(b);
  CHECK_EQ(cudaEventRecord(e, a), cudaSuccess);
  CHECK_EQ(cudaStreamWaitEvent(b, e, 0), cudaErrorStreamCaptureMerge);
  end_invalid(a);
  end_invalid(b);
  begin(blocking);
  CHECK_EQ(cudaMemsetAsync(target, 1, 4, nullptr), cudaErrorStreamCaptureImplicit);
  end_invalid(blocking);
  begin(a);  // the legacy stream does not wait for a
  CHECK_EQ(cudaMemsetAsync(target, 1, 4, nullptr), cudaSuccess);
  cudaGraph_t graph;
  CHECK_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  CHECK_EQ(nodes_of(graph), 0u);
  destroy(graph);
  CHECK_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
           cudaErrorStreamCaptureUnsupported);
  CHECK_EQ(cudaStreamEndCapture(a, &graph), cudaErrorIllegalState);
  begin(a);
  CHECK_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  CHECK_EQ(cudaStreamDestroy(a), cudaSuccess);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);  // nothing is left of the capture
}

TEST(unsafe_calls_depend_on_the_modes) {
  cudaStream_t s = stream();
  const auto allocate = [] {
    void* out = nullptr;
    const cudaError_t result = cudaMalloc(&out, 8);
    if (out) cudaFree(out);
    return result;
  };
  const auto elsewhere = [&](cudaStreamCaptureMode mode) {
    cudaError_t result = cudaSuccess;
    std::thread([&] {
      CHECK_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
      result = allocate();
    }).join();
    return result;
  };
  begin(s, cudaStreamCaptureModeGlobal);
  CHECK_EQ(allocate(), cudaErrorStreamCaptureUnsupported);
  end_invalid(s);
  begin(s, cudaStreamCaptureModeGlobal);
  CHECK_EQ(elsewhere(cudaStreamCaptureModeThreadLocal), cudaSuccess);
  CHECK_EQ(elsewhere(cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  end_invalid(s);
  begin(s, cudaStreamCaptureModeThreadLocal);
  CHECK_EQ(elsewhere(cudaStreamCaptureModeGlobal), cudaSuccess);
  CHECK_EQ(allocate(), cudaErrorStreamCaptureUnsupported);
  end_invalid(s);
  begin(s, cudaStreamCaptureModeGlobal);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  CHECK_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  CHECK_EQ(mode, cudaStreamCaptureModeGlobal);
  CHECK_EQ(allocate(), cudaSuccess);
  CHECK_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  cudaGraph_t graph = nullptr;
  std::thread([&] {
    CHECK_EQ(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  CHECK_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  destroy(graph);
}

TEST(captures_can_extend_a_graph_and_change_what_comes_next) {
  cudaStream_t s = stream();
  int* target = device_int();
  cudaGraph_t graph, same;
  CHECK_EQ(cudaGraphCreate(&graph, 0), cudaSuccess);
  cudaGraphNode_t first;
  CHECK_EQ(cudaGraphAddEmptyNode(&first, graph, nullptr, 0), cudaSuccess);
  CHECK_EQ(cudaStreamBeginCaptureToGraph(s, graph, &first, nullptr, 1, cudaStreamCaptureModeGlobal),
           cudaSuccess);
  CHECK_EQ(cudaMemsetAsync(target, 1, 4, s), cudaSuccess);
  CHECK_EQ(
      cudaStreamUpdateCaptureDependencies(s, &first, nullptr, 1, cudaStreamSetCaptureDependencies),
      cudaSuccess);
  CHECK_EQ(cudaMemsetAsync(target, 2, 4, s), cudaSuccess);
  CHECK_EQ(cudaStreamEndCapture(s, &same), cudaSuccess);
  CHECK(same == graph);
  size_t dependents = 0;
  CHECK_EQ(cudaGraphNodeGetDependentNodes(first, nullptr, nullptr, &dependents), cudaSuccess);
  CHECK_EQ(dependents, 2u);
  destroy(graph);
}

CHECK_MAIN
