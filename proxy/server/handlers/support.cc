#include <string_view>
#include <utility>

#include "pyft/log.h"
#include "ring/object_log.h"
#include "server/handlers/handlers.h"
#include "server/profile/profile.h"

namespace pyft::server {
namespace {

template <class Object>
bool resolve(Session& session, uint64_t handle, HandleKind kind, Object* out) {
  *out = static_cast<Object>(session.find(handle, kind));
  return *out != nullptr;
}

int cuda_code(Domain domain, int code) {
  if (domain == Domain::kCuda) return code;
  if (domain == Domain::kCublas && code == CUBLAS_STATUS_INVALID_VALUE)
    return CUDA_ERROR_INVALID_VALUE;
  if (domain == Domain::kCublas && code == CUBLAS_STATUS_ALLOC_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  return code == CUBLAS_STATUS_NOT_SUPPORTED ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_UNKNOWN;
}

// A command that nothing waits for has failed. It must not get lost. What has failed with the
// device, or should have made something, fails for good; anything else is told once, by the next
// call that looks, as it would have been by the call itself (C4). A setting that is
// refused leaves its object as it was, also when a recovery makes it again.
void fail_unasked(Session& session, const EntryHeader& header, const char* name, Domain domain,
                  int code) {
  ring::ControlPage& page = session.channel().control();
  const int failure = domain == Domain::kCuda ? code : session.device_status();
  const bool of_device = checkpoint::is_device_fault(failure);
  if (session.sticky() == 0)
    PYFT_LOG(kServer, kWarning, "entry [%llu]: [%s] fails with code [%d]",
             static_cast<unsigned long long>(header.seq), name, code);
  const bool restores = session.recovery().restores_objects();
  const bool makes = header.flags & ring::kCreates || restores;
  const bool is_setting = configures(static_cast<Call>(header.call));
  if (of_device || header.flags & ring::kStreamCaptured || (makes && !is_setting))
    return session.set_sticky(of_device ? failure : cuda_code(domain, code), of_device);
  int32_t none = 0;  // the first one is told; in a replay it has been told
  if (!session.recovery().replaying() && !restores)
    page.late_error.compare_exchange_strong(none, cuda_code(domain, code));
}

// What a library says when the device has failed.
int code_in_its_domain(std::string_view call, int failure) {
  constexpr std::pair<std::string_view, int> kExecutionFailed[] = {
      {"nccl", ncclUnhandledCudaError},
      {"cublas", CUBLAS_STATUS_EXECUTION_FAILED},
      {"cudnn", 5000},
      {"cufft", 6},
      {"curand", 201},
      {"cusolver", 6},
      {"cusparse", 6}};
  for (const auto& [prefix, code] : kExecutionFailed)
    if (call.starts_with(prefix)) return code;
  return failure;
}

}  // namespace

Status short_body(const char* call) {
  return Status::broken(std::string("the body of [") + call + "] is too short");
}

Status bad_handle(uint64_t handle) {
  return {"handle [" + std::to_string(handle) + "] names no object of that kind", true};
}

Status unknown_call(uint16_t call) {
  return Status::broken("call [" + std::to_string(call) + "] does not exist");
}

bool resolve_stream(Session& session, uint64_t handle, CUstream* out) {
  void* stream = nullptr;
  if (!session.find_stream(handle, &stream)) return false;
  *out = static_cast<CUstream>(stream);
  return true;
}

bool resolve_event(Session& session, uint64_t handle, CUevent* out) {
  return resolve(session, handle, HandleKind::kEvent, out);
}

bool resolve_module(Session& session, uint64_t handle, CUmodule* out) {
  return resolve(session, handle, HandleKind::kModule, out);
}

bool resolve_kernel(Session& session, uint64_t handle, CUfunction* out) {
  return resolve(session, handle, HandleKind::kKernel, out);
}

bool resolve_comm(Session& session, uint64_t handle, ncclComm_t* out) {
  return resolve(session, handle, HandleKind::kCommunicator, out);
}

bool resolve_graph(Session& session, uint64_t handle, CUgraph* out) {
  return resolve(session, handle, HandleKind::kGraph, out);
}

bool resolve_graph_exec(Session& session, uint64_t handle, CUgraphExec* out) {
  return resolve(session, handle, HandleKind::kGraphExec, out);
}

Status finish(Session& session, const EntryHeader& header, const char* name, Domain domain,
              int code, const uint64_t* values, size_t count, Body bytes) {
  if (code) session.check_device(domain == Domain::kCuda ? code : session.device_status(), name);
  if (header.flags & ring::kWantsReply) return session.reply(header, code, {values, count}, bytes);
  if (code) fail_unasked(session, header, name, domain, code);
  return Status::good();
}

Status perform(Session& session, const EntryHeader& header, Body body, Body payload) {
  const ProfiledEntry profiled(session, header);
  Status status = dispatch(session, header, body, payload);
  const int failure = status.names_nothing ? session.device_failure() : 0;
  if (!failure) return status;
  const char* const name = call_name(header.call);
  const bool known = session.sticky() != 0;  // it has been dealt with; or a library's, no device's
  if (!known) session.check_device(failure, name);
  if (header.flags & ring::kWantsReply)
    return session.reply(header, code_in_its_domain(name, failure));
  if (!known) session.set_sticky(failure);
  return Status::good();
}

Status missing(Session& session, const EntryHeader& header, const char* name, int code) {
  const auto why = session.backend().why_missing;
  const std::string cause = why ? ": " + why(name) : std::string();
  PYFT_LOG(kServer, kWarning, "the backend has no [%s]%s", name, cause.c_str());
  return finish(session, header, name, Domain::kCuda, code);
}

}  // namespace pyft::server
