// Instantiated graphs: making, launching and changing them.
#include "api/graph/support.h"
#include "graph/capture.h"
#include "graph/graph_memory.h"
#include "work/graph_exec.h"

namespace softgpu::api {

// Calls `body(exec, clone of the node)`.
template <class Body>
cudaError_t with_exec_node(cudaGraphExec_t handle, cudaGraphNode_t original, Body body) {
  const auto exec = find_exec(handle);
  const GraphNode* node = find_node(original);
  GraphNode* clone = exec && node ? exec->node(*node) : nullptr;
  return clone ? body(*exec, clone) : cudaErrorInvalidValue;
}

cudaError_t set_exec_operation(cudaGraphExec_t exec, cudaGraphNode_t node, Operation operation) {
  return with_exec_node(exec, node, [&](GraphExec& e, GraphNode* clone) {
    if (clone->operation->index() != operation.index()) return cudaErrorInvalidValue;
    e.replace(clone, std::move(operation));
    return cudaSuccess;
  });
}

}  // namespace softgpu::api

namespace api = softgpu::api;
using softgpu::GraphExec;
using softgpu::GraphNode;
using softgpu::Operation;

namespace {

constexpr unsigned long long kKnownFlags =
    cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUpload |
    cudaGraphInstantiateFlagDeviceLaunch | cudaGraphInstantiateFlagUseNodePriority;

cudaError_t make_exec(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags) {
  return api::graph_call([&] {
    const auto g = softgpu::find_graph(graph);
    if (!out || !g || (flags & ~kKnownFlags)) return cudaErrorInvalidValue;
    if (flags & cudaGraphInstantiateFlagDeviceLaunch) return cudaErrorNotSupported;
    return softgpu::instantiate(*g, flags, reinterpret_cast<void**>(out));
  });
}

cudaError_t change_event(cudaGraphExec_t exec, cudaGraphNode_t node, const void* event,
                         Operation operation) {
  return api::graph_call([&] {
    softgpu::Event copy;
    if (!softgpu::find_event(event, &copy)) return cudaErrorInvalidValue;
    return api::set_exec_operation(exec, node, std::move(operation));
  });
}

bool can_be_disabled(const GraphNode& node) {
  const cudaGraphNodeType type = api::node_type(node);
  return type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemcpy ||
         type == cudaGraphNodeTypeMemset;
}

uint64_t* field(softgpu::GraphMemoryUse* use, cudaGraphMemAttributeType attribute) {
  switch (attribute) {
    case cudaGraphMemAttrUsedMemCurrent:
      return &use->used;
    case cudaGraphMemAttrUsedMemHigh:
      return &use->used_high;
    case cudaGraphMemAttrReservedMemCurrent:
      return &use->reserved;
    case cudaGraphMemAttrReservedMemHigh:
      return &use->reserved_high;
  }
  return nullptr;
}

bool valid_device(int device) {
  return device >= 0 && device < softgpu::device_count();
}

}  // namespace

SOFTGPU_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph,
                                             unsigned long long flags) {
  return make_exec(out, graph, flags);
}

SOFTGPU_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph,
                                                      unsigned long long flags) {
  return make_exec(out, graph, flags);
}

SOFTGPU_API cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* out, cudaGraph_t graph,
                                                       cudaGraphInstantiateParams* params) {
  if (!params) return api::record(cudaErrorInvalidValue);
  const cudaError_t result = make_exec(out, graph, params->flags);
  params->errNode_out = nullptr;
  params->result_out =
      result == cudaSuccess ? cudaGraphInstantiateSuccess : cudaGraphInstantiateError;
  return result;
}

SOFTGPU_API cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t handle, unsigned long long* flags) {
  return api::graph_call([&] {
    const auto exec = softgpu::find_exec(handle);
    if (!exec || !flags) return cudaErrorInvalidValue;
    *flags = exec->flags();
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return api::graph_call(
      [&] { return softgpu::drop_exec(exec) ? cudaSuccess : cudaErrorInvalidValue; });
}

SOFTGPU_API cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000);
  return api::record(api::with_stream(stream, [&](const std::shared_ptr<softgpu::Stream>& s) {
    std::shared_ptr<GraphExec> exec;
    {
      const softgpu::GraphLock lock;
      exec = softgpu::find_exec(handle);
    }
    return exec ? exec->launch(s) : cudaErrorInvalidValue;
  }));
}

// Everything is where it is executed already.
SOFTGPU_API cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t stream) {
  return api::record(api::with_stream(stream, [&](const std::shared_ptr<softgpu::Stream>& s) {
    const softgpu::GraphLock lock;
    if (!softgpu::find_exec(handle)) return cudaErrorInvalidValue;
    return softgpu::refuse_in_capture(*s);
  }));
}

