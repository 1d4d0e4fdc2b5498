// Nodes of graphs, for programs that look into what they have captured. A node is named by its
// graph and its place among the graph's nodes, so that nothing needs to be remembered on either
// side but the arguments that cudaGraphKernelNodeGetParams hands out pointers to.
#include <algorithm>
#include <cstring>
#include <map>

#include "api/commands.h"
#include "client/code/module.h"
#include "client/graph/graph.h"
#include "client/process/handles.h"
#include "client/queries/cuda12.h"

namespace pyft::client {
namespace {

struct Node {
  Device* device = nullptr;
  uint64_t graph = 0;
  uint32_t index = 0;
};

// What a kernel node launches, in the words of both APIs.
struct KernelNode {
  const void* function = nullptr;
  dim3 grid, block;
  unsigned shared_bytes = 0;
  void** arguments = nullptr;
  void** extra = nullptr;
};

// By node; they live as long as the graph or until they are asked for again.
struct Arguments {
  std::vector<std::byte> packed;
  std::vector<void*> pointers;
};
struct AllArguments {
  std::mutex mutex;
  std::map<uint64_t, Arguments> by_node;
};
AllArguments& all_arguments() {
  static auto* const all = new AllArguments;
  return *all;
}

uint64_t node_handle(uint64_t graph, uint32_t index) {
  return Handle::make(HandleKind::kGraphNode, index + 1, Handle{graph}.index()).value;
}

bool find_node(const void* handle, Node* out) {
  const Handle h{reinterpret_cast<uint64_t>(handle)};
  if (h.kind() != HandleKind::kGraphNode || h.index() == 0) return false;
  out->graph = last_handle(HandleKind::kGraph, h.generation());
  out->index = h.index() - 1;
  out->device = device_of_graph(reinterpret_cast<const void*>(out->graph), HandleKind::kGraph);
  return out->device != nullptr;
}

template <class Command>
cudaError_t ask(Device& device, Call call, const Command& command, Reply* reply) {
  const cudaError_t error = device.call(static_cast<uint16_t>(call), bytes_of(command), reply);
  return error != cudaSuccess ? error : static_cast<cudaError_t>(reply->code);
}

cudaError_t node_type(const void* handle, int* type) {
  Node node;
  Reply reply;
  if (!type || !find_node(handle, &node)) return cudaErrorInvalidValue;
  const cudaError_t error = ask(*node.device, Call::cudaGraphNodeGetType,
                                cmd::cudaGraphNodeGetType{node.graph, node.index, 0}, &reply);
  if (error == cudaSuccess) *type = static_cast<int>(reply.values[0]);
  return error;
}

// As many as there is room for; *count is how many there are, or were given out.
cudaError_t dependencies(const void* handle, void** nodes, size_t* count) {
  Node node;
  if (!count || !find_node(handle, &node)) return cudaErrorInvalidValue;
  std::vector<uint32_t> indexes;
  size_t total = 0;
  do {
    Reply reply;
    const cmd::cudaGraphNodeGetDependencies body{node.graph, node.index,
                                                 static_cast<uint32_t>(indexes.size())};
    const cudaError_t error = ask(*node.device, Call::cudaGraphNodeGetDependencies, body, &reply);
    if (error != cudaSuccess) return error;
    total = reply.values[0];
    const size_t got = reply.data.size() / sizeof(uint32_t);
    if (got == 0) break;
    indexes.resize(indexes.size() + got);
    std::memcpy(indexes.data() + indexes.size() - got, reply.data.data(), got * sizeof(uint32_t));
  } while (indexes.size() < total);
  if (!nodes) {
    *count = total;
    return cudaSuccess;
  }
  const size_t room = *count;
  for (size_t i = 0; i < room; ++i)
    nodes[i] =
        i < indexes.size() ? reinterpret_cast<void*>(node_handle(node.graph, indexes[i])) : nullptr;
  *count = std::min(room, indexes.size());
  return cudaSuccess;
}

// The arguments come in pieces of a reply.
cudaError_t fetch_arguments(const Node& node, Reply* reply, std::vector<std::byte>* packed) {
  size_t total = 0;
  do {
    const cmd::cudaGraphKernelNodeGetParams body{node.graph, node.index,
                                                 static_cast<uint32_t>(packed->size())};
    const cudaError_t error = ask(*node.device, Call::cudaGraphKernelNodeGetParams, body, reply);
    if (error != cudaSuccess) return error;
    total = reply->values[4];
    if (reply->data.empty()) break;
    packed->insert(packed->end(), reply->data.begin(), reply->data.end());
  } while (packed->size() < total);
  return cudaSuccess;
}

cudaError_t get_kernel(const void* handle, KernelNode* out) {
  Node node;
  Reply reply;
  Arguments fresh;
  if (!find_node(handle, &node)) return cudaErrorInvalidValue;
  if (const cudaError_t error = fetch_arguments(node, &reply, &fresh.packed); error != cudaSuccess)
    return error;
  Kernel* kernel = kernel_of_command(reply.values[0]);
  KernelOnDevice* here = nullptr;
  if (!kernel || resolve(*kernel, *node.device, &here) != cudaSuccess) return cudaErrorNotSupported;
  const auto word = [&](int i, int shift, uint64_t mask) {
    return static_cast<unsigned>(reply.values[i] >> shift & mask);
  };
  constexpr uint64_t kHalf = 0xffffffff, kQuarter = 0xffff;
  const std::lock_guard lock(all_arguments().mutex);
  Arguments& kept = all_arguments().by_node[reinterpret_cast<uint64_t>(handle)];
  kept = std::move(fresh);
  kept.packed.resize(here->info.param_bytes);
  for (uint32_t i = 0; i < here->info.param_count; ++i)
    kept.pointers.push_back(kept.packed.data() + here->info.params[i].offset);
  kept.pointers.push_back(nullptr);
  *out = {kernel,
          {word(1, 0, kHalf), word(1, 32, kHalf), word(2, 0, kHalf)},
          {word(3, 0, kQuarter), word(3, 16, kQuarter), word(3, 32, kQuarter)},
          word(2, 32, kHalf),
          kept.pointers.data()};
  return cudaSuccess;
}

bool pack(const KernelInfo& info, const KernelNode& k, std::vector<std::byte>* out) {
  out->resize(info.param_bytes);
  if (!k.arguments) {  // the other way to pass them: one buffer with its size
    const void* buffer = nullptr;
    size_t bytes = 0;
    for (void** at = k.extra; at && *at != CU_LAUNCH_PARAM_END; at += 2) {
      if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = at[1];
      if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *static_cast<const size_t*>(at[1]);
    }
    if (buffer && bytes >= out->size()) std::memcpy(out->data(), buffer, out->size());
    return out->empty() || (buffer && bytes >= out->size());
  }
  for (uint32_t i = 0; i < info.param_count; ++i)
    std::memcpy(out->data() + info.params[i].offset, k.arguments[i], info.params[i].bytes);
  return true;
}

// `exec` 0: the graph itself.
cudaError_t set_kernel(uint64_t exec, const void* handle, const KernelNode& k) {
  Node node;
  if (!find_node(handle, &node)) return cudaErrorInvalidValue;
  if (exec && !device_of_graph(reinterpret_cast<const void*>(exec), HandleKind::kGraphExec))
    return cudaErrorInvalidValue;
  Kernel* kernel = kernel_of_handle(k.function);
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  KernelOnDevice* here = nullptr;
  if (const cudaError_t error = resolve(*kernel, *node.device, &here); error != cudaSuccess)
    return error;
  if (const cudaError_t error = check_launch(*here, *node.device, k.grid, k.block, k.shared_bytes);
      error != cudaSuccess)
    return error;
  std::vector<std::byte> packed;
  if (!pack(here->info, k, &packed)) return cudaErrorInvalidValue;
  const cmd::cudaGraphKernelNodeSetParams body{
      exec,      node.graph, here->handle,   node.index,
      k.grid.x,  k.grid.y,   k.grid.z,       k.block.x,
      k.block.y, k.block.z,  k.shared_bytes, static_cast<uint32_t>(packed.size()),
      0};
  Reply reply;
  const cudaError_t error = node.device->call(
      static_cast<uint16_t>(Call::cudaGraphKernelNodeSetParams), bytes_of(body), &reply, packed);
  return error != cudaSuccess ? error : static_cast<cudaError_t>(reply.code);
}

// `enable` -1: only asks.
cudaError_t enabled(const void* exec, const void* handle, int enable, unsigned* out) {
  Node node;
  Reply reply;
  if (!find_node(handle, &node) || !device_of_graph(exec, HandleKind::kGraphExec))
    return cudaErrorInvalidValue;
  const auto value = reinterpret_cast<uint64_t>(exec);
  if (enable >= 0)
    return ask(
        *node.device, Call::cudaGraphNodeSetEnabled,
        cmd::cudaGraphNodeSetEnabled{value, node.graph, node.index, static_cast<uint32_t>(enable)},
        &reply);
  if (!out) return cudaErrorInvalidValue;
  const cudaError_t error =
      ask(*node.device, Call::cudaGraphNodeGetEnabled,
          cmd::cudaGraphNodeGetEnabled{value, node.graph, node.index, 0}, &reply);
  if (error == cudaSuccess) *out = static_cast<unsigned>(reply.values[0]);
  return error;
}

cudaError_t get_runtime(const void* node, cudaKernelNodeParams* p) {
  KernelNode k;
  if (!p) return cudaErrorInvalidValue;
  if (const cudaError_t error = get_kernel(node, &k); error != cudaSuccess) return error;
  *p = {const_cast<void*>(k.function), k.grid, k.block, k.shared_bytes, k.arguments, nullptr};
  return cudaSuccess;
}

cudaError_t set_runtime(const void* exec, const void* node, const cudaKernelNodeParams* p) {
  if (!p) return cudaErrorInvalidValue;
  return set_kernel(
      reinterpret_cast<uint64_t>(exec), node,
      {p->func, p->gridDim, p->blockDim, p->sharedMemBytes, p->kernelParams, p->extra});
}

cudaError_t get_driver(const void* node, CUDA_KERNEL_NODE_PARAMS* p) {
  KernelNode k;
  if (!p) return cudaErrorInvalidValue;
  if (const cudaError_t error = get_kernel(node, &k); error != cudaSuccess) return error;
  *p = {};
  p->func = static_cast<CUfunction>(const_cast<void*>(k.function));
  p->gridDimX = k.grid.x, p->gridDimY = k.grid.y, p->gridDimZ = k.grid.z;
  p->blockDimX = k.block.x, p->blockDimY = k.block.y, p->blockDimZ = k.block.z;
  p->sharedMemBytes = k.shared_bytes;
  p->kernelParams = k.arguments;
  return cudaSuccess;
}

cudaError_t set_driver(const void* exec, const void* node, const CUDA_KERNEL_NODE_PARAMS* p) {
  if (!p) return cudaErrorInvalidValue;
  const void* function = p->func ? static_cast<const void*>(p->func) : p->kern;
  return set_kernel(reinterpret_cast<uint64_t>(exec), node,
                    {function,
                     {p->gridDimX, p->gridDimY, p->gridDimZ},
                     {p->blockDimX, p->blockDimY, p->blockDimZ},
                     p->sharedMemBytes,
                     p->kernelParams,
                     p->extra});
}

}  // namespace

void give_out_nodes(uint64_t graph, size_t total, void** nodes, size_t* count) {
  const size_t room = *count;
  for (size_t i = 0; i < room; ++i)
    nodes[i] =
        i < total ? reinterpret_cast<void*>(node_handle(graph, static_cast<uint32_t>(i))) : nullptr;
  *count = std::min(room, total);
}

void forget_nodes(uint64_t graph) {
  const std::lock_guard lock(all_arguments().mutex);
  auto& all = all_arguments().by_node;
  all.erase(all.lower_bound(node_handle(graph, 0)), all.upper_bound(node_handle(graph, ~1u)));
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType* pType) {
  const Entered entered(Api::cudaGraphNodeGetType);
  return done(node_type(node, reinterpret_cast<int*>(pType)));
}

PYFT_API CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  const Entered entered(Api::cuGraphNodeGetType);
  return static_cast<CUresult>(node_type(hNode, reinterpret_cast<int*>(type)));
}

