#include "client/graph/graph.h"

#include <filesystem>
#include <map>

#include "api/commands.h"
#include "client/device/capture.h"
#include "client/process/handles.h"

namespace pyft::client {
namespace {

struct Graphs {
  std::mutex mutex;
  std::map<uint64_t, Device*> devices;
};

// Never destroyed: graphs may be released while the process exits.
Graphs& graphs() {
  static auto* const all = new Graphs;
  return *all;
}

}  // namespace

uint64_t mint_graph(Device& device, HandleKind kind) {
  const uint64_t handle = mint_handle(kind);
  if (handle) note_graph(device, handle);
  return handle;
}

void note_graph(Device& device, uint64_t handle) {
  const std::lock_guard lock(graphs().mutex);
  graphs().devices[handle] = &device;
}

Device* device_of_graph(const void* handle, HandleKind kind) {
  const auto value = reinterpret_cast<uint64_t>(handle);
  if (Handle{value}.kind() != kind) return nullptr;
  const std::lock_guard lock(graphs().mutex);
  const auto found = graphs().devices.find(value);
  return found == graphs().devices.end() ? nullptr : found->second;
}

bool forget_graph(uint64_t handle) {
  const std::lock_guard lock(graphs().mutex);
  return graphs().devices.erase(handle) != 0;
}

namespace {

cudaError_t instantiate(cudaGraph_t graph, unsigned long long flags, cudaGraphExec_t* out) {
  Device* device = device_of_graph(graph, HandleKind::kGraph);
  if (!device || !out) return cudaErrorInvalidValue;
  const uint64_t handle = mint_graph(*device, HandleKind::kGraphExec);
  if (!handle) return cudaErrorMemoryAllocation;
  const cudaError_t error = device->confirm(
      Call::cudaGraphInstantiateWithFlags,
      cmd::cudaGraphInstantiateWithFlags{handle, reinterpret_cast<uint64_t>(graph), flags});
  if (error == cudaSuccess)
    *out = reinterpret_cast<cudaGraphExec_t>(handle);
  else if (forget_graph(handle))
    end_handle(handle);
  return error;
}

cudaError_t launch(cudaGraphExec_t exec, cudaStream_t handle) {
  cudaError_t error;
  Stream* stream = stream_of(handle, &error);
  if (!stream) return error;
  Device* device = device_of_graph(exec, HandleKind::kGraphExec);
  if (!device || device != &stream->device) return cudaErrorInvalidValue;
  error = device->send(Call::cudaGraphLaunch,
                       cmd::cudaGraphLaunch{reinterpret_cast<uint64_t>(exec), stream->handle});
  device->touch(*stream);
  return error;
}

template <class Command>
cudaError_t destroy(Call call, const void* handle, HandleKind kind) {
  Device* device = device_of_graph(handle, kind);
  if (!device) return cudaErrorInvalidValue;
  const auto value = reinterpret_cast<uint64_t>(handle);
  if (!forget_graph(value)) return cudaErrorInvalidValue;  // another thread was first
  if (kind == HandleKind::kGraph) forget_nodes(value);
  const cudaError_t error = device->send(call, Command{value});
  if (error == cudaSuccess) end_handle(value);
  return error;
}

cudaError_t get_nodes(cudaGraph_t graph, void** nodes, size_t* count) {
  Device* device = device_of_graph(graph, HandleKind::kGraph);
  if (!device || !count) return cudaErrorInvalidValue;
  Reply reply;
  const cmd::cudaGraphGetNodes body{reinterpret_cast<uint64_t>(graph)};
  const cudaError_t error =
      device->call(static_cast<uint16_t>(Call::cudaGraphGetNodes), bytes_of(body), &reply);
  if (error == cudaSuccess && reply.code == 0) {
    if (nodes)
      give_out_nodes(reinterpret_cast<uint64_t>(graph), reply.values[0], nodes, count);
    else
      *count = reply.values[0];
  }
  return error != cudaSuccess ? error : static_cast<cudaError_t>(reply.code);
}

cudaError_t print(cudaGraph_t graph, const char* path, unsigned flags) {
  Device* device = device_of_graph(graph, HandleKind::kGraph);
  if (!device || !path) return cudaErrorInvalidValue;
  std::error_code ignored;  // the server says what is wrong with the path
  const std::string whole = std::filesystem::absolute(path, ignored).string();
  return device->confirm(Call::cudaGraphDebugDotPrint,
                         cmd::cudaGraphDebugDotPrint{reinterpret_cast<uint64_t>(graph), flags, 0},
                         std::as_bytes(std::span(whole)));
}

}  // namespace
}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                                   unsigned long long flags) {
  const Entered entered(Api::cudaGraphInstantiateWithFlags);
  return done(instantiate(graph, flags, pGraphExec));
}

PYFT_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                          unsigned long long flags) {
  const Entered entered(Api::cudaGraphInstantiate);
  return done(instantiate(graph, flags, pGraphExec));
}

PYFT_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                              unsigned long long flags) {
  const Entered entered(Api::cuGraphInstantiateWithFlags);
  return static_cast<CUresult>(instantiate(hGraph, flags, phGraphExec));
}

PYFT_API cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000);
  const Entered entered(Api::cudaGraphLaunch);
  return done(launch(graphExec, stream));
}

PYFT_API CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
  const Entered entered(Api::cuGraphLaunch);
  return static_cast<CUresult>(launch(hGraphExec, hStream));
}

PYFT_API cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream) {
  const Entered entered(Api::cudaGraphUpload);
  const bool known = device_of_graph(graphExec, HandleKind::kGraphExec) != nullptr;
  return done(known ? cudaSuccess : cudaErrorInvalidValue);
}

PYFT_API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Entered entered(Api::cudaGraphDestroy);
  return done(destroy<cmd::cudaGraphDestroy>(Call::cudaGraphDestroy, graph, HandleKind::kGraph));
}

PYFT_API CUresult cuGraphDestroy(CUgraph hGraph) {
  const Entered entered(Api::cuGraphDestroy);
  return static_cast<CUresult>(
      destroy<cmd::cudaGraphDestroy>(Call::cudaGraphDestroy, hGraph, HandleKind::kGraph));
}

PYFT_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  const Entered entered(Api::cudaGraphExecDestroy);
  return done(destroy<cmd::cudaGraphExecDestroy>(Call::cudaGraphExecDestroy, graphExec,
                                                 HandleKind::kGraphExec));
}

PYFT_API CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  const Entered entered(Api::cuGraphExecDestroy);
  return static_cast<CUresult>(destroy<cmd::cudaGraphExecDestroy>(
      Call::cudaGraphExecDestroy, hGraphExec, HandleKind::kGraphExec));
}

PYFT_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes,
                                       size_t* numNodes) {
  const Entered entered(Api::cudaGraphGetNodes);
  return done(get_nodes(graph, reinterpret_cast<void**>(nodes), numNodes));
}

PYFT_API CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  const Entered entered(Api::cuGraphGetNodes);
  return static_cast<CUresult>(get_nodes(hGraph, reinterpret_cast<void**>(nodes), numNodes));
}

PYFT_API cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path,
                                            unsigned int flags) {
  const Entered entered(Api::cudaGraphDebugDotPrint);
  return done(print(graph, path, flags));
}

PYFT_API CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  const Entered entered(Api::cuGraphDebugDotPrint);
  return static_cast<CUresult>(print(hGraph, path, flags));
}
