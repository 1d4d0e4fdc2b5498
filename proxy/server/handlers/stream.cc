#include "ring/completion.h"
#include "server/handlers/handlers.h"
#include "server/handlers/left_streams.h"
#include "server/session/collective_marks.h"

namespace pyft::server {
namespace {

// Binds a minted handle; a creation that fails cannot be taken back, so it becomes sticky.
Status bind_minted(Session& session, const EntryHeader& header, const char* name, uint64_t value,
                   HandleKind kind, int code, void* object) {
  const Handle handle{value};
  if (code == 0 && (handle.kind() != kind || !session.table(kind).bind(handle, object)))
    return bad_handle(value);
  return finish(session, header, name, Domain::kCuda, code);
}

// A device that works by itself is waited for as a whole at cuts. A stream that captures is not
// asked, as that would break the capture.
int end_stream(Session& session, CUstream stream) {
  const backend::Table& api = session.backend();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!session.works() || !api.cuStreamQuery || !api.cuStreamIsCapturing ||
      api.cuStreamIsCapturing(stream, &status) || status != CU_STREAM_CAPTURE_STATUS_NONE)
    return api.cuStreamDestroy_v2(stream);
  LeftStreams& left = session.state<LeftStreams>();
  left.idle(api);
  if (api.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) return api.cuStreamDestroy_v2(stream);
  left.add(stream);
  return 0;
}

}  // namespace

Status do_cudaStreamCreateWithPriority(Session& session, const EntryHeader& header,
                                       const cmd::cudaStreamCreateWithPriority& c, Body, Body) {
  CUstream stream = nullptr;
  const int code = session.backend().cuStreamCreateWithPriority(&stream, c.flags, c.priority);
  return bind_minted(session, header, "cuStreamCreateWithPriority", c.handle, HandleKind::kStream,
                     code, stream);
}

Status do_cudaStreamDestroy(Session& session, const EntryHeader& header,
                            const cmd::cudaStreamDestroy& c, Body, Body) {
  void* stream = session.table(HandleKind::kStream).unbind(Handle{c.handle});
  if (!stream) return bad_handle(c.handle);
  if (session.marks()) session.marks()->forget(static_cast<CUstream>(stream));
  return finish(session, header, "cuStreamDestroy_v2", Domain::kCuda,
                end_stream(session, static_cast<CUstream>(stream)));
}

Status do_cudaStreamWaitEvent(Session& session, const EntryHeader& header,
                              const cmd::cudaStreamWaitEvent& c, Body, Body) {
  CUstream stream;
  CUevent event;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  if (!resolve_event(session, c.event, &event)) return bad_handle(c.event);
  return finish(session, header, "cuStreamWaitEvent", Domain::kCuda,
                session.backend().cuStreamWaitEvent(stream, event, c.flags));
}

Status do_cudaEventCreateWithFlags(Session& session, const EntryHeader& header,
                                   const cmd::cudaEventCreateWithFlags& c, Body, Body) {
  CUevent event = nullptr;
  const int code = session.backend().cuEventCreate(&event, c.flags);
  return bind_minted(session, header, "cuEventCreate", c.handle, HandleKind::kEvent, code, event);
}

Status do_cudaEventDestroy(Session& session, const EntryHeader& header,
                           const cmd::cudaEventDestroy& c, Body, Body) {
  void* event = session.table(HandleKind::kEvent).unbind(Handle{c.handle});
  if (!event) return bad_handle(c.handle);
  return finish(session, header, "cuEventDestroy_v2", Domain::kCuda,
                session.backend().cuEventDestroy_v2(static_cast<CUevent>(event)));
}

// The device's event is what other streams wait for; the words are what the client reads. They come
// first: a thread that has waited for the event, on whatever stream, must find it complete. The
// event's word has the time, the stream's says that both are reached.
Status do_cudaEventRecord(Session& session, const EntryHeader& header,
                          const cmd::cudaEventRecord& c, Body, Body) {
  CUstream stream;
  CUevent event;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  if (!resolve_event(session, c.event, &event)) return bad_handle(c.event);
  if (c.stream_value == 0)  // the stream captures: no word is published, it would become a node
    return finish(session, header, "cuEventRecord", Domain::kCuda,
                  session.backend().cuEventRecord(event, stream));
  const Status timed = session.publish_on_stream(stream, Handle{c.event}.index(), c.value);
  if (!timed.ok()) return timed;
  const Handle handle{c.stream};
  const uint32_t stream_word = c.stream == 2   ? ring::kPerThreadStreamWord
                               : c.stream <= 1 ? ring::kNullStreamWord
                                               : handle.index();
  const Status fenced = session.publish_on_stream(stream, stream_word, c.stream_value);
  if (!fenced.ok()) return fenced;
  return finish(session, header, "cuEventRecord", Domain::kCuda,
                session.backend().cuEventRecord(event, stream));
}

}  // namespace pyft::server
