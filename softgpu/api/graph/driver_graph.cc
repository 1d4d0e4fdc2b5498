// Graphs under the driver's names. The structs that both interfaces have are laid out alike, where
// this file says so; handles are the same objects.
#include <cstddef>

#include "api/graph/support.h"

namespace api = softgpu::api;

namespace {

// The runtime's struct for one of the driver's with the same members in the same places.
template <class Runtime, class Driver>
auto* view(Driver* params) {
  static_assert(sizeof(Runtime) == sizeof(Driver));
  using Same = std::conditional_t<std::is_const_v<Driver>, const Runtime, Runtime>;
  return reinterpret_cast<Same*>(params);
}

static_assert(offsetof(CUDA_MEMSET_NODE_PARAMS, pitch) == offsetof(cudaMemsetParams, pitch));
static_assert(offsetof(CUDA_MEMSET_NODE_PARAMS, value) == offsetof(cudaMemsetParams, value));
static_assert(offsetof(CUDA_MEMSET_NODE_PARAMS, width) == offsetof(cudaMemsetParams, width));
static_assert(offsetof(CUDA_MEMSET_NODE_PARAMS, height) == offsetof(cudaMemsetParams, height));
auto* same(CUDA_MEMSET_NODE_PARAMS* p) {
  return view<cudaMemsetParams>(p);
}
auto* same(const CUDA_MEMSET_NODE_PARAMS* p) {
  return view<cudaMemsetParams>(p);
}

static_assert(offsetof(CUDA_HOST_NODE_PARAMS, userData) == offsetof(cudaHostNodeParams, userData));
auto* same(CUDA_HOST_NODE_PARAMS* p) {
  return view<cudaHostNodeParams>(p);
}
auto* same(const CUDA_HOST_NODE_PARAMS* p) {
  return view<cudaHostNodeParams>(p);
}

static_assert(offsetof(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out) ==
              offsetof(cudaGraphInstantiateParams, result_out));
auto* same(CUDA_GRAPH_INSTANTIATE_PARAMS* p) {
  return view<cudaGraphInstantiateParams>(p);
}

static_assert(offsetof(CUgraphExecUpdateResultInfo, errorNode) ==
              offsetof(cudaGraphExecUpdateResultInfo, errorNode));
auto* same(CUgraphExecUpdateResultInfo* p) {
  return view<cudaGraphExecUpdateResultInfo>(p);
}

cudaGraphEdgeData* edge_data(CUgraphEdgeData* edges) {
  return view<cudaGraphEdgeData>(edges);
}

cudaError_t exec_flags(CUgraphExec exec, cuuint64_t* flags) {
  unsigned long long value = 0;
  const cudaError_t result = cudaGraphExecGetFlags(exec, &value);
  if (flags) *flags = value;
  return result;
}

}  // namespace

SOFTGPU_API CUresult cuGraphCreate(CUgraph* out, unsigned flags) {
  return api::driver_result(cudaGraphCreate(out, flags));
}

SOFTGPU_API CUresult cuGraphDestroy(CUgraph graph) {
  return api::driver_result(cudaGraphDestroy(graph));
}

SOFTGPU_API CUresult cuGraphClone(CUgraph* out, CUgraph graph) {
  return api::driver_result(cudaGraphClone(out, graph));
}

SOFTGPU_API CUresult cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
  return api::driver_result(cudaGraphNodeFindInClone(out, original, clone));
}

SOFTGPU_API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* out, size_t* count) {
  return api::driver_result(cudaGraphGetNodes(graph, out, count));
}

SOFTGPU_API CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* out, size_t* count) {
  return api::driver_result(cudaGraphGetRootNodes(graph, out, count));
}

SOFTGPU_API CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                                        CUgraphEdgeData* edges, size_t* count) {
  return api::driver_result(cudaGraphGetEdges(graph, from, to, edge_data(edges), count));
}

SOFTGPU_API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* out,
                                                   CUgraphEdgeData* edges, size_t* count) {
  return api::driver_result(cudaGraphNodeGetDependencies(node, out, edge_data(edges), count));
}

SOFTGPU_API CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* out,
                                                     CUgraphEdgeData* edges, size_t* count) {
  return api::driver_result(cudaGraphNodeGetDependentNodes(node, out, edge_data(edges), count));
}

SOFTGPU_API CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                               const CUgraphNode* to, const CUgraphEdgeData*,
                                               size_t count) {
  return api::driver_result(cudaGraphAddDependencies(graph, from, to, nullptr, count));
}

SOFTGPU_API CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from,
                                                  const CUgraphNode* to, const CUgraphEdgeData*,
                                                  size_t count) {
  return api::driver_result(cudaGraphRemoveDependencies(graph, from, to, nullptr, count));
}

SOFTGPU_API CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return api::driver_result(cudaGraphNodeGetType(node, reinterpret_cast<cudaGraphNodeType*>(type)));
}

