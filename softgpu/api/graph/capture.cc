// Stream capture.
#include <utility>

#include "api/graph/support.h"
#include "api/support.h"
#include "graph/capture.h"

namespace api = softgpu::api;
using softgpu::GraphNode;
using StreamPointer = std::shared_ptr<softgpu::Stream>;

namespace {

bool valid_mode(cudaStreamCaptureMode mode) {
  return mode >= cudaStreamCaptureModeGlobal && mode <= cudaStreamCaptureModeRelaxed;
}

struct CaptureInfo {
  cudaStreamCaptureStatus* status = nullptr;
  unsigned long long* id = nullptr;
  cudaGraph_t* graph = nullptr;
  const cudaGraphNode_t** dependencies = nullptr;
  const cudaGraphEdgeData** edges = nullptr;
  size_t* count = nullptr;
};

void clear(const CaptureInfo& out) {
  if (out.id) *out.id = 0;
  if (out.graph) *out.graph = nullptr;
  if (out.dependencies) *out.dependencies = nullptr;
  if (out.edges) *out.edges = nullptr;
  if (out.count) *out.count = 0;
}

cudaError_t capture_info(const void* stream, const CaptureInfo& out) {
  if (!out.status) return cudaErrorInvalidValue;
  clear(out);
  return api::with_stream(stream, [&](const StreamPointer& s) {
    const softgpu::GraphLock lock;
    const cudaError_t bad = softgpu::capture_status(*s, out.status);
    if (bad != cudaSuccess || *out.status == cudaStreamCaptureStatusNone) return bad;
    softgpu::StreamCapture& part = *softgpu::capture_of(*s);
    if (out.id) *out.id = part.capture->id;
    if (*out.status != cudaStreamCaptureStatusActive) return cudaSuccess;
    part.edges.assign(part.dependencies.size(), cudaGraphEdgeData{});
    if (out.graph) *out.graph = reinterpret_cast<cudaGraph_t>(part.capture->graph.get());
    if (out.dependencies) {
      *out.dependencies = reinterpret_cast<const cudaGraphNode_t*>(part.dependencies.data());
    }
    if (out.edges) *out.edges = part.edges.data();
    if (out.count) *out.count = part.dependencies.size();
    return cudaSuccess;
  });
}

cudaError_t begin(const void* stream, cudaStreamCaptureMode mode) {
  if (!valid_mode(mode)) return cudaErrorInvalidValue;
  return api::with_stream(
      stream, [&](const StreamPointer& s) { return softgpu::begin_capture(s, mode, {}, {}); });
}

cudaError_t end(const void* stream, cudaGraph_t* graph) {
  if (!graph) return cudaErrorInvalidValue;
  *graph = nullptr;
  return api::with_stream(stream, [&](const StreamPointer& s) {
    std::shared_ptr<softgpu::Graph> captured;
    const cudaError_t bad = softgpu::end_capture(s, &captured);
    *graph = reinterpret_cast<cudaGraph_t>(captured.get());
    return bad;
  });
}

}  // namespace

SOFTGPU_API cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
  return api::record(begin(s, mode));
}

SOFTGPU_API cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                                      const cudaGraphNode_t* dependencies,
                                                      const cudaGraphEdgeData*, size_t count,
                                                      cudaStreamCaptureMode mode) {
  return api::graph_call([&] {
    std::vector<GraphNode*> nodes;
    const auto into = softgpu::find_graph(graph);
    if (!into || !valid_mode(mode) || !api::find_nodes(dependencies, count, &nodes)) {
      return cudaErrorInvalidValue;
    }
    return api::with_stream(stream, [&](const StreamPointer& s) {
      return softgpu::begin_capture(s, mode, into, nodes);
    });
  });
}

SOFTGPU_API cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  return api::record(end(s, graph));
}

SOFTGPU_API cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
  if (!status) return api::record(cudaErrorInvalidValue);
  *status = cudaStreamCaptureStatusNone;
  if (!softgpu::any_capture()) return cudaSuccess;
  return api::record(api::with_stream(
      s, [&](const StreamPointer& p) { return softgpu::capture_status(*p, status); }));
}

