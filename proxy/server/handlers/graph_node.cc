// Nodes of graphs, named by their place in what cuGraphGetNodes gives.
#include <algorithm>

#include "server/handlers/handlers.h"

namespace pyft::server {
namespace {

constexpr size_t kPieceBytes = 1920;  // of a reply

std::vector<CUgraphNode> nodes_of(Session& session, CUgraph graph) {
  size_t count = 0;
  const auto function = session.backend().cuGraphGetNodes;
  if (!function || function(graph, nullptr, &count) != 0) return {};
  std::vector<CUgraphNode> nodes(count);
  if (count && function(graph, nodes.data(), &count) != 0) return {};
  return nodes;
}

// A node the graph does not have is the program's mistake; a graph that is not there the client's.
bool find_graph_node(Session& session, uint64_t graph_handle, uint32_t index, CUgraphNode* node,
                     Status* bad) {
  CUgraph graph;
  *node = nullptr;
  *bad = Status::good();
  if (!resolve_graph(session, graph_handle, &graph)) {
    *bad = bad_handle(graph_handle);
    return false;
  }
  const std::vector<CUgraphNode> nodes = nodes_of(session, graph);
  if (index < nodes.size()) *node = nodes[index];
  return true;
}

bool resolve_exec(Session& session, uint64_t handle, CUgraphExec* out) {
  *out = nullptr;
  return handle == 0 || resolve_graph_exec(session, handle, out);
}

// The arguments as a launch would pass them.
int pack_arguments(const backend::Table& api, const CUDA_KERNEL_NODE_PARAMS& params,
                   std::vector<std::byte>* out) {
  size_t offset = 0, bytes = 0;
  if (!api.cuFuncGetParamInfo) return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t i = 0; api.cuFuncGetParamInfo(params.func, i, &offset, &bytes) == 0; ++i) {
    if (offset + bytes > out->size()) out->resize(offset + bytes);
    if (!params.kernelParams || !params.kernelParams[i]) return CUDA_ERROR_NOT_SUPPORTED;
    std::memcpy(out->data() + offset, params.kernelParams[i], bytes);
  }
  return CUDA_SUCCESS;
}

uint64_t both(uint64_t low, uint64_t high) {
  return low | high << 32;
}

}  // namespace

Status do_cudaGraphNodeGetType(Session& session, const EntryHeader& header,
                               const cmd::cudaGraphNodeGetType& c, Body, Body) {
  CUgraphNode node;
  Status bad;
  if (!find_graph_node(session, c.graph, c.node, &node, &bad)) return bad;
  CUgraphNodeType type{};
  const int code =
      node ? session.backend().cuGraphNodeGetType(node, &type) : CUDA_ERROR_INVALID_VALUE;
  const uint64_t values[] = {static_cast<uint64_t>(type)};
  return finish(session, header, "cuGraphNodeGetType", Domain::kCuda, code, values, 1);
}

Status do_cudaGraphNodeGetDependencies(Session& session, const EntryHeader& header,
                                       const cmd::cudaGraphNodeGetDependencies& c, Body, Body) {
  CUgraph graph;
  if (!resolve_graph(session, c.graph, &graph)) return bad_handle(c.graph);
  const std::vector<CUgraphNode> nodes = nodes_of(session, graph);
  size_t count = 0;
  const auto function = session.backend().cuGraphNodeGetDependencies_v2;
  if (!function)
    return missing(session, header, "cuGraphNodeGetDependencies_v2", CUDA_ERROR_NOT_SUPPORTED);
  int code = CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> before;
  if (c.node < nodes.size()) code = function(nodes[c.node], nullptr, nullptr, &count);
  if (code == 0 && count) {
    before.resize(count);
    code = function(nodes[c.node], before.data(), nullptr, &count);
  }
  std::vector<uint32_t> indexes;
  for (size_t i = c.first; i < before.size() && indexes.size() < kPieceBytes / 4; ++i)
    indexes.push_back(
        static_cast<uint32_t>(std::find(nodes.begin(), nodes.end(), before[i]) - nodes.begin()));
  const uint64_t values[] = {before.size()};
  return finish(session, header, "cuGraphNodeGetDependencies_v2", Domain::kCuda, code, values, 1,
                std::as_bytes(std::span(indexes)));
}