PYFT_API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node,
                                                  cudaGraphNode_t* pDependencies,
                                                  cudaGraphEdgeData* edgeData,
                                                  size_t* pNumDependencies) {
  const Entered entered(Api::cudaGraphNodeGetDependencies);
  if (built_with_cuda_12()) {  // its version has no edges
    pNumDependencies = reinterpret_cast<size_t*>(edgeData);
    edgeData = nullptr;
  }
  if (edgeData && pNumDependencies) std::fill_n(edgeData, *pNumDependencies, cudaGraphEdgeData{});
  return done(dependencies(node, reinterpret_cast<void**>(pDependencies), pNumDependencies));
}

PYFT_API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies_out,
                                                CUgraphEdgeData* edgeData,
                                                size_t* numDependencies) {
  const Entered entered(Api::cuGraphNodeGetDependencies_v2);
  if (edgeData && numDependencies) std::fill_n(edgeData, *numDependencies, CUgraphEdgeData{});
  return static_cast<CUresult>(
      dependencies(hNode, reinterpret_cast<void**>(dependencies_out), numDependencies));
}

PYFT_API cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node,
                                                  struct cudaKernelNodeParams* pNodeParams) {
  const Entered entered(Api::cudaGraphKernelNodeGetParams);
  return done(get_runtime(node, pNodeParams));
}

