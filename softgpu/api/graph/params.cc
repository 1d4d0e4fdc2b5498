// Node parameters: the vendor's structs to operations and back.
#include <algorithm>

#include "api/graph/support.h"
#include "work/launch.h"
#include "work/transfer.h"

namespace softgpu::api {
namespace {

struct Dimensions {
  Dim3 grid, block;
  unsigned shared = 0;
};

cudaError_t make_kernel(Function* function, const Dimensions& d, void** arguments, void** extra,
                        Operation* operation) {
  if (!function) return cudaErrorInvalidDeviceFunction;
  const Device& current = current_device();
  Kernel* kernel = nullptr;
  const cudaError_t missing = resolve_kernel(*function, current.index(), &kernel);
  if (missing != cudaSuccess) return missing;
  auto launch = std::make_shared<Launch>();
  launch->kernel = kernel;
  launch->grid = d.grid;
  launch->block = d.block;
  launch->dynamic_shared_bytes = d.shared;
  const cudaError_t bad = take_arguments(*kernel, arguments, extra, &launch->params);
  if (bad != cudaSuccess) return bad;
  *operation = KernelOperation{launch, function, current.index(), 0};
  return check_launch(*launch);
}

// Pointers to the arguments where the launch keeps them; they live as long as the node's operation.
void** arguments_of(GraphNode* node, const Launch& launch) {
  node->arguments.clear();
  for (const KernelParam& p : launch.kernel->params) {
    node->arguments.push_back(const_cast<uint8_t*>(launch.params.data()) + p.offset);
  }
  node->arguments.push_back(nullptr);
  return node->arguments.data();
}

void* handle_of(const Function* function) {
  return const_cast<Function*>(function);
}

}  // namespace

cudaError_t to_operation(const cudaKernelNodeParams& p, Operation* operation) {
  return make_kernel(registered_function(p.func),
                     {{p.gridDim.x, p.gridDim.y, p.gridDim.z},
                      {p.blockDim.x, p.blockDim.y, p.blockDim.z},
                      p.sharedMemBytes},
                     p.kernelParams, p.extra, operation);
}

cudaError_t to_operation(const CUDA_KERNEL_NODE_PARAMS& p, Operation* operation) {
  void* const handle = p.func ? static_cast<void*>(p.func) : static_cast<void*>(p.kern);
  return make_kernel(static_cast<Function*>(handle),
                     {{p.gridDimX, p.gridDimY, p.gridDimZ},
                      {p.blockDimX, p.blockDimY, p.blockDimZ},
                      p.sharedMemBytes},
                     p.kernelParams, p.extra, operation);
}

cudaError_t to_operation(const cudaMemcpy3DParms& p, Operation* operation) {
  if (p.srcArray || p.dstArray) return cudaErrorNotSupported;  // there are no arrays here
  const auto place = [](const cudaPitchedPtr& at, const cudaPos& pos) {
    return number(at.ptr) + pos.z * at.pitch * at.ysize + pos.y * at.pitch + pos.x;
  };
  CopyOperation c;
  c.dst = place(p.dstPtr, p.dstPos);
  c.src = place(p.srcPtr, p.srcPos);
  c.shape = {p.extent.width,
             p.extent.height,
             p.dstPtr.pitch,
             p.srcPtr.pitch,
             p.extent.depth,
             p.dstPtr.pitch * p.dstPtr.ysize,
             p.srcPtr.pitch * p.srcPtr.ysize};
  c.kind = p.kind;
  const cudaError_t bad = c.shape.empty() ? cudaErrorInvalidValue : check_copy(&c);
  *operation = c;
  return bad;
}

cudaError_t to_operation(const CUDA_MEMCPY3D& p, Operation* operation) {
  if (p.srcMemoryType == CU_MEMORYTYPE_ARRAY || p.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    return cudaErrorNotSupported;
  }
  const uint64_t dst = p.dstMemoryType == CU_MEMORYTYPE_HOST ? number(p.dstHost) : p.dstDevice;
  const uint64_t src = p.srcMemoryType == CU_MEMORYTYPE_HOST ? number(p.srcHost) : p.srcDevice;
  const uint64_t dst_pitch = p.dstPitch ? p.dstPitch : p.WidthInBytes;
  const uint64_t src_pitch = p.srcPitch ? p.srcPitch : p.WidthInBytes;
  const uint64_t dst_slice = dst_pitch * (p.dstHeight ? p.dstHeight : p.Height);
  const uint64_t src_slice = src_pitch * (p.srcHeight ? p.srcHeight : p.Height);
  CopyOperation c;
  c.dst = dst + p.dstZ * dst_slice + p.dstY * dst_pitch + p.dstXInBytes;
  c.src = src + p.srcZ * src_slice + p.srcY * src_pitch + p.srcXInBytes;
  c.shape = {p.WidthInBytes, p.Height, dst_pitch, src_pitch, p.Depth, dst_slice, src_slice};
  const cudaError_t bad = c.shape.empty() ? cudaErrorInvalidValue : check_copy(&c);
  *operation = c;
  return bad;
}

cudaError_t copy_1d(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                    Operation* operation) {
  CopyOperation c{number(dst), number(src), {bytes, 1, bytes, bytes}, kind};
  const cudaError_t bad = bytes == 0 ? cudaErrorInvalidValue : check_copy(&c);
  *operation = c;
  return bad;
}

cudaError_t to_operation(const cudaMemsetParams& p, Operation* operation) {
  const bool element = p.elementSize == 1 || p.elementSize == 2 || p.elementSize == 4;
  if (!element || !p.width || !p.height) return cudaErrorInvalidValue;
  const FillOperation fill{number(p.dst), {p.width, p.height, p.pitch, p.value, p.elementSize}};
  *operation = fill;
  return check_fill(fill);
}

cudaError_t to_operation(const cudaHostNodeParams& p, Operation* operation) {
  if (!p.fn) return cudaErrorInvalidValue;
  *operation = HostOperation{p.fn, p.userData};
  return cudaSuccess;
}

bool from_node(GraphNode* node, cudaKernelNodeParams* p) {
  const auto* kernel = std::get_if<KernelOperation>(node->operation.get());
  if (!kernel) return false;
  const Launch& l = *kernel->launch;
  *p = {};
  p->func = handle_of(kernel->function);
  p->gridDim = {l.grid.x, l.grid.y, l.grid.z};
  p->blockDim = {l.block.x, l.block.y, l.block.z};
  p->sharedMemBytes = l.dynamic_shared_bytes;
  p->kernelParams = arguments_of(node, l);
  return true;
}

bool from_node(GraphNode* node, CUDA_KERNEL_NODE_PARAMS* p) {
  const auto* kernel = std::get_if<KernelOperation>(node->operation.get());
  if (!kernel) return false;
  const Launch& l = *kernel->launch;
  *p = {};
  p->func = static_cast<CUfunction>(handle_of(kernel->function));
  p->gridDimX = l.grid.x, p->gridDimY = l.grid.y, p->gridDimZ = l.grid.z;
  p->blockDimX = l.block.x, p->blockDimY = l.block.y, p->blockDimZ = l.block.z;
  p->sharedMemBytes = l.dynamic_shared_bytes;
  p->kernelParams = arguments_of(node, l);
  return true;
}

bool from_node(GraphNode* node, cudaMemcpy3DParms* p) {
  const auto* c = std::get_if<CopyOperation>(node->operation.get());
  if (!c) return false;
  const auto lines = [](uint64_t slice, uint64_t pitch, uint64_t rows) {
    return slice && pitch ? slice / pitch : rows;
  };
  const CopyShape& s = c->shape;
  *p = {};
  p->srcPtr = {pointer(c->src), s.src_pitch, s.width, lines(s.src_slice, s.src_pitch, s.rows)};
  p->dstPtr = {pointer(c->dst), s.dst_pitch, s.width, lines(s.dst_slice, s.dst_pitch, s.rows)};
  p->extent = {s.width, s.rows, s.slices};
  p->kind = c->kind;
  return true;
}

bool from_node(GraphNode* node, CUDA_MEMCPY3D* p) {
  const auto* c = std::get_if<CopyOperation>(node->operation.get());
  if (!c) return false;
  const CopyShape& s = c->shape;
  *p = {};
  p->srcMemoryType = p->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  p->srcDevice = c->src;
  p->dstDevice = c->dst;
  p->srcPitch = s.src_pitch, p->dstPitch = s.dst_pitch;
  p->srcHeight = s.src_pitch ? s.src_slice / s.src_pitch : 0;
  p->dstHeight = s.dst_pitch ? s.dst_slice / s.dst_pitch : 0;
  p->WidthInBytes = s.width, p->Height = s.rows, p->Depth = s.slices;
  return true;
}

bool from_node(GraphNode* node, cudaMemsetParams* p) {
  const auto* fill = std::get_if<FillOperation>(node->operation.get());
  if (!fill) return false;
  const FillShape& s = fill->shape;
  *p = {};
  p->dst = pointer(fill->dst);
  p->pitch = s.pitch;
  p->value = s.value;
  p->elementSize = s.element_bytes;
  p->width = s.width;
  p->height = s.rows;
  return true;
}

bool from_node(GraphNode* node, cudaHostNodeParams* p) {
  const auto* host = std::get_if<HostOperation>(node->operation.get());
  if (!host) return false;
  *p = {host->function, host->data};
  return true;
}

}  // namespace softgpu::api
