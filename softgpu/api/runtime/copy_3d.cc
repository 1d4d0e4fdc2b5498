// Copies of boxes, between linear memory only: the device has no arrays.
#include "api/graph/support.h"
#include "api/support.h"
#include "work/transfer.h"

namespace api = softgpu::api;

namespace {

template <class Params>
cudaError_t copy_box(const void* stream, const Params* params, bool synchronous) {
  return api::with_stream(stream, [&](const std::shared_ptr<softgpu::Stream>& s) {
    if (!params) return cudaErrorInvalidValue;
    softgpu::Operation operation;
    const cudaError_t bad = api::to_operation(*params, &operation);
    if (bad != cudaSuccess) return bad;
    const auto& c = std::get<softgpu::CopyOperation>(operation);
    return softgpu::copy(s, c.dst, c.src, c.shape, c.kind, synchronous);
  });
}

}  // namespace

SOFTGPU_API cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* params) {
  return api::record(copy_box(nullptr, params, true));
}

SOFTGPU_API cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* params, cudaStream_t stream) {
  return api::record(copy_box(stream, params, false));
}

SOFTGPU_API CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* params) {
  return api::driver_result(copy_box(nullptr, params, true));
}

SOFTGPU_API CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* params, CUstream stream) {
  return api::driver_result(copy_box(stream, params, false));
}
