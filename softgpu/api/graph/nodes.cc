// Nodes by their kinds: adding them, reading and changing their parameters.
#include <cstring>

#include "api/graph/support.h"
#include "api/stub.h"
#include "graph/graph_memory.h"
#include "work/transfer.h"

namespace softgpu::api {

cudaError_t add_node(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                     size_t count, Operation operation) {
  std::vector<GraphNode*> before;
  const auto g = find_graph(graph);
  if (!out || !g || !find_nodes(dependencies, count, &before)) return cudaErrorInvalidValue;
  for (const GraphNode* node : before) {
    if (!g->owns(node)) return cudaErrorInvalidValue;
  }
  *out = node_handle(g->add(std::move(operation), before));
  return cudaSuccess;
}

cudaError_t set_operation(cudaGraphNode_t handle, Operation operation) {
  GraphNode* node = find_node(handle);
  if (!node || node->operation->index() != operation.index()) return cudaErrorInvalidValue;
  const auto* kernel = std::get_if<KernelOperation>(node->operation.get());
  if (kernel) std::get<KernelOperation>(operation).priority = kernel->priority;
  node->graph->replace(node, std::move(operation));
  return cudaSuccess;
}

}  // namespace softgpu::api

namespace api = softgpu::api;
using softgpu::GraphNode;
using softgpu::Operation;

