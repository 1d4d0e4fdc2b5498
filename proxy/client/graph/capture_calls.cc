// A capture begins, ends as a graph, and is asked for: the calls.
#include <utility>

#include "api/commands.h"
#include "client/device/capture.h"
#include "client/graph/graph.h"
#include "client/process/handles.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode) {
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  return stream ? begin_capture(*stream, mode) : error;
}

cudaError_t end_capture(Stream& stream, cudaGraph_t* graph) {
  if (!graph) return cudaErrorInvalidValue;
  *graph = nullptr;
  EndedCapture ended;
  if (const cudaError_t error = leave_to_end(stream, &ended); error != cudaSuccess) return error;
  const uint64_t handle = ended.graph ? ended.graph : mint_handle(HandleKind::kGraph);
  if (!handle) return cudaErrorMemoryAllocation;
  note_graph(stream.device, handle);
  cudaError_t error = stream.device.confirm(Call::cudaStreamEndCapture,
                                            cmd::cudaStreamEndCapture{handle, stream.handle});
  if (error == cudaSuccess && ended.invalidated) {
    error = stream.device.send(Call::cudaGraphDestroy, cmd::cudaGraphDestroy{handle});
    if (error == cudaSuccess) error = cudaErrorStreamCaptureInvalidated;
  }
  if (error == cudaSuccess)
    *graph = reinterpret_cast<cudaGraph_t>(handle);
  else if (forget_graph(handle))
    end_handle(handle);
  return error;
}

cudaError_t end(cudaStream_t handle, cudaGraph_t* graph) {
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  return stream ? end_capture(*stream, graph) : error;
}

cudaError_t status_of(cudaStream_t handle, cudaStreamCaptureStatus* status, uint64_t* id) {
  if (!status) return cudaErrorInvalidValue;
  // Without a capture nothing is looked up: this is asked at every allocation.
  *status = cudaStreamCaptureStatusNone;
  *id = 0;
  if (!any_captures()) return cudaSuccess;
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  return stream ? capture_status(*stream, status, id) : error;
}

template <class Mode>
bool exchange_mode(Mode* mode) {
  if (!mode) return false;
  const auto wanted = static_cast<cudaStreamCaptureMode>(*mode);
  if (wanted < cudaStreamCaptureModeGlobal || wanted > cudaStreamCaptureModeRelaxed) return false;
  *mode = static_cast<Mode>(std::exchange(thread_capture_mode(), wanted));
  return true;
}

// The handle of the graph that a capture is about to become. No call takes it before the capture
// has ended: nothing can be added to the graph but by its streams.
cudaError_t graph_of(uint64_t id, uint64_t* graph) {
  *graph = graph_of_capture(id, 0);
  if (*graph || !capture_lives(id)) return cudaSuccess;
  const uint64_t minted = mint_handle(HandleKind::kGraph);
  if (!minted) return cudaErrorMemoryAllocation;
  *graph = graph_of_capture(id, minted);
  if (*graph != minted) end_handle(minted);  // another thread was first, or has ended the capture
  return cudaSuccess;
}

// What is told of a capture beside its status. Nodes stay the backend's.
template <class Graph, class... Nodes>
cudaError_t info_of(uint64_t id, Graph* graph, size_t* count, Nodes... wanted) {
  if (count) *count = 0;
  for (const bool asked : {wanted != nullptr...})
    if (asked) return cudaErrorNotSupported;
  if (!graph) return cudaSuccess;
  uint64_t handle = 0;
  const cudaError_t error = graph_of(id, &handle);
  *graph = reinterpret_cast<Graph>(handle);
  return error;
}

}  // namespace

PYFT_API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  const Entered entered(Api::cudaStreamBeginCapture);
  return done(begin(stream, mode));
}

PYFT_API CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  const Entered entered(Api::cuStreamBeginCapture_v2);
  return static_cast<CUresult>(begin(hStream, static_cast<cudaStreamCaptureMode>(mode)));
}

PYFT_API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  const Entered entered(Api::cudaStreamEndCapture);
  return done(end(stream, pGraph));
}

PYFT_API CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  const Entered entered(Api::cuStreamEndCapture);
  return static_cast<CUresult>(end(hStream, phGraph));
}

PYFT_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                           enum cudaStreamCaptureStatus* pCaptureStatus) {
  const Entered entered(Api::cudaStreamIsCapturing);
  uint64_t id = 0;
  return done(status_of(stream, pCaptureStatus, &id));
}

PYFT_API CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  const Entered entered(Api::cuStreamIsCapturing);
  uint64_t id = 0;
  return static_cast<CUresult>(
      status_of(hStream, reinterpret_cast<cudaStreamCaptureStatus*>(captureStatus), &id));
}

PYFT_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream,
                                              enum cudaStreamCaptureStatus* captureStatus_out,
                                              unsigned long long* id_out, cudaGraph_t* graph_out,
                                              const cudaGraphNode_t** dependencies_out,
                                              const cudaGraphEdgeData** edgeData_out,
                                              size_t* numDependencies_out) {
  const Entered entered(Api::cudaStreamGetCaptureInfo);
  uint64_t id = 0;
  const cudaError_t error = status_of(stream, captureStatus_out, &id);
  if (id_out) *id_out = id;
  if (error != cudaSuccess || !id) return done(error);
  return done(info_of(id, graph_out, numDependencies_out, dependencies_out, edgeData_out));
}

PYFT_API CUresult cuStreamGetCaptureInfo_v3(CUstream hStream,
                                            CUstreamCaptureStatus* captureStatus_out,
                                            cuuint64_t* id_out, CUgraph* graph_out,
                                            const CUgraphNode** dependencies_out,
                                            const CUgraphEdgeData** edgeData_out,
                                            size_t* numDependencies_out) {
  const Entered entered(Api::cuStreamGetCaptureInfo_v3);
  uint64_t id = 0;
  const cudaError_t error =
      status_of(hStream, reinterpret_cast<cudaStreamCaptureStatus*>(captureStatus_out), &id);
  if (id_out) *id_out = id;
  if (error != cudaSuccess || !id) return static_cast<CUresult>(error);
  return static_cast<CUresult>(
      info_of(id, graph_out, numDependencies_out, dependencies_out, edgeData_out));
}

PYFT_API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode) {
  const Entered entered(Api::cudaThreadExchangeStreamCaptureMode);
  return done(exchange_mode(mode) ? cudaSuccess : cudaErrorInvalidValue);
}

PYFT_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  const Entered entered(Api::cuThreadExchangeStreamCaptureMode);
  return exchange_mode(mode) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
