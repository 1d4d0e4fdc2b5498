// Stream capture and graphs. The dispatch thread captures in relaxed mode: what a program may not
// do while it captures, its client has refused.
#include "server/handlers/handlers.h"
#include "server/handlers/live_objects.h"
#include "server/session/captured_collectives.h"
#include "server/session/marked.h"

namespace pyft::server {
namespace {

constexpr size_t kMaxPath = 4096;

}  // namespace

uint64_t open_captures(Session& session) {
  return session.open_captures();
}

Status do_cudaStreamBeginCapture(Session& session, const EntryHeader& header,
                                 const cmd::cudaStreamBeginCapture& c, Body, Body) {
  CUstream stream;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  const auto function = session.backend().cuStreamBeginCapture_v2;
  if (!function) return missing(session, header, "cuStreamBeginCapture_v2", 801);
  const int code = session.change_captures([&](auto& open) {
    const int begun = function(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (begun == 0 && open++ == 0) session.state<CapturedCollectives>().begin();
    return begun;
  });
  return finish(session, header, "cuStreamBeginCapture_v2", Domain::kCuda, code);
}

Status do_cudaStreamEndCapture(Session& session, const EntryHeader& header,
                               const cmd::cudaStreamEndCapture& c, Body, Body) {
  CUstream stream;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  CUgraph graph = nullptr;
  const backend::Table& api = session.backend();
  const int code = session.change_captures([&](auto& open) {
    const int ended = api.cuStreamEndCapture(stream, &graph);
    // A capture that has been broken ends here as well; only then is there another code.
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (open && (ended == 0 || api.cuStreamIsCapturing(stream, &status) ||
                 status == CU_STREAM_CAPTURE_STATUS_NONE))
      --open;
    return ended;
  });
  const Handle handle{c.graph};
  if (code == 0 && (handle.kind() != HandleKind::kGraph ||
                    !session.table(HandleKind::kGraph).bind(handle, graph)))
    return bad_handle(c.graph);
  if (code == 0) session.state<CapturedCollectives>().end(c.graph);
  return finish(session, header, "cuStreamEndCapture", Domain::kCuda, code);
}

Status do_cudaStreamIsCapturing(Session& session, const EntryHeader& header,
                                const cmd::cudaStreamIsCapturing& c, Body, Body) {
  CUstream stream;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const int code = session.backend().cuStreamIsCapturing(stream, &status);
  const uint64_t values[] = {static_cast<uint64_t>(status)};
  return finish(session, header, "cuStreamIsCapturing", Domain::kCuda, code, values, 1);
}

Status do_cudaGraphInstantiateWithFlags(Session& session, const EntryHeader& header,
                                        const cmd::cudaGraphInstantiateWithFlags& c, Body, Body) {
  CUgraph graph;
  if (!resolve_graph(session, c.graph, &graph)) return bad_handle(c.graph);
  CUgraphExec exec = nullptr;
  const int code = session.backend().cuGraphInstantiateWithFlags(&exec, graph, c.flags);
  const Handle handle{c.exec};
  if (code == 0 && (handle.kind() != HandleKind::kGraphExec ||
                    !session.table(HandleKind::kGraphExec).bind(handle, exec)))
    return bad_handle(c.exec);
  if (code == 0) session.state<CapturedCollectives>().instantiate(c.exec, c.graph);
  return finish(session, header, "cuGraphInstantiateWithFlags", Domain::kCuda, code);
}

// Which graphs hold collectives is not followed through copies, updates and graphs within graphs:
// once there are such graphs, any may wait for other ranks.
Status do_cudaGraphLaunch(Session& session, const EntryHeader& header,
                          const cmd::cudaGraphLaunch& c, Body, Body) {
  CUgraphExec exec;
  CUstream stream;
  if (!resolve_graph_exec(session, c.exec, &exec)) return bad_handle(c.exec);
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  session.state<CapturedCollectives>().launch(session, stream, c.exec);
  const auto launch = [&] { return int{session.backend().cuGraphLaunch(exec, stream)}; };
  const bool waits = session.marks() && session.state<MarkedCalls>().in_graphs;
  return finish(session, header, "cuGraphLaunch", Domain::kCuda,
                waits ? marked(session, stream, launch) : launch());
}

Status do_cudaGraphDestroy(Session& session, const EntryHeader& header,
                           const cmd::cudaGraphDestroy& c, Body, Body) {
  CUgraph graph;
  if (!resolve_graph(session, c.graph, &graph)) return bad_handle(c.graph);
  session.table(HandleKind::kGraph).unbind(Handle{c.graph});
  session.state<CapturedCollectives>().destroy(c.graph);
  return finish(session, header, "cuGraphDestroy", Domain::kCuda,
                session.backend().cuGraphDestroy(graph));
}

Status do_cudaGraphExecDestroy(Session& session, const EntryHeader& header,
                               const cmd::cudaGraphExecDestroy& c, Body, Body) {
  CUgraphExec exec;
  if (!resolve_graph_exec(session, c.exec, &exec)) return bad_handle(c.exec);
  session.table(HandleKind::kGraphExec).unbind(Handle{c.exec});
  session.state<CapturedCollectives>().destroy(c.exec);
  return finish(session, header, "cuGraphExecDestroy", Domain::kCuda,
                session.backend().cuGraphExecDestroy(exec));
}

Status do_cudaGraphGetNodes(Session& session, const EntryHeader& header,
                            const cmd::cudaGraphGetNodes& c, Body, Body) {
  CUgraph graph;
  if (!resolve_graph(session, c.graph, &graph)) return bad_handle(c.graph);
  size_t count = 0;
  const int code = session.backend().cuGraphGetNodes(graph, nullptr, &count);
  const uint64_t values[] = {count};
  return finish(session, header, "cuGraphGetNodes", Domain::kCuda, code, values, 1);
}

Status do_cudaGraphDebugDotPrint(Session& session, const EntryHeader& header,
                                 const cmd::cudaGraphDebugDotPrint& c, Body, Body payload) {
  CUgraph graph;
  if (!resolve_graph(session, c.graph, &graph)) return bad_handle(c.graph);
  if (payload.size() >= kMaxPath) return Status::broken("a path is longer than 4096 bytes");
  const std::string path(reinterpret_cast<const char*>(payload.data()), payload.size());
  return finish(session, header, "cuGraphDebugDotPrint", Domain::kCuda,
                session.backend().cuGraphDebugDotPrint(graph, path.c_str(), c.flags));
}

}  // namespace pyft::server