SOFTGPU_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* status,
                                                 unsigned long long* id, cudaGraph_t* graph,
                                                 const cudaGraphNode_t** dependencies,
                                                 const cudaGraphEdgeData** edges, size_t* count) {
  return api::record(capture_info(s, {status, id, graph, dependencies, edges, count}));
}

// The spellings of CUDA 12, whose headers map the plain name to these.
SOFTGPU_API cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t s, cudaStreamCaptureStatus* status,
                                                    unsigned long long* id, cudaGraph_t* graph,
                                                    const cudaGraphNode_t** dependencies,
                                                    size_t* count) {
  return api::record(capture_info(s, {status, id, graph, dependencies, nullptr, count}));
}

SOFTGPU_API cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t s, cudaStreamCaptureStatus* status,
                                                    unsigned long long* id, cudaGraph_t* graph,
                                                    const cudaGraphNode_t** dependencies,
                                                    const cudaGraphEdgeData** edges,
                                                    size_t* count) {
  return api::record(capture_info(s, {status, id, graph, dependencies, edges, count}));
}

SOFTGPU_API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                            cudaGraphNode_t* dependencies,
                                                            const cudaGraphEdgeData*, size_t count,
                                                            unsigned flags) {
  return api::graph_call([&] {
    std::vector<GraphNode*> nodes;
    if (flags > cudaStreamSetCaptureDependencies || !api::find_nodes(dependencies, count, &nodes)) {
      return cudaErrorInvalidValue;
    }
    return api::with_stream(stream, [&](const StreamPointer& s) {
      return softgpu::update_dependencies(*s, nodes, flags == cudaStreamSetCaptureDependencies);
    });
  });
}

SOFTGPU_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (!mode || !valid_mode(*mode)) return api::record(cudaErrorInvalidValue);
  std::swap(*mode, softgpu::thread_capture_mode());
  return cudaSuccess;
}

SOFTGPU_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  static_assert(sizeof(CUstreamCaptureMode) == sizeof(cudaStreamCaptureMode));
  return api::driver_result(
      cudaThreadExchangeStreamCaptureMode(reinterpret_cast<cudaStreamCaptureMode*>(mode)));
}

SOFTGPU_API CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode) {
  return api::driver_result(begin(s, static_cast<cudaStreamCaptureMode>(mode)));
}

SOFTGPU_API CUresult cuStreamBeginCaptureToGraph(CUstream s, CUgraph graph,
                                                 const CUgraphNode* dependencies,
                                                 const CUgraphEdgeData*, size_t count,
                                                 CUstreamCaptureMode mode) {
  return api::driver_result(cudaStreamBeginCaptureToGraph(
      s, graph, dependencies, nullptr, count, static_cast<cudaStreamCaptureMode>(mode)));
}

SOFTGPU_API CUresult cuStreamEndCapture(CUstream s, CUgraph* graph) {
  return api::driver_result(end(s, graph));
}

SOFTGPU_API CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus* status) {
  return api::driver_result(
      cudaStreamIsCapturing(s, reinterpret_cast<cudaStreamCaptureStatus*>(status)));
}

SOFTGPU_API CUresult cuStreamGetCaptureInfo_v2(CUstream s, CUstreamCaptureStatus* status,
                                               cuuint64_t* id, CUgraph* graph,
                                               const CUgraphNode** dependencies, size_t* count) {
  return cuStreamGetCaptureInfo_v3(s, status, id, graph, dependencies, nullptr, count);
}

SOFTGPU_API CUresult cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus* status,
                                               cuuint64_t* id, CUgraph* graph,
                                               const CUgraphNode** dependencies,
                                               const CUgraphEdgeData** edges, size_t* count) {
  unsigned long long number = 0;
  const cudaError_t result =
      capture_info(s, {reinterpret_cast<cudaStreamCaptureStatus*>(status), &number, graph,
                       dependencies, reinterpret_cast<const cudaGraphEdgeData**>(edges), count});
  if (id) *id = number;
  return api::driver_result(result);
}

SOFTGPU_API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream s, CUgraphNode* dependencies,
                                                          const CUgraphEdgeData*, size_t count,
                                                          unsigned flags) {
  return api::driver_result(
      cudaStreamUpdateCaptureDependencies(s, dependencies, nullptr, count, flags));
}
