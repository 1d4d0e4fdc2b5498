// What hand-written handlers and the generated dispatch share.
//
// A handler gets a command of the right size whose numbers are otherwise anything a hostile client
// may have written. Handles are resolved by the functions here; sizes and addresses are checked by
// the handler that uses them. A broken Status ends the server; results of API calls go to finish().
#ifndef PYFT_SERVER_HANDLERS_H_
#define PYFT_SERVER_HANDLERS_H_

#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "api/call_ids.h"
#include "api/commands.h"
#include "backend/backend.h"
#include "server/session/session.h"

namespace pyft::server {

using Body = std::span<const std::byte>;
using ring::EntryHeader;

// Whose result codes a call returns.
enum class Domain { kCuda, kCublas, kLibrary };

template <class Command>
bool read_body(Body body, Command* out) {
  if (body.size() < sizeof *out) return false;
  std::memcpy(out, body.data(), sizeof *out);
  return true;
}

template <class Value>
uint64_t to_word(Value value) {
  static_assert(sizeof value <= sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}

Status short_body(const char* call);
Status bad_handle(uint64_t handle);
Status unknown_call(uint16_t call);

bool resolve_stream(Session& session, uint64_t handle, CUstream* out);
bool resolve_event(Session& session, uint64_t handle, CUevent* out);
bool resolve_module(Session& session, uint64_t handle, CUmodule* out);
bool resolve_kernel(Session& session, uint64_t handle, CUfunction* out);
bool resolve_comm(Session& session, uint64_t handle, ncclComm_t* out);
bool resolve_graph(Session& session, uint64_t handle, CUgraph* out);
bool resolve_graph_exec(Session& session, uint64_t handle, CUgraphExec* out);
// Resolves the handle and brings it into the state the command carries.
bool apply_blas_state(Session& session, const BlasState& state, cublasHandle_t* out);
void* scalar_address(const BlasState& state, const Scalar& scalar);
void* result_address(const BlasState& state, uint64_t address, uint64_t* host_result);

// Plain memory of the device, whole granules. While objects are restored it waits for memory.
CUresult create_memory(Session& session, uint64_t bytes, CUmemGenericAllocationHandle* out);

// Answers the thread that waits. The failure of a call that nothing waits for is said on stderr,
// and the client learns of it: once, or for good if the device has failed or something is not there
// now.
Status finish(Session& session, const EntryHeader& header, const char* name, Domain domain,
              int code, const uint64_t* values = nullptr, size_t count = 0, Body bytes = {});
// Dispatches. What names an object that could not be made because the device had failed fails as
// that did: a replay which is to give the program its own error may come to the failure sooner than
// the program, which was told that the object is there.
Status perform(Session& session, const EntryHeader& header, Body body, Body payload);
Status missing(Session& session, const EntryHeader& header, const char* name, int code);

}  // namespace pyft::server

#include "api/handler_declarations.h"

#endif  // PYFT_SERVER_HANDLERS_H_