SOFTGPU_API CUresult cuGraphDestroyNode(CUgraphNode node) {
  return api::driver_result(cudaGraphDestroyNode(node));
}

SOFTGPU_API CUresult cuGraphDebugDotPrint(CUgraph graph, const char* path, unsigned flags) {
  return api::driver_result(cudaGraphDebugDotPrint(graph, path, flags));
}

SOFTGPU_API CUresult cuUserObjectCreate(CUuserObject* out, void* data, CUhostFn destroy,
                                        unsigned references, unsigned flags) {
  return api::driver_result(cudaUserObjectCreate(out, data, destroy, references, flags));
}

SOFTGPU_API CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
  return api::driver_result(cudaUserObjectRetain(object, count));
}

SOFTGPU_API CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  return api::driver_result(cudaUserObjectRelease(object, count));
}

SOFTGPU_API CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count,
                                             unsigned flags) {
  return api::driver_result(cudaGraphRetainUserObject(graph, object, count, flags));
}

SOFTGPU_API CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
  return api::driver_result(cudaGraphReleaseUserObject(graph, object, count));
}

SOFTGPU_API CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph,
                                              const CUgraphNode* dependencies, size_t count,
                                              CUgraph child) {
  return api::driver_result(cudaGraphAddChildGraphNode(out, graph, dependencies, count, child));
}

SOFTGPU_API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* out) {
  return api::driver_result(cudaGraphChildGraphNodeGetGraph(node, out));
}

SOFTGPU_API CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph,
                                         const CUgraphNode* dependencies, size_t count) {
  return api::driver_result(cudaGraphAddEmptyNode(out, graph, dependencies, count));
}

SOFTGPU_API CUresult cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph,
                                               const CUgraphNode* dependencies, size_t count,
                                               CUevent event) {
  return api::driver_result(cudaGraphAddEventRecordNode(out, graph, dependencies, count, event));
}

SOFTGPU_API CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) {
  return api::driver_result(cudaGraphEventRecordNodeGetEvent(node, out));
}

SOFTGPU_API CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return api::driver_result(cudaGraphEventRecordNodeSetEvent(node, event));
}

SOFTGPU_API CUresult cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph,
                                             const CUgraphNode* dependencies, size_t count,
                                             CUevent event) {
  return api::driver_result(cudaGraphAddEventWaitNode(out, graph, dependencies, count, event));
}

SOFTGPU_API CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return api::driver_result(cudaGraphEventWaitNodeGetEvent(node, out));
}

SOFTGPU_API CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return api::driver_result(cudaGraphEventWaitNodeSetEvent(node, event));
}

SOFTGPU_API CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph,
                                           const CUgraphNode* dependencies, size_t count,
                                           CUdeviceptr address) {
  return api::driver_result(
      cudaGraphAddMemFreeNode(out, graph, dependencies, count, api::pointer(address)));
}

SOFTGPU_API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* out) {
  return api::driver_result(cudaGraphMemFreeNodeGetParams(node, out));
}

SOFTGPU_API CUresult cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph,
                                             const CUgraphNode* dependencies, size_t count,
                                             const CUDA_KERNEL_NODE_PARAMS* params) {
  return api::driver_result(api::add_with(out, graph, dependencies, count, params));
}

SOFTGPU_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node,
                                                   CUDA_KERNEL_NODE_PARAMS* params) {
  return api::driver_result(api::get_with(node, params));
}

SOFTGPU_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS* params) {
  return api::driver_result(api::set_with(node, params));
}

SOFTGPU_API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                       const CUDA_KERNEL_NODE_PARAMS* params) {
  return api::driver_result(api::set_exec_with(exec, node, params));
}

SOFTGPU_API CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  return api::driver_result(cudaGraphKernelNodeCopyAttributes(to, from));
}

SOFTGPU_API CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                                   CUkernelNodeAttrValue* value) {
  return api::driver_result(
      cudaGraphKernelNodeGetAttribute(node, static_cast<cudaLaunchAttributeID>(attribute),
                                      reinterpret_cast<cudaLaunchAttributeValue*>(value)));
}

SOFTGPU_API CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                                   const CUkernelNodeAttrValue* value) {
  return api::driver_result(
      cudaGraphKernelNodeSetAttribute(node, static_cast<cudaLaunchAttributeID>(attribute),
                                      reinterpret_cast<const cudaLaunchAttributeValue*>(value)));
}

SOFTGPU_API CUresult cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph,
                                          const CUgraphNode* dependencies, size_t count,
                                          const CUDA_MEMCPY3D* params, CUcontext) {
  return api::driver_result(api::add_with(out, graph, dependencies, count, params));
}

SOFTGPU_API CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* params) {
  return api::driver_result(api::get_with(node, params));
}

SOFTGPU_API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) {
  return api::driver_result(api::set_with(node, params));
}

SOFTGPU_API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_MEMCPY3D* params, CUcontext) {
  return api::driver_result(api::set_exec_with(exec, node, params));
}

