// Graphs, their nodes and edges, and the objects they keep alive.
#include <algorithm>

#include "api/graph/support.h"
#include "api/stub.h"
#include "graph/graph_dot.h"

namespace softgpu::api {

bool find_nodes(const cudaGraphNode_t* handles, size_t count, std::vector<GraphNode*>* nodes) {
  if (count && !handles) return false;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* node = find_node(handles[i]);
    if (!node) return false;
    nodes->push_back(node);
  }
  return true;
}

void list_nodes(const std::vector<GraphNode*>& nodes, cudaGraphNode_t* out, size_t* count) {
  if (out) {
    for (size_t i = 0; i < *count; ++i) {
      out[i] = i < nodes.size() ? node_handle(nodes[i]) : nullptr;
    }
    *count = std::min(*count, nodes.size());
  } else {
    *count = nodes.size();
  }
}

cudaGraphNodeType node_type(const GraphNode& node) {
  static constexpr cudaGraphNodeType kTypes[] = {
      cudaGraphNodeTypeEmpty,  cudaGraphNodeTypeKernel,      cudaGraphNodeTypeMemcpy,
      cudaGraphNodeTypeMemset, cudaGraphNodeTypeHost,        cudaGraphNodeTypeKernel,
      cudaGraphNodeTypeKernel, cudaGraphNodeTypeEventRecord, cudaGraphNodeTypeWaitEvent,
      cudaGraphNodeTypeGraph,  cudaGraphNodeTypeMemAlloc,    cudaGraphNodeTypeMemFree};
  static_assert(std::size(kTypes) == std::variant_size_v<Operation>);
  return kTypes[node.operation->index()];
}

}  // namespace softgpu::api

namespace api = softgpu::api;
using softgpu::Graph;
using softgpu::GraphNode;

namespace {

// Edges carry no data here: no kernel starts before the one it depends on has ended.
void clear_edges(cudaGraphEdgeData* edges, size_t count) {
  if (edges) std::fill_n(edges, count, cudaGraphEdgeData{});
}

cudaError_t list(const std::vector<GraphNode*>& nodes, cudaGraphNode_t* out,
                 cudaGraphEdgeData* edges, size_t* count) {
  if (!count) return cudaErrorInvalidValue;
  api::list_nodes(nodes, out, count);
  if (out) clear_edges(edges, *count);
  return cudaSuccess;
}

template <class Change>
cudaError_t change_edges(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                         size_t count, Change change) {
  return api::graph_call([&] {
    const auto g = softgpu::find_graph(graph);
    std::vector<GraphNode*> begins, ends;
    if (!g || !api::find_nodes(from, count, &begins) || !api::find_nodes(to, count, &ends)) {
      return cudaErrorInvalidValue;
    }
    for (size_t i = 0; i < count; ++i) {
      if (!change(*g, begins[i], ends[i])) return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}

}  // namespace

SOFTGPU_API cudaError_t cudaGraphCreate(cudaGraph_t* out, unsigned flags) {
  return api::graph_call([&] {
    if (!out || flags) return cudaErrorInvalidValue;
    *out = static_cast<cudaGraph_t>(softgpu::publish_graph(std::make_shared<Graph>()));
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return api::graph_call(
      [&] { return softgpu::drop_graph(graph) ? cudaSuccess : cudaErrorInvalidValue; });
}

SOFTGPU_API cudaError_t cudaGraphClone(cudaGraph_t* out, cudaGraph_t graph) {
  return api::graph_call([&] {
    const auto g = softgpu::find_graph(graph);
    if (!out || !g) return cudaErrorInvalidValue;
    if (g->has_memory_nodes()) return cudaErrorNotSupported;
    *out = static_cast<cudaGraph_t>(softgpu::publish_graph(g->clone()));
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* out, cudaGraphNode_t original,
                                                 cudaGraph_t clone) {
  return api::graph_call([&] {
    const auto g = softgpu::find_graph(clone);
    const GraphNode* node = softgpu::find_node(original);
    if (!out || !g || !node) return cudaErrorInvalidValue;
    *out = api::node_handle(g->find_clone(node->original));
    return *out ? cudaSuccess : cudaErrorInvalidValue;
  });
}

SOFTGPU_API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* out, size_t* count) {
  return api::graph_call([&] {
    const auto g = softgpu::find_graph(graph);
    if (!g || !count) return cudaErrorInvalidValue;
    std::vector<GraphNode*> nodes;
    for (const auto& node : g->nodes()) nodes.push_back(node.get());
    return list(nodes, out, nullptr, count);
  });
}

SOFTGPU_API cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* out,
                                              size_t* count) {
  return api::graph_call([&] {
    const auto g = softgpu::find_graph(graph);
    if (!g || !count) return cudaErrorInvalidValue;
    std::vector<GraphNode*> roots;
    for (const auto& node : g->nodes()) {
      if (node->dependencies.empty()) roots.push_back(node.get());
    }
    return list(roots, out, nullptr, count);
  });
}

SOFTGPU_API cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from,
                                          cudaGraphNode_t* to, cudaGraphEdgeData* edges,
                                          size_t* count) {
  return api::graph_call([&] {
    const auto g = softgpu::find_graph(graph);
    if (!g || !count || !from != !to) return cudaErrorInvalidValue;
    std::vector<GraphNode*> begins, ends;
    for (const auto& node : g->nodes()) {
      for (GraphNode* before : node->dependencies) {
        begins.push_back(before);
        ends.push_back(node.get());
      }
    }
    size_t room = *count;
    list(begins, from, edges, count);
    return list(ends, to, nullptr, &room);
  });
}

SOFTGPU_API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t handle, cudaGraphNode_t* out,
                                                     cudaGraphEdgeData* edges, size_t* count) {
  return api::graph_call([&] {
    const GraphNode* node = softgpu::find_node(handle);
    return node ? list(node->dependencies, out, edges, count) : cudaErrorInvalidValue;
  });
}

SOFTGPU_API cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t handle, cudaGraphNode_t* out,
                                                       cudaGraphEdgeData* edges, size_t* count) {
  return api::graph_call([&] {
    const GraphNode* node = softgpu::find_node(handle);
    return node ? list(node->dependents, out, edges, count) : cudaErrorInvalidValue;
  });
}

SOFTGPU_API cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                                 const cudaGraphNode_t* to,
                                                 const cudaGraphEdgeData*, size_t count) {
  return change_edges(graph, from, to, count, [](Graph& g, GraphNode* before, GraphNode* after) {
    return g.add_edge(before, after);
  });
}

SOFTGPU_API cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                                    const cudaGraphNode_t* to,
                                                    const cudaGraphEdgeData*, size_t count) {
  return change_edges(graph, from, to, count, [](Graph& g, GraphNode* before, GraphNode* after) {
    return g.remove_edge(before, after);
  });
}