namespace {

bool known_event(const void* event) {
  softgpu::Event copy;
  return softgpu::find_event(event, &copy);
}

// The event of a node, of either kind; nullptr if it has none.
template <class Kind>
cudaError_t event_of(cudaGraphNode_t handle, cudaEvent_t* out) {
  return api::graph_call([&] {
    const GraphNode* node = softgpu::find_node(handle);
    const auto* operation = node ? std::get_if<Kind>(node->operation.get()) : nullptr;
    if (!operation || !out) return cudaErrorInvalidValue;
    *out = static_cast<cudaEvent_t>(const_cast<void*>(operation->event));
    return cudaSuccess;
  });
}

cudaError_t add_alloc(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                      size_t count, cudaMemAllocNodeParams* params) {
  std::vector<GraphNode*> before;
  const auto g = softgpu::find_graph(graph);
  if (!out || !g || !params || !api::find_nodes(dependencies, count, &before)) {
    return cudaErrorInvalidValue;
  }
  const cudaMemLocation& at = params->poolProps.location;
  const bool device =
      at.type == cudaMemLocationTypeDevice && at.id >= 0 && at.id < softgpu::device_count();
  if (!device || !params->bytesize) return cudaErrorInvalidValue;
  GraphNode* node = nullptr;
  const cudaError_t bad = softgpu::add_alloc_node(g.get(), before, at.id, params->bytesize, &node);
  if (bad != cudaSuccess) return bad;
  params->dptr = api::pointer(std::get<softgpu::AllocOperation>(*node->operation).memory->address);
  *out = api::node_handle(node);
  return cudaSuccess;
}

cudaError_t add_free(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                     size_t count, void* address) {
  std::vector<GraphNode*> before;
  const auto g = softgpu::find_graph(graph);
  if (!out || !g || !api::find_nodes(dependencies, count, &before)) return cudaErrorInvalidValue;
  GraphNode* node = nullptr;
  const cudaError_t bad = softgpu::add_free_node(g.get(), before, api::number(address), &node);
  *out = api::node_handle(node);
  return bad;
}

cudaError_t add_child(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                      size_t count, cudaGraph_t child) {
  const auto g = softgpu::find_graph(child);
  if (!g) return cudaErrorInvalidValue;
  if (g->has_memory_nodes()) return cudaErrorNotSupported;
  return api::add_node(out, graph, dependencies, count, softgpu::ChildOperation{g->clone()});
}

cudaKernelNodeParams plain(const cudaKernelNodeParamsV2& p) {
  cudaKernelNodeParams same{};
  same.func = p.func;
  same.gridDim = {p.gridDim.x, p.gridDim.y, p.gridDim.z};
  same.blockDim = {p.blockDim.x, p.blockDim.y, p.blockDim.z};
  same.sharedMemBytes = p.sharedMemBytes;
  same.kernelParams = p.kernelParams;
  same.extra = p.extra;
  return same;
}

// The parameters of any node that has some which can be changed.
cudaError_t any_operation(const cudaGraphNodeParams& p, Operation* operation) {
  switch (p.type) {
    case cudaGraphNodeTypeKernel:
      return api::to_operation(plain(p.kernel), operation);
    case cudaGraphNodeTypeMemcpy:
      return api::to_operation(p.memcpy.copyParams, operation);
    case cudaGraphNodeTypeMemset: {
      const auto& m = p.memset;
      return api::to_operation(
          cudaMemsetParams{m.dst, m.pitch, m.value, m.elementSize, m.width, m.height}, operation);
    }
    case cudaGraphNodeTypeHost:
      return api::to_operation(cudaHostNodeParams{p.host.fn, p.host.userData}, operation);
    case cudaGraphNodeTypeEmpty:
      *operation = softgpu::EmptyOperation{};
      return cudaSuccess;
    case cudaGraphNodeTypeEventRecord:
      *operation = softgpu::RecordOperation{p.eventRecord.event};
      return known_event(p.eventRecord.event) ? cudaSuccess : cudaErrorInvalidValue;
    case cudaGraphNodeTypeWaitEvent:
      *operation = softgpu::WaitOperation{p.eventWait.event};
      return known_event(p.eventWait.event) ? cudaSuccess : cudaErrorInvalidValue;
    default: {
      static std::atomic<bool> said{false};
      api::report_stub("cudaGraphAddNode of this type", said);
      return cudaErrorNotSupported;
    }
  }
}

cudaError_t add_any(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                    size_t count, cudaGraphNodeParams* p) {
  if (!p) return cudaErrorInvalidValue;
  if (p->type == cudaGraphNodeTypeGraph) {
    return add_child(out, graph, dependencies, count, p->graph.graph);
  }
  if (p->type == cudaGraphNodeTypeMemFree) {
    return add_free(out, graph, dependencies, count, p->free.dptr);
  }
  if (p->type == cudaGraphNodeTypeMemAlloc) {
    cudaMemAllocNodeParams alloc{};
    alloc.poolProps = p->alloc.poolProps;
    alloc.bytesize = p->alloc.bytesize;
    const cudaError_t bad = add_alloc(out, graph, dependencies, count, &alloc);
    p->alloc.dptr = alloc.dptr;
    return bad;
  }
  Operation operation;
  const cudaError_t bad = any_operation(*p, &operation);
  if (bad != cudaSuccess) return bad;
  return api::add_node(out, graph, dependencies, count, std::move(operation));
}

const softgpu::KernelOperation* kernel_of(cudaGraphNode_t handle) {
  const GraphNode* node = softgpu::find_node(handle);
  return node ? std::get_if<softgpu::KernelOperation>(node->operation.get()) : nullptr;
}

cudaError_t set_priority(cudaGraphNode_t handle, int priority) {
  const auto* kernel = kernel_of(handle);
  if (!kernel) return cudaErrorInvalidValue;
  softgpu::KernelOperation changed = *kernel;
  changed.priority = priority;
  GraphNode* node = softgpu::find_node(handle);
  node->graph->replace(node, std::move(changed));
  return cudaSuccess;
}

}  // namespace

SOFTGPU_API cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                               const cudaGraphNode_t* dependencies, size_t count,
                                               const cudaKernelNodeParams* params) {
  return api::add_with(out, graph, dependencies, count, params);
}

SOFTGPU_API cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node,
                                                     cudaKernelNodeParams* params) {
  return api::get_with(node, params);
}

SOFTGPU_API cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                                     const cudaKernelNodeParams* params) {
  return api::set_with(node, params);
}

