// Stream capture: which streams are being captured into which graph, and which calls that forbids.
#ifndef SOFTGPU_GRAPH_CAPTURE_H_
#define SOFTGPU_GRAPH_CAPTURE_H_

#include <driver_types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "graph/graph.h"
#include "stream/operation.h"
#include "stream/stream.h"

namespace softgpu {

// One capture sequence, from its begin to its end.
struct Capture {
  uint64_t id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  std::shared_ptr<Graph> graph;
  bool graph_is_the_callers = false;  // cudaStreamBeginCaptureToGraph
  const Stream* origin = nullptr;
  std::vector<std::shared_ptr<Stream>> streams;
  bool invalidated = false;
  bool active = true;
};

// A stream's part in a capture: the nodes that the next one depends on.
struct StreamCapture {
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> dependencies;
  std::vector<cudaGraphEdgeData> edges;  // handed out beside the dependencies, all zero
};

// The point of a capture that an event marks.
struct CapturedEvent {
  std::shared_ptr<Capture> capture;
  std::vector<GraphNode*> dependencies;
};

// Whether any stream of the process is being captured: what every call asks first.
bool any_capture();

cudaError_t begin_capture(const std::shared_ptr<Stream>& stream, cudaStreamCaptureMode mode,
                          const std::shared_ptr<Graph>& into,
                          const std::vector<GraphNode*>& dependencies);
cudaError_t end_capture(const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>* graph);

// The stream is being destroyed: what it began can never be ended.
void abandon_capture(const Stream& stream);

// The stream's capture; nullptr if it is not being captured. Precondition: the graph lock is held.
StreamCapture* capture_of(const Stream& stream);
cudaError_t capture_status(const Stream& stream, cudaStreamCaptureStatus* status);
// Replaces or extends what the next node depends on.
cudaError_t update_dependencies(const Stream& stream, const std::vector<GraphNode*>& nodes,
                                bool replace);

// Empty if the stream is not being captured and may take work; else what the caller has to return:
// cudaSuccess if the operation has become a node, or why it cannot be one.
std::optional<cudaError_t> capture_operation(const std::shared_ptr<Stream>& stream,
                                             const Operation& operation, GraphNode** node);

// The same for an event's record and wait; both keep their order by edges instead of nodes.
std::optional<cudaError_t> capture_record(const std::shared_ptr<Stream>& stream,
                                          std::shared_ptr<CapturedEvent>* recorded);
std::optional<cudaError_t> capture_wait(const std::shared_ptr<Stream>& stream,
                                        const std::shared_ptr<CapturedEvent>& captured,
                                        bool event_was_recorded);

// Calls that ask about or wait for something that a capture has only written down. Each fails and
// invalidates the captures it touches.
cudaError_t check_stream_wait(const Stream& stream);
cudaError_t check_device_wait(int device);
cudaError_t check_captured_event(const std::shared_ptr<CapturedEvent>& captured);
// Calls that CUDA names potentially unsafe, such as cudaMalloc: forbidden by the thread's mode.
cudaError_t check_unsafe_call();
// A call that no graph can hold, on a stream that may be captured.
cudaError_t refuse_in_capture(const Stream& stream);

cudaStreamCaptureMode& thread_capture_mode();

}  // namespace softgpu

#endif  // SOFTGPU_GRAPH_CAPTURE_H_