SOFTGPU_API CUresult cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph,
                                          const CUgraphNode* dependencies, size_t count,
                                          const CUDA_MEMSET_NODE_PARAMS* params, CUcontext) {
  return api::driver_result(cudaGraphAddMemsetNode(out, graph, dependencies, count, same(params)));
}

SOFTGPU_API CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* params) {
  return api::driver_result(cudaGraphMemsetNodeGetParams(node, same(params)));
}

SOFTGPU_API CUresult cuGraphMemsetNodeSetParams(CUgraphNode node,
                                                const CUDA_MEMSET_NODE_PARAMS* params) {
  return api::driver_result(cudaGraphMemsetNodeSetParams(node, same(params)));
}

SOFTGPU_API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_MEMSET_NODE_PARAMS* params,
                                                    CUcontext) {
  return api::driver_result(cudaGraphExecMemsetNodeSetParams(exec, node, same(params)));
}

SOFTGPU_API CUresult cuGraphAddHostNode(CUgraphNode* out, CUgraph graph,
                                        const CUgraphNode* dependencies, size_t count,
                                        const CUDA_HOST_NODE_PARAMS* params) {
  return api::driver_result(cudaGraphAddHostNode(out, graph, dependencies, count, same(params)));
}

SOFTGPU_API CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* params) {
  return api::driver_result(cudaGraphHostNodeGetParams(node, same(params)));
}

SOFTGPU_API CUresult cuGraphHostNodeSetParams(CUgraphNode node,
                                              const CUDA_HOST_NODE_PARAMS* params) {
  return api::driver_result(cudaGraphHostNodeSetParams(node, same(params)));
}

SOFTGPU_API CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_HOST_NODE_PARAMS* params) {
  return api::driver_result(cudaGraphExecHostNodeSetParams(exec, node, same(params)));
}

SOFTGPU_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph,
                                                 unsigned long long flags) {
  return api::driver_result(cudaGraphInstantiateWithFlags(out, graph, flags));
}

SOFTGPU_API CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return api::driver_result(cudaGraphInstantiateWithParams(out, graph, same(params)));
}

SOFTGPU_API CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t* flags) {
  return api::driver_result(exec_flags(exec, flags));
}

SOFTGPU_API CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return api::driver_result(cudaGraphExecDestroy(exec));
}

SOFTGPU_API CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return api::driver_result(cudaGraphLaunch(exec, stream));
}

SOFTGPU_API CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return api::driver_result(cudaGraphUpload(exec, stream));
}

SOFTGPU_API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                          CUgraphExecUpdateResultInfo* info) {
  return api::driver_result(cudaGraphExecUpdate(exec, graph, same(info)));
}

SOFTGPU_API CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                        CUgraph child) {
  return api::driver_result(cudaGraphExecChildGraphNodeSetParams(exec, node, child));
}

SOFTGPU_API CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                        CUevent event) {
  return api::driver_result(cudaGraphExecEventRecordNodeSetEvent(exec, node, event));
}

SOFTGPU_API CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                      CUevent event) {
  return api::driver_result(cudaGraphExecEventWaitNodeSetEvent(exec, node, event));
}

SOFTGPU_API CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  return api::driver_result(cudaGraphNodeSetEnabled(exec, node, enabled));
}

SOFTGPU_API CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* enabled) {
  return api::driver_result(cudaGraphNodeGetEnabled(exec, node, enabled));
}

SOFTGPU_API CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return api::driver_result(cudaDeviceGraphMemTrim(device));
}

SOFTGPU_API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                                  void* value) {
  return api::driver_result(cudaDeviceGetGraphMemAttribute(
      device, static_cast<cudaGraphMemAttributeType>(attribute), value));
}

SOFTGPU_API CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                                  void* value) {
  return api::driver_result(cudaDeviceSetGraphMemAttribute(
      device, static_cast<cudaGraphMemAttributeType>(attribute), value));
}

// The two structs differ: the driver's begins with the pool's properties as well, but lists access
// by its own type and keeps the address as a number.
SOFTGPU_API CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph,
                                            const CUgraphNode* dependencies, size_t count,
                                            CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  cudaMemAllocNodeParams p{};
  p.poolProps.location.type = static_cast<cudaMemLocationType>(params->poolProps.location.type);
  p.poolProps.location.id = params->poolProps.location.id;
  p.bytesize = params->bytesize;
  const cudaError_t result = cudaGraphAddMemAllocNode(out, graph, dependencies, count, &p);
  params->dptr = api::number(p.dptr);
  return api::driver_result(result);
}

SOFTGPU_API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node,
                                                  CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  cudaMemAllocNodeParams p{};
  const cudaError_t result = cudaGraphMemAllocNodeGetParams(node, &p);
  *params = {};
  params->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params->poolProps.location.id = p.poolProps.location.id;
  params->bytesize = p.bytesize;
  params->dptr = api::number(p.dptr);
  return api::driver_result(result);
}
