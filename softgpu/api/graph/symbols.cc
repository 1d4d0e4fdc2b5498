// Copy nodes from and to variables of modules: plain copy nodes at the variable's address.
#include "api/support.h"

namespace api = softgpu::api;

namespace {

// The place in a variable, on the current device.
cudaError_t place(const void* symbol, size_t count, size_t offset, char** out) {
  void* base = nullptr;
  size_t bytes = 0;
  if (const cudaError_t bad = cudaGetSymbolAddress(&base, symbol); bad != cudaSuccess) return bad;
  if (const cudaError_t bad = cudaGetSymbolSize(&bytes, symbol); bad != cudaSuccess) return bad;
  if (offset > bytes || count > bytes - offset) return api::record(cudaErrorInvalidValue);
  *out = static_cast<char*>(base) + offset;
  return cudaSuccess;
}

// Calls `body(address)`.
template <class Body>
cudaError_t with_place(const void* symbol, size_t count, size_t offset, Body body) {
  char* address = nullptr;
  const cudaError_t bad = place(symbol, count, offset, &address);
  return bad == cudaSuccess ? body(address) : bad;
}

}  // namespace

SOFTGPU_API cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* out, cudaGraph_t graph,
                                                       const cudaGraphNode_t* dependencies,
                                                       size_t n, const void* symbol,
                                                       const void* src, size_t count, size_t offset,
                                                       cudaMemcpyKind kind) {
  return with_place(symbol, count, offset, [&](char* at) {
    return cudaGraphAddMemcpyNode1D(out, graph, dependencies, n, at, src, count, kind);
  });
}

SOFTGPU_API cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* out, cudaGraph_t graph,
                                                         const cudaGraphNode_t* dependencies,
                                                         size_t n, void* dst, const void* symbol,
                                                         size_t count, size_t offset,
                                                         cudaMemcpyKind kind) {
  return with_place(symbol, count, offset, [&](char* at) {
    return cudaGraphAddMemcpyNode1D(out, graph, dependencies, n, dst, at, count, kind);
  });
}

SOFTGPU_API cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node,
                                                             const void* symbol, const void* src,
                                                             size_t count, size_t offset,
                                                             cudaMemcpyKind kind) {
  return with_place(symbol, count, offset, [&](char* at) {
    return cudaGraphMemcpyNodeSetParams1D(node, at, src, count, kind);
  });
}

SOFTGPU_API cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void* dst,
                                                               const void* symbol, size_t count,
                                                               size_t offset, cudaMemcpyKind kind) {
  return with_place(symbol, count, offset, [&](char* at) {
    return cudaGraphMemcpyNodeSetParams1D(node, dst, at, count, kind);
  });
}

SOFTGPU_API cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(
    cudaGraphExec_t exec, cudaGraphNode_t node, const void* symbol, const void* src, size_t count,
    size_t offset, cudaMemcpyKind kind) {
  return with_place(symbol, count, offset, [&](char* at) {
    return cudaGraphExecMemcpyNodeSetParams1D(exec, node, at, src, count, kind);
  });
}

SOFTGPU_API cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t exec,
                                                                   cudaGraphNode_t node, void* dst,
                                                                   const void* symbol, size_t count,
                                                                   size_t offset,
                                                                   cudaMemcpyKind kind) {
  return with_place(symbol, count, offset, [&](char* at) {
    return cudaGraphExecMemcpyNodeSetParams1D(exec, node, dst, at, count, kind);
  });
}