SOFTGPU_API cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t to,
                                                          cudaGraphNode_t from) {
  return api::graph_call([&] {
    const auto* kernel = kernel_of(from);
    return kernel ? set_priority(to, kernel->priority) : cudaErrorInvalidValue;
  });
}

// A node has a priority and whether it is cooperative; the other attributes have their defaults.
SOFTGPU_API cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node,
                                                        cudaLaunchAttributeID attribute,
                                                        cudaLaunchAttributeValue* value) {
  return api::graph_call([&] {
    const auto* kernel = kernel_of(node);
    if (!kernel || !value) return cudaErrorInvalidValue;
    std::memset(value, 0, sizeof *value);
    if (attribute == cudaLaunchAttributePriority) value->priority = kernel->priority;
    if (attribute == cudaLaunchAttributeCooperative) {
      value->cooperative = kernel->launch->cooperative;
    }
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node,
                                                        cudaLaunchAttributeID attribute,
                                                        const cudaLaunchAttributeValue* value) {
  return api::graph_call([&] {
    if (!value || !kernel_of(node)) return cudaErrorInvalidValue;
    if (attribute != cudaLaunchAttributePriority) return cudaSuccess;
    return set_priority(node, value->priority);
  });
}

SOFTGPU_API cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                               const cudaGraphNode_t* dependencies, size_t count,
                                               const cudaMemcpy3DParms* params) {
  return api::add_with(out, graph, dependencies, count, params);
}

SOFTGPU_API cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* out, cudaGraph_t graph,
                                                 const cudaGraphNode_t* dependencies, size_t count,
                                                 void* dst, const void* src, size_t bytes,
                                                 cudaMemcpyKind kind) {
  return api::graph_call([&] {
    Operation operation;
    const cudaError_t bad = api::copy_1d(dst, src, bytes, kind, &operation);
    if (bad != cudaSuccess) return bad;
    return api::add_node(out, graph, dependencies, count, std::move(operation));
  });
}

SOFTGPU_API cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node,
                                                     cudaMemcpy3DParms* params) {
  return api::get_with(node, params);
}

SOFTGPU_API cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node,
                                                     const cudaMemcpy3DParms* params) {
  return api::set_with(node, params);
}

SOFTGPU_API cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* dst,
                                                       const void* src, size_t bytes,
                                                       cudaMemcpyKind kind) {
  return api::graph_call([&] {
    Operation operation;
    const cudaError_t bad = api::copy_1d(dst, src, bytes, kind, &operation);
    return bad == cudaSuccess ? api::set_operation(node, std::move(operation)) : bad;
  });
}

SOFTGPU_API cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                               const cudaGraphNode_t* dependencies, size_t count,
                                               const cudaMemsetParams* params) {
  return api::add_with(out, graph, dependencies, count, params);
}

SOFTGPU_API cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node,
                                                     cudaMemsetParams* params) {
  return api::get_with(node, params);
}

SOFTGPU_API cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node,
                                                     const cudaMemsetParams* params) {
  return api::set_with(node, params);
}

SOFTGPU_API cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                             const cudaGraphNode_t* dependencies, size_t count,
                                             const cudaHostNodeParams* params) {
  return api::add_with(out, graph, dependencies, count, params);
}

SOFTGPU_API cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node,
                                                   cudaHostNodeParams* params) {
  return api::get_with(node, params);
}

SOFTGPU_API cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node,
                                                   const cudaHostNodeParams* params) {
  return api::set_with(node, params);
}

SOFTGPU_API cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                                   const cudaGraphNode_t* dependencies,
                                                   size_t count, cudaGraph_t child) {
  return api::graph_call([&] { return add_child(out, graph, dependencies, count, child); });
}