PYFT_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode,
                                                CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  const Entered entered(Api::cuGraphKernelNodeGetParams_v2);
  return static_cast<CUresult>(get_driver(hNode, nodeParams));
}

PYFT_API cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                                  const struct cudaKernelNodeParams* pNodeParams) {
  const Entered entered(Api::cudaGraphKernelNodeSetParams);
  return done(set_runtime(nullptr, node, pNodeParams));
}

PYFT_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                                const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  const Entered entered(Api::cuGraphKernelNodeSetParams_v2);
  return static_cast<CUresult>(set_driver(nullptr, hNode, nodeParams));
}

PYFT_API cudaError_t
cudaGraphExecKernelNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                 const struct cudaKernelNodeParams* pNodeParams) {
  const Entered entered(Api::cudaGraphExecKernelNodeSetParams);
  if (!hGraphExec) return done(cudaErrorInvalidValue);
  return done(set_runtime(hGraphExec, node, pNodeParams));
}

PYFT_API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  const Entered entered(Api::cuGraphExecKernelNodeSetParams_v2);
  if (!hGraphExec) return CUDA_ERROR_INVALID_VALUE;
  return static_cast<CUresult>(set_driver(hGraphExec, hNode, nodeParams));
}

PYFT_API cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
                                             unsigned int isEnabled) {
  const Entered entered(Api::cudaGraphNodeSetEnabled);
  return done(enabled(hGraphExec, hNode, isEnabled != 0, nullptr));
}

PYFT_API CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        unsigned int isEnabled) {
  const Entered entered(Api::cuGraphNodeSetEnabled);
  return static_cast<CUresult>(enabled(hGraphExec, hNode, isEnabled != 0, nullptr));
}

PYFT_API cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
                                             unsigned int* isEnabled) {
  const Entered entered(Api::cudaGraphNodeGetEnabled);
  return done(enabled(hGraphExec, hNode, -1, isEnabled));
}

PYFT_API CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        unsigned int* isEnabled) {
  const Entered entered(Api::cuGraphNodeGetEnabled);
  return static_cast<CUresult>(enabled(hGraphExec, hNode, -1, isEnabled));
}
