// What the graph calls of the runtime and the driver share: handles, and the vendor's parameter
// structs to and from operations.
#ifndef SOFTGPU_API_GRAPH_SUPPORT_H_
#define SOFTGPU_API_GRAPH_SUPPORT_H_

#include <vector>

#include "api/support.h"
#include "graph/graph.h"

namespace softgpu::api {

// Runs a call on graphs under their lock and remembers its failure.
template <class Body>
cudaError_t graph_call(Body body) {
  if (const cudaError_t bad = usable(); bad != cudaSuccess) return record(bad);
  const GraphLock lock;
  return record(body());
}

// Arguments come as pointers to each, or packed in one buffer named in `extra`.
cudaError_t take_arguments(const Kernel& kernel, void** arguments, void** extra,
                           std::vector<uint8_t>* packed);

inline cudaGraphNode_t node_handle(GraphNode* node) {
  return reinterpret_cast<cudaGraphNode_t>(node);
}
// False if one of them is no node.
bool find_nodes(const cudaGraphNode_t* handles, size_t count, std::vector<GraphNode*>* nodes);
// Answers a list the vendor's way: without room only the count, else as many as there is room for.
void list_nodes(const std::vector<GraphNode*>& nodes, cudaGraphNode_t* out, size_t* count);

cudaGraphNodeType node_type(const GraphNode& node);

// Each makes the operation that a parameter struct means, or says why it cannot be one.
cudaError_t to_operation(const cudaKernelNodeParams& params, Operation* operation);
cudaError_t to_operation(const CUDA_KERNEL_NODE_PARAMS& params, Operation* operation);
cudaError_t to_operation(const cudaMemcpy3DParms& params, Operation* operation);
cudaError_t to_operation(const CUDA_MEMCPY3D& params, Operation* operation);
cudaError_t to_operation(const cudaMemsetParams& params, Operation* operation);
cudaError_t to_operation(const cudaHostNodeParams& params, Operation* operation);
cudaError_t copy_1d(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                    Operation* operation);

// The parameters of a node; false if it is of another type.
bool from_node(GraphNode* node, cudaKernelNodeParams* params);
bool from_node(GraphNode* node, CUDA_KERNEL_NODE_PARAMS* params);
bool from_node(GraphNode* node, cudaMemcpy3DParms* params);
bool from_node(GraphNode* node, CUDA_MEMCPY3D* params);
bool from_node(GraphNode* node, cudaMemsetParams* params);
bool from_node(GraphNode* node, cudaHostNodeParams* params);

cudaError_t add_node(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                     size_t count, Operation operation);

// A call with a parameter struct: add a node, change one, change one of an instantiated graph.
template <class Params>
cudaError_t add_with(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                     size_t count, const Params* params) {
  return graph_call([&] {
    if (!params) return cudaErrorInvalidValue;
    Operation operation;
    const cudaError_t bad = to_operation(*params, &operation);
    return bad == cudaSuccess ? add_node(out, graph, dependencies, count, std::move(operation))
                              : bad;
  });
}

cudaError_t set_operation(cudaGraphNode_t node, Operation operation);
cudaError_t set_exec_operation(cudaGraphExec_t exec, cudaGraphNode_t node, Operation operation);

template <class Params>
cudaError_t set_with(cudaGraphNode_t node, const Params* params) {
  return graph_call([&] {
    if (!params) return cudaErrorInvalidValue;
    Operation operation;
    const cudaError_t bad = to_operation(*params, &operation);
    return bad == cudaSuccess ? set_operation(node, std::move(operation)) : bad;
  });
}

template <class Params>
cudaError_t set_exec_with(cudaGraphExec_t exec, cudaGraphNode_t node, const Params* params) {
  return graph_call([&] {
    if (!params) return cudaErrorInvalidValue;
    Operation operation;
    const cudaError_t bad = to_operation(*params, &operation);
    return bad == cudaSuccess ? set_exec_operation(exec, node, std::move(operation)) : bad;
  });
}

template <class Params>
cudaError_t get_with(cudaGraphNode_t handle, Params* params) {
  return graph_call([&] {
    GraphNode* node = find_node(handle);
    if (!node || !params) return cudaErrorInvalidValue;
    if (std::holds_alternative<LibraryOperation>(*node->operation)) {
      return cudaErrorInvalidDeviceFunction;  // a library's kernel, which has no public function
    }
    return from_node(node, params) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

}  // namespace softgpu::api

#endif  // SOFTGPU_API_GRAPH_SUPPORT_H_