SOFTGPU_API cudaError_t cudaGraphExecUpdate(cudaGraphExec_t handle, cudaGraph_t graph,
                                            cudaGraphExecUpdateResultInfo* info) {
  return api::graph_call([&] {
    const auto exec = softgpu::find_exec(handle);
    const auto g = softgpu::find_graph(graph);
    if (!exec || !g || !info) return cudaErrorInvalidValue;
    GraphNode *mine = nullptr, *other = nullptr;
    info->result = exec->update(*g, &mine, &other);
    const bool failed = info->result != cudaGraphExecUpdateSuccess;
    info->errorNode = api::node_handle(failed ? other : nullptr);
    info->errorFromNode = nullptr;  // of the graph once instantiated, which may be gone
    return failed ? cudaErrorGraphExecUpdateFailure : cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                         const cudaKernelNodeParams* params) {
  return api::set_exec_with(exec, node, params);
}

SOFTGPU_API cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                         const cudaMemcpy3DParms* params) {
  return api::set_exec_with(exec, node, params);
}

SOFTGPU_API cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec,
                                                           cudaGraphNode_t node, void* dst,
                                                           const void* src, size_t bytes,
                                                           cudaMemcpyKind kind) {
  return api::graph_call([&] {
    Operation operation;
    const cudaError_t bad = api::copy_1d(dst, src, bytes, kind, &operation);
    return bad == cudaSuccess ? api::set_exec_operation(exec, node, std::move(operation)) : bad;
  });
}

SOFTGPU_API cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                         const cudaMemsetParams* params) {
  return api::set_exec_with(exec, node, params);
}

SOFTGPU_API cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                       const cudaHostNodeParams* params) {
  return api::set_exec_with(exec, node, params);
}

SOFTGPU_API cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec,
                                                             cudaGraphNode_t node,
                                                             cudaGraph_t child) {
  return api::graph_call([&] {
    const auto g = softgpu::find_graph(child);
    if (!g) return cudaErrorInvalidValue;
    return api::with_exec_node(
        exec, node, [&](GraphExec& e, GraphNode* clone) { return e.replace_child(clone, *g); });
  });
}

SOFTGPU_API cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t exec,
                                                             cudaGraphNode_t node,
                                                             cudaEvent_t event) {
  return change_event(exec, node, event, softgpu::RecordOperation{event});
}

SOFTGPU_API cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t exec,
                                                           cudaGraphNode_t node,
                                                           cudaEvent_t event) {
  return change_event(exec, node, event, softgpu::WaitOperation{event});
}

SOFTGPU_API cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                unsigned enabled) {
  return api::graph_call([&] {
    return api::with_exec_node(exec, node, [&](GraphExec& e, GraphNode* clone) {
      if (!can_be_disabled(*clone)) return cudaErrorInvalidValue;
      e.set_enabled(clone, enabled != 0);
      return cudaSuccess;
    });
  });
}

SOFTGPU_API cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                unsigned* enabled) {
  return api::graph_call([&] {
    return api::with_exec_node(exec, node, [&](GraphExec&, const GraphNode* clone) {
      if (!enabled || !can_be_disabled(*clone)) return cudaErrorInvalidValue;
      *enabled = clone->enabled;
      return cudaSuccess;
    });
  });
}

// Memory of graphs goes back with the last graph or launch that names it.
SOFTGPU_API cudaError_t cudaDeviceGraphMemTrim(int device) {
  return api::record(valid_device(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

SOFTGPU_API cudaError_t cudaDeviceGetGraphMemAttribute(int device,
                                                       cudaGraphMemAttributeType attribute,
                                                       void* value) {
  if (!valid_device(device)) return api::record(cudaErrorInvalidDevice);
  softgpu::GraphMemoryUse use = softgpu::graph_memory_use(device);
  const uint64_t* number = field(&use, attribute);
  if (!number || !value) return api::record(cudaErrorInvalidValue);
  *static_cast<uint64_t*>(value) = *number;
  return cudaSuccess;
}

SOFTGPU_API cudaError_t cudaDeviceSetGraphMemAttribute(int device,
                                                       cudaGraphMemAttributeType attribute,
                                                       void* value) {
  if (!valid_device(device)) return api::record(cudaErrorInvalidDevice);
  const bool used = attribute == cudaGraphMemAttrUsedMemHigh;
  if ((!used && attribute != cudaGraphMemAttrReservedMemHigh) || !value ||
      *static_cast<uint64_t*>(value) != 0) {
    return api::record(cudaErrorInvalidValue);
  }
  softgpu::reset_graph_memory_high(device, used);
  return cudaSuccess;
}