Status do_cudaGraphKernelNodeGetParams(Session& session, const EntryHeader& header,
                                       const cmd::cudaGraphKernelNodeGetParams& c, Body, Body) {
  CUgraphNode node;
  Status bad;
  if (!find_graph_node(session, c.graph, c.node, &node, &bad)) return bad;
  const backend::Table& api = session.backend();
  CUDA_KERNEL_NODE_PARAMS p{};
  std::vector<std::byte> packed;
  int code = node ? api.cuGraphKernelNodeGetParams_v2(node, &p) : CUDA_ERROR_INVALID_VALUE;
  if (code == 0) code = pack_arguments(api, p, &packed);
  if (code != 0)
    return finish(session, header, "cuGraphKernelNodeGetParams_v2", Domain::kCuda, code);
  const uint64_t values[] = {
      session.table(HandleKind::kKernel).handle_of(HandleKind::kKernel, p.func),
      both(p.gridDimX, p.gridDimY), both(p.gridDimZ, p.sharedMemBytes),
      both(p.blockDimX | uint64_t{p.blockDimY} << 16, p.blockDimZ), packed.size()};
  const size_t from = std::min<size_t>(c.from, packed.size());
  const size_t bytes = std::min(packed.size() - from, kPieceBytes);
  return finish(session, header, "cuGraphKernelNodeGetParams_v2", Domain::kCuda, 0, values, 5,
                Body(packed).subspan(from, bytes));
}

Status do_cudaGraphKernelNodeSetParams(Session& session, const EntryHeader& header,
                                       const cmd::cudaGraphKernelNodeSetParams& c, Body tail,
                                       Body) {
  CUgraphNode node;
  CUgraphExec exec;
  CUfunction function;
  Status bad;
  if (!find_graph_node(session, c.graph, c.node, &node, &bad)) return bad;
  if (!resolve_exec(session, c.exec, &exec)) return bad_handle(c.exec);
  if (!resolve_kernel(session, c.kernel, &function)) return bad_handle(c.kernel);
  if (c.param_bytes > tail.size()) return short_body("cudaGraphKernelNodeSetParams");
  size_t bytes = c.param_bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(tail.data()),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  CUDA_KERNEL_NODE_PARAMS p{};
  p.func = function;
  p.gridDimX = c.grid_x, p.gridDimY = c.grid_y, p.gridDimZ = c.grid_z;
  p.blockDimX = c.block_x, p.blockDimY = c.block_y, p.blockDimZ = c.block_z;
  p.sharedMemBytes = c.shared_bytes;
  p.extra = extra;
  const backend::Table& api = session.backend();
  const int code = !node  ? CUDA_ERROR_INVALID_VALUE
                   : exec ? api.cuGraphExecKernelNodeSetParams_v2(exec, node, &p)
                          : api.cuGraphKernelNodeSetParams_v2(node, &p);
  return finish(session, header, "cuGraphKernelNodeSetParams_v2", Domain::kCuda, code);
}

Status do_cudaGraphNodeSetEnabled(Session& session, const EntryHeader& header,
                                  const cmd::cudaGraphNodeSetEnabled& c, Body, Body) {
  CUgraphNode node;
  CUgraphExec exec;
  Status bad;
  if (!find_graph_node(session, c.graph, c.node, &node, &bad)) return bad;
  if (!resolve_graph_exec(session, c.exec, &exec)) return bad_handle(c.exec);
  const int code = node ? session.backend().cuGraphNodeSetEnabled(exec, node, c.enabled)
                        : CUDA_ERROR_INVALID_VALUE;
  return finish(session, header, "cuGraphNodeSetEnabled", Domain::kCuda, code);
}

Status do_cudaGraphNodeGetEnabled(Session& session, const EntryHeader& header,
                                  const cmd::cudaGraphNodeGetEnabled& c, Body, Body) {
  CUgraphNode node;
  CUgraphExec exec;
  Status bad;
  if (!find_graph_node(session, c.graph, c.node, &node, &bad)) return bad;
  if (!resolve_graph_exec(session, c.exec, &exec)) return bad_handle(c.exec);
  unsigned enabled = 0;
  const int code = node ? session.backend().cuGraphNodeGetEnabled(exec, node, &enabled)
                        : CUDA_ERROR_INVALID_VALUE;
  const uint64_t values[] = {enabled};
  return finish(session, header, "cuGraphNodeGetEnabled", Domain::kCuda, code, values, 1);
}

}  // namespace pyft::server
