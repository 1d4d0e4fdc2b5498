#include "graph/capture.h"

#include <algorithm>
#include <map>

namespace softgpu {
namespace {

std::atomic<int> active_captures{0};

struct Captures {
  uint64_t next_id = 1;
  std::map<uint64_t, std::shared_ptr<Capture>> active;
  std::map<const Stream*, StreamCapture> streams;
};

Captures& captures() {
  static auto* const all = std::make_unique<Captures>().release();
  return *all;
}

void leave(const Capture& capture) {
  for (const auto& stream : capture.streams) captures().streams.erase(stream.get());
}

// A stream takes part from its first wait for an event of the capture.
StreamCapture& join(const std::shared_ptr<Capture>& capture,
                    const std::shared_ptr<Stream>& stream) {
  capture->streams.push_back(stream);
  StreamCapture& part = captures().streams[stream.get()];
  part.capture = capture;
  return part;
}

void add_dependencies(StreamCapture* part, const std::vector<GraphNode*>& more) {
  for (GraphNode* node : more) {
    auto& all = part->dependencies;
    if (std::find(all.begin(), all.end(), node) == all.end()) all.push_back(node);
  }
}

// Work on the legacy stream would have to wait for the blocking streams of its device.
cudaError_t check_legacy(const Stream& stream, bool invalidate) {
  if (stream.kind != StreamKind::kLegacy) return cudaSuccess;
  cudaError_t result = cudaSuccess;
  for (const auto& [id, capture] : captures().active) {
    for (const auto& other : capture->streams) {
      if (other->device != stream.device || other->kind != StreamKind::kBlocking) continue;
      capture->invalidated |= invalidate;
      result = cudaErrorStreamCaptureImplicit;
    }
  }
  return result;
}

// Every stream's last nodes must lead to those of the stream that began the capture.
bool joined(const Capture& capture) {
  const auto& ends = captures().streams[capture.origin].dependencies;
  for (const auto& stream : capture.streams) {
    for (const GraphNode* node : captures().streams[stream.get()].dependencies) {
      if (!leads_to(node, ends)) return false;
    }
  }
  return true;
}

}  // namespace

bool any_capture() {
  return active_captures.load(std::memory_order_relaxed) > 0;
}

cudaStreamCaptureMode& thread_capture_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

cudaError_t begin_capture(const std::shared_ptr<Stream>& stream, cudaStreamCaptureMode mode,
                          const std::shared_ptr<Graph>& into,
                          const std::vector<GraphNode*>& dependencies) {
  const GraphLock lock;
  if (stream->kind == StreamKind::kLegacy) return cudaErrorStreamCaptureUnsupported;
  if (capture_of(*stream)) return cudaErrorIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->id = captures().next_id++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->graph_is_the_callers = into != nullptr;
  capture->graph = into ? into : std::make_shared<Graph>();
  capture->origin = stream.get();
  // The program may look at the graph, and add to it, while it grows.
  if (!into) publish_graph(capture->graph);
  captures().active[capture->id] = capture;
  ++active_captures;
  join(capture, stream).dependencies = dependencies;
  return cudaSuccess;
}

cudaError_t end_capture(const std::shared_ptr<Stream>& stream, std::shared_ptr<Graph>* graph) {
  const GraphLock lock;
  const StreamCapture* part = capture_of(*stream);
  if (!part) return cudaErrorIllegalState;
  const auto capture = part->capture;
  if (capture->origin != stream.get()) {
    capture->invalidated = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  const bool complete = capture->invalidated || joined(*capture);
  leave(*capture);
  capture->active = false;
  captures().active.erase(capture->id);
  --active_captures;
  if (!complete || capture->invalidated) {
    if (!capture->graph_is_the_callers) drop_graph(capture->graph.get());
    return complete ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
  }
  *graph = capture->graph;
  return cudaSuccess;
}

void abandon_capture(const Stream& stream) {
  if (!any_capture()) return;
  const GraphLock lock;
  const StreamCapture* part = capture_of(stream);
  if (!part) return;
  const auto capture = part->capture;
  capture->invalidated = true;
  if (capture->origin != &stream) return;
  if (!capture->graph_is_the_callers) drop_graph(capture->graph.get());
  leave(*capture);
  capture->active = false;
  captures().active.erase(capture->id);
  --active_captures;
}

StreamCapture* capture_of(const Stream& stream) {
  const auto found = captures().streams.find(&stream);
  return found == captures().streams.end() ? nullptr : &found->second;
}

cudaError_t capture_status(const Stream& stream, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  if (!any_capture()) return cudaSuccess;
  const GraphLock lock;
  if (const cudaError_t bad = check_legacy(stream, false); bad != cudaSuccess) return bad;
  if (const StreamCapture* part = capture_of(stream)) {
    *status = part->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
  }
  return cudaSuccess;
}

cudaError_t update_dependencies(const Stream& stream, const std::vector<GraphNode*>& nodes,
                                bool replace) {
  const GraphLock lock;
  StreamCapture* part = capture_of(stream);
  if (!part) return cudaErrorIllegalState;
  if (part->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  for (const GraphNode* node : nodes) {
    if (!part->capture->graph->owns(node)) return cudaErrorInvalidValue;
  }
  if (replace) part->dependencies.clear();
  add_dependencies(part, nodes);
  return cudaSuccess;
}

std::optional<cudaError_t> capture_operation(const std::shared_ptr<Stream>& stream,
                                             const Operation& operation, GraphNode** node) {
  if (!any_capture()) return std::nullopt;
  const GraphLock lock;
  if (const cudaError_t bad = check_legacy(*stream, true); bad != cudaSuccess) return bad;
  StreamCapture* part = capture_of(*stream);
  if (!part) return std::nullopt;
  if (part->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  // The program may have destroyed nodes of the graph it captures into.
  std::erase_if(part->dependencies, [](const GraphNode* at) { return !find_node(at); });
  GraphNode* added = part->capture->graph->add(operation, part->dependencies);
  part->dependencies = {added};
  if (node) *node = added;
  return cudaSuccess;
}

std::optional<cudaError_t> capture_record(const std::shared_ptr<Stream>& stream,
                                          std::shared_ptr<CapturedEvent>* recorded) {
  recorded->reset();
  if (!any_capture()) return std::nullopt;
  const GraphLock lock;
  if (const cudaError_t bad = check_legacy(*stream, true); bad != cudaSuccess) return bad;
  const StreamCapture* part = capture_of(*stream);
  if (!part) return std::nullopt;
  if (part->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  *recorded = std::make_shared<CapturedEvent>(CapturedEvent{part->capture, part->dependencies});
  return cudaSuccess;
}

std::optional<cudaError_t> capture_wait(const std::shared_ptr<Stream>& stream,
                                        const std::shared_ptr<CapturedEvent>& captured,
                                        bool event_was_recorded) {
  if (!captured && !any_capture()) return std::nullopt;
  const GraphLock lock;
  if (const cudaError_t bad = check_legacy(*stream, true); bad != cudaSuccess) return bad;
  StreamCapture* part = capture_of(*stream);
  if (!captured) {
    if (!part) return std::nullopt;
    if (part->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    if (!event_was_recorded) return cudaSuccess;
    part->capture->invalidated = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (!captured->capture->active) return cudaErrorCapturedEvent;
  if (captured->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (stream->kind == StreamKind::kLegacy) {
    captured->capture->invalidated = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  if (part && part->capture != captured->capture) {
    part->capture->invalidated = captured->capture->invalidated = true;
    return cudaErrorStreamCaptureMerge;
  }
  add_dependencies(part ? part : &join(captured->capture, stream), captured->dependencies);
  return cudaSuccess;
}

cudaError_t check_stream_wait(const Stream& stream) {
  if (!any_capture()) return cudaSuccess;
  const GraphLock lock;
  if (const cudaError_t bad = check_legacy(stream, true); bad != cudaSuccess) return bad;
  if (const cudaError_t bad = refuse_in_capture(stream); bad != cudaSuccess) return bad;
  return check_unsafe_call();
}

cudaError_t refuse_in_capture(const Stream& stream) {
  if (!any_capture()) return cudaSuccess;
  const GraphLock lock;
  if (const cudaError_t bad = check_legacy(stream, true); bad != cudaSuccess) return bad;
  const StreamCapture* part = capture_of(stream);
  if (!part) return cudaSuccess;
  part->capture->invalidated = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t check_device_wait(int device) {
  if (!any_capture()) return cudaSuccess;
  const GraphLock lock;
  cudaError_t result = cudaSuccess;
  for (const auto& [id, capture] : captures().active) {
    for (const auto& stream : capture->streams) {
      if (stream->device != device) continue;
      capture->invalidated = true;
      result = cudaErrorStreamCaptureUnsupported;
    }
  }
  return result;
}

cudaError_t check_captured_event(const std::shared_ptr<CapturedEvent>& captured) {
  if (!captured) return check_unsafe_call();
  const GraphLock lock;
  captured->capture->invalidated = true;
  return cudaErrorCapturedEvent;
}

cudaError_t check_unsafe_call() {
  const cudaStreamCaptureMode mode = thread_capture_mode();
  if (!any_capture() || mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const GraphLock lock;
  cudaError_t result = cudaSuccess;
  for (const auto& [id, capture] : captures().active) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool forbidden =
        own ? capture->mode != cudaStreamCaptureModeRelaxed
            : mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (!forbidden) continue;
    capture->invalidated = true;
    result = cudaErrorStreamCaptureUnsupported;
  }
  return result;
}

}  // namespace softgpu