SOFTGPU_API cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t handle, cudaGraph_t* out) {
  return api::graph_call([&] {
    const GraphNode* node = softgpu::find_node(handle);
    const auto* child =
        node ? std::get_if<softgpu::ChildOperation>(node->operation.get()) : nullptr;
    if (!child || !out) return cudaErrorInvalidValue;
    // The node's own graph, which the program may look at and change, but not destroy.
    *out = static_cast<cudaGraph_t>(softgpu::publish_embedded(child->graph));
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                              const cudaGraphNode_t* dependencies, size_t count) {
  return api::graph_call(
      [&] { return api::add_node(out, graph, dependencies, count, softgpu::EmptyOperation{}); });
}

SOFTGPU_API cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                                    const cudaGraphNode_t* dependencies,
                                                    size_t count, cudaEvent_t event) {
  return api::graph_call([&] {
    if (!known_event(event)) return cudaErrorInvalidValue;
    return api::add_node(out, graph, dependencies, count, softgpu::RecordOperation{event});
  });
}

SOFTGPU_API cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* out) {
  return event_of<softgpu::RecordOperation>(node, out);
}

SOFTGPU_API cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return api::graph_call([&] {
    if (!known_event(event)) return cudaErrorInvalidValue;
    return api::set_operation(node, softgpu::RecordOperation{event});
  });
}

SOFTGPU_API cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                                  const cudaGraphNode_t* dependencies, size_t count,
                                                  cudaEvent_t event) {
  return api::graph_call([&] {
    if (!known_event(event)) return cudaErrorInvalidValue;
    return api::add_node(out, graph, dependencies, count, softgpu::WaitOperation{event});
  });
}

SOFTGPU_API cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* out) {
  return event_of<softgpu::WaitOperation>(node, out);
}

SOFTGPU_API cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return api::graph_call([&] {
    if (!known_event(event)) return cudaErrorInvalidValue;
    return api::set_operation(node, softgpu::WaitOperation{event});
  });
}

SOFTGPU_API cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                                 const cudaGraphNode_t* dependencies, size_t count,
                                                 cudaMemAllocNodeParams* params) {
  return api::graph_call([&] { return add_alloc(out, graph, dependencies, count, params); });
}

SOFTGPU_API cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t handle,
                                                       cudaMemAllocNodeParams* params) {
  return api::graph_call([&] {
    const GraphNode* node = softgpu::find_node(handle);
    const auto* alloc =
        node ? std::get_if<softgpu::AllocOperation>(node->operation.get()) : nullptr;
    if (!alloc || !params) return cudaErrorInvalidValue;
    *params = {};
    params->poolProps.allocType = cudaMemAllocationTypePinned;
    params->poolProps.location = {cudaMemLocationTypeDevice, {alloc->memory->device}};
    params->bytesize = alloc->bytes;
    params->dptr = api::pointer(alloc->memory->address);
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                                const cudaGraphNode_t* dependencies, size_t count,
                                                void* address) {
  return api::graph_call([&] { return add_free(out, graph, dependencies, count, address); });
}

SOFTGPU_API cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t handle, void* out) {
  return api::graph_call([&] {
    const GraphNode* node = softgpu::find_node(handle);
    const auto* free = node ? std::get_if<softgpu::FreeOperation>(node->operation.get()) : nullptr;
    if (!free || !out) return cudaErrorInvalidValue;
    *static_cast<void**>(out) = api::pointer(free->address);
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphAddNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                         const cudaGraphNode_t* dependencies,
                                         const cudaGraphEdgeData*, size_t count,
                                         cudaGraphNodeParams* params) {
  return api::graph_call([&] { return add_any(out, graph, dependencies, count, params); });
}

SOFTGPU_API cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams* params) {
  return api::graph_call([&] {
    Operation operation;
    if (!params) return cudaErrorInvalidValue;
    const cudaError_t bad = any_operation(*params, &operation);
    return bad == cudaSuccess ? api::set_operation(node, std::move(operation)) : bad;
  });
}

SOFTGPU_API cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                   cudaGraphNodeParams* params) {
  return api::graph_call([&] {
    Operation operation;
    if (!params) return cudaErrorInvalidValue;
    const cudaError_t bad = any_operation(*params, &operation);
    return bad == cudaSuccess ? api::set_exec_operation(exec, node, std::move(operation)) : bad;
  });
}
