#include "server/session/marked.h"

#include <algorithm>

namespace pyft::server {

namespace {

enum class Captures { kNo, kYes, kUnknown };

// The driver is asked only while something captures. It does not tell of the default stream while a
// blocking one captures: what is put into it then breaks that capture, or fails.
Captures captures(Session& session, CUstream stream) {
  if (!session.open_captures()) return Captures::kNo;
  const auto ask = session.backend().cuStreamIsCapturing;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!ask || ask(stream, &status) != CUDA_SUCCESS) return Captures::kUnknown;
  return status == CU_STREAM_CAPTURE_STATUS_NONE ? Captures::kNo : Captures::kYes;
}

}  // namespace

bool enter_marked(Session& session, CUstream stream) {
  CollectiveMarks* const marks = session.marks();
  if (!marks) return false;
  switch (captures(session, stream)) {
    case Captures::kNo:
      marks->enter(stream);
      return true;
    case Captures::kYes:
      session.state<MarkedCalls>().in_graphs = true;
      return false;
    case Captures::kUnknown:
      marks->lose_sight("a stream does not say whether it captures");
  }
  return false;
}

bool is_captured(Session& session, CUstream stream) {
  return captures(session, stream) == Captures::kYes;
}

void note_in_group(Session& session, CUstream stream) {
  std::vector<CUstream>& streams = session.state<MarkedCalls>().streams;
  if (std::ranges::find(streams, stream) == streams.end()) streams.push_back(stream);
}

}  // namespace pyft::server
