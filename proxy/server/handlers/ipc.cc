// Memory and events that servers share. The backend checks the bytes of a handle: they may come
// from any process, and open at most what the same user may open anyway.
#include <string>

#include "server/handlers/handlers.h"
#include "server/session/collective_marks.h"

namespace pyft::server {
namespace {

template <class Handle>
Body bytes_of(const Handle& handle) {
  return std::as_bytes(std::span(&handle, 1));
}

template <class Handle>
bool read_handle(Body payload, Handle* out) {
  if (payload.size() != sizeof *out) return false;
  std::memcpy(out, payload.data(), sizeof *out);
  return true;
}

// No mark tells of a kernel that waits for what another process writes there, nor of a stream that
// waits for its event.
void may_wait_for_others(Session& session) {
  if (CollectiveMarks* const marks = session.marks())
    marks->lose_sight("the program shares memory or events with other processes");
}

// What the program has would be missing, or something else, and that would look like its error.
[[noreturn]] void cannot_open(Session& session, const std::string& what, int code,
                              const char* why) {
  session.recovery().fail(ring::FaultKind::kUnrecoverable, code,
                          what + " of another process cannot be opened again: " + why + ", code [" +
                              std::to_string(code) + "]");
}

// An auditor writes into nothing that others see, and it could not keep kernels from that here.
void refuse_to_auditor(Session& session, const EntryHeader& header) {
  if (session.channel().role() != ring::Role::kAuditor) return;
  session.recovery().fail(ring::FaultKind::kUnrecoverable, 0,
                          "the program shares memory or events with other processes (CUDA IPC)",
                          header.seq);
}

constexpr char kGone[] = "the process that shared it has ended or freed it";
constexpr char kElsewhere[] = "it lies elsewhere now";

}  // namespace

Status do_cudaIpcGetMemHandle(Session& session, const EntryHeader& header,
                              const cmd::cudaIpcGetMemHandle& c, Body, Body) {
  const auto function = session.backend().cuIpcGetMemHandle;
  if (!function) return missing(session, header, "cuIpcGetMemHandle", CUDA_ERROR_NOT_SUPPORTED);
  CUipcMemHandle handle{};
  const int code = function(&handle, c.address);
  return finish(session, header, "cuIpcGetMemHandle", Domain::kCuda, code, nullptr, 0,
                bytes_of(handle));
}

Status do_cudaIpcOpenMemHandle(Session& session, const EntryHeader& header,
                               const cmd::cudaIpcOpenMemHandle& c, Body, Body payload) {
  refuse_to_auditor(session, header);
  CUipcMemHandle handle;
  if (!read_handle(payload, &handle)) return short_body("cudaIpcOpenMemHandle");
  const backend::Table& api = session.backend();
  if (!api.cuIpcOpenMemHandle_v2 || !api.cuMemGetAddressRange_v2)
    return missing(session, header, "cuIpcOpenMemHandle_v2", CUDA_ERROR_NOT_SUPPORTED);
  CUdeviceptr address = 0, base = 0;
  size_t bytes = 0;
  int code = api.cuIpcOpenMemHandle_v2(&address, handle, c.flags);
  if (code == 0) may_wait_for_others(session);
  if (code == 0) code = api.cuMemGetAddressRange_v2(&base, &bytes, address);
  const uint64_t values[] = {address, bytes};
  return finish(session, header, "cuIpcOpenMemHandle_v2", Domain::kCuda, code, values, 2);
}

// The entry before it has opened the memory, but where a new server makes its objects again: then
// it is opened here, and has what is in it now.
Status do_pyftKeepImport(Session& session, const EntryHeader& header, const cmd::pyftKeepImport& c,
                         Body, Body payload) {
  refuse_to_auditor(session, header);
  CUipcMemHandle handle;
  if (!read_handle(payload, &handle)) return short_body("pyftKeepImport");
  const backend::Table& api = session.backend();
  CUdeviceptr address = 0;
  if (session.recovery().restores_objects()) {
    const int code =
        api.cuIpcOpenMemHandle_v2
            ? api.cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
            : CUDA_ERROR_NOT_SUPPORTED;
    if (code) cannot_open(session, "memory", code, kGone);
    if (address != c.address) cannot_open(session, "memory", code, kElsewhere);
    may_wait_for_others(session);
    return Status::good();
  }
  size_t bytes = 0;
  if (session.recovery().replaying() && api.cuMemGetAddressRange_v2 &&
      (api.cuMemGetAddressRange_v2(&address, &bytes, c.address) || address != c.address))
    cannot_open(session, "memory", 0, kElsewhere);
  return Status::good();
}

Status do_pyftDropImport(Session&, const EntryHeader&, const cmd::pyftDropImport&, Body, Body) {
  return Status::good();
}

Status do_cudaIpcCloseMemHandle(Session& session, const EntryHeader& header,
                                const cmd::cudaIpcCloseMemHandle& c, Body, Body) {
  const auto function = session.backend().cuIpcCloseMemHandle;
  if (!function) return missing(session, header, "cuIpcCloseMemHandle", CUDA_ERROR_NOT_SUPPORTED);
  return finish(session, header, "cuIpcCloseMemHandle", Domain::kCuda, function(c.address));
}

Status do_cudaIpcGetEventHandle(Session& session, const EntryHeader& header,
                                const cmd::cudaIpcGetEventHandle& c, Body, Body) {
  CUevent event;
  if (!resolve_event(session, c.event, &event)) return bad_handle(c.event);
  const auto function = session.backend().cuIpcGetEventHandle;
  if (!function) return missing(session, header, "cuIpcGetEventHandle", CUDA_ERROR_NOT_SUPPORTED);
  CUipcEventHandle handle{};
  const int code = function(&handle, event);
  return finish(session, header, "cuIpcGetEventHandle", Domain::kCuda, code, nullptr, 0,
                bytes_of(handle));
}

Status do_cudaIpcOpenEventHandle(Session& session, const EntryHeader& header,
                                 const cmd::cudaIpcOpenEventHandle& c, Body, Body payload) {
  refuse_to_auditor(session, header);
  CUipcEventHandle handle;
  if (!read_handle(payload, &handle)) return short_body("cudaIpcOpenEventHandle");
  const auto function = session.backend().cuIpcOpenEventHandle;
  if (!function) return missing(session, header, "cuIpcOpenEventHandle", CUDA_ERROR_NOT_SUPPORTED);
  CUevent event = nullptr;
  const int code = function(&event, handle);
  if (code == 0) may_wait_for_others(session);
  if (code && session.recovery().restores_objects()) cannot_open(session, "an event", code, kGone);
  const Handle minted{c.handle};
  if (code == 0 && (minted.kind() != HandleKind::kEvent ||
                    !session.table(HandleKind::kEvent).bind(minted, event)))
    return bad_handle(c.handle);
  return finish(session, header, "cuIpcOpenEventHandle", Domain::kCuda, code);
}

// Of events that other processes record too: the others are known by their words.
Status do_cudaEventQuery(Session& session, const EntryHeader& header, const cmd::cudaEventQuery& c,
                         Body, Body) {
  CUevent event;
  if (!resolve_event(session, c.event, &event)) return bad_handle(c.event);
  const auto function = session.backend().cuEventQuery;
  if (!function) return missing(session, header, "cuEventQuery", CUDA_ERROR_NOT_SUPPORTED);
  return finish(session, header, "cuEventQuery", Domain::kCuda, function(event));
}

}  // namespace pyft::server