SOFTGPU_API cudaError_t cudaGraphNodeGetType(cudaGraphNode_t handle, cudaGraphNodeType* type) {
  return api::graph_call([&] {
    const GraphNode* node = softgpu::find_node(handle);
    if (!node || !type) return cudaErrorInvalidValue;
    *type = api::node_type(*node);
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphDestroyNode(cudaGraphNode_t handle) {
  return api::graph_call([&] {
    GraphNode* node = softgpu::find_node(handle);
    if (!node) return cudaErrorInvalidValue;
    // Memory nodes stay: their addresses are known to other nodes.
    const cudaGraphNodeType type = api::node_type(*node);
    if (type == cudaGraphNodeTypeMemAlloc || type == cudaGraphNodeTypeMemFree) {
      return cudaErrorNotSupported;
    }
    node->graph->remove(node);
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  return api::graph_call([&] {
    const auto g = softgpu::find_graph(graph);
    if (!g || !path) return cudaErrorInvalidValue;
    return softgpu::print_dot(*g, path) ? cudaSuccess : cudaErrorOperatingSystem;
  });
}

// Loops and branches inside a graph need kernels that set their conditions: none of sm_75 does.
SOFTGPU_API cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle*, cudaGraph_t,
                                                         unsigned, unsigned) {
  static std::atomic<bool> said{false};
  api::report_stub("cudaGraphConditionalHandleCreate", said);
  return api::record(cudaErrorNotSupported);
}

SOFTGPU_API CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle*, CUgraph, CUcontext,
                                                    unsigned, unsigned) {
  static std::atomic<bool> said{false};
  api::report_stub("cuGraphConditionalHandleCreate", said);
  return CUDA_ERROR_NOT_SUPPORTED;
}

SOFTGPU_API cudaError_t cudaUserObjectCreate(cudaUserObject_t* out, void* data,
                                             cudaHostFn_t destroy, unsigned references,
                                             unsigned flags) {
  return api::graph_call([&] {
    if (!out || !destroy || !references || flags != cudaUserObjectNoDestructorSync) {
      return cudaErrorInvalidValue;
    }
    *out =
        reinterpret_cast<cudaUserObject_t>(softgpu::create_user_object(destroy, data, references));
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaUserObjectRetain(cudaUserObject_t handle, unsigned count) {
  return api::graph_call([&] {
    softgpu::UserObject* object = softgpu::find_user_object(handle);
    if (!object || !count) return cudaErrorInvalidValue;
    object->references += count;
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaUserObjectRelease(cudaUserObject_t handle, unsigned count) {
  return api::graph_call([&] {
    softgpu::UserObject* object = softgpu::find_user_object(handle);
    if (!object || !count || count > object->references) return cudaErrorInvalidValue;
    softgpu::release_user_object(object, count);
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t handle,
                                                  unsigned count, unsigned flags) {
  return api::graph_call([&] {
    const auto g = softgpu::find_graph(graph);
    softgpu::UserObject* object = softgpu::find_user_object(handle);
    if (!g || !object || !count || flags > cudaGraphUserObjectMove) return cudaErrorInvalidValue;
    g->user_objects[object] += count;
    if (flags != cudaGraphUserObjectMove) object->references += count;
    return cudaSuccess;
  });
}

SOFTGPU_API cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t handle,
                                                   unsigned count) {
  return api::graph_call([&] {
    const auto g = softgpu::find_graph(graph);
    softgpu::UserObject* object = softgpu::find_user_object(handle);
    if (!g || !object || !count || g->user_objects[object] < count) return cudaErrorInvalidValue;
    if ((g->user_objects[object] -= count) == 0) g->user_objects.erase(object);
    softgpu::release_user_object(object, count);
    return cudaSuccess;
  });
}
