// Many copies by one call, made one after the other.
#include <cstdint>

#include "api/support.h"

#undef cuMemcpyBatchAsync

namespace {

bool valid(size_t count, const CUmemcpyAttributes* attributes, const size_t* first, size_t sets) {
  if (!attributes || !first || sets == 0 || sets > count || first[0] != 0) return false;
  for (size_t i = 0; i < sets; ++i) {
    const auto order = attributes[i].srcAccessOrder;
    if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
        first[i] >= count || (i && first[i] <= first[i - 1]))
      return false;
  }
  return true;
}

// *failed: the copy that could not be begun; SIZE_MAX: none is at fault.
CUresult copy_all(const CUdeviceptr* dsts, const CUdeviceptr* srcs, const size_t* sizes,
                  size_t count, const CUmemcpyAttributes* attributes, const size_t* first,
                  size_t sets, CUstream stream, size_t* failed) {
  *failed = SIZE_MAX;
  const bool legacy =
      stream == CU_STREAM_LEGACY || (!stream && !softgpu::null_stream_is_per_thread());
  if (legacy || !dsts || !srcs || !sizes || !valid(count, attributes, first, sets))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUresult code = cuMemcpyAsync(dsts[i], srcs[i], sizes[i], stream);
    if (code == CUDA_SUCCESS) continue;
    *failed = i;
    return code;
  }
  // Pinned sources are read when the stream gets there, which has to be before the call ends.
  for (size_t i = 0; i < sets; ++i)
    if (attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
      return cuStreamSynchronize(stream);
  return CUDA_SUCCESS;
}

}  // namespace

SOFTGPU_API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                           size_t count, CUmemcpyAttributes* attributes,
                                           size_t* first, size_t sets, CUstream stream) {
  size_t failed;
  return copy_all(dsts, srcs, sizes, count, attributes, first, sets, stream, &failed);
}

SOFTGPU_API CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                        size_t count, CUmemcpyAttributes* attributes, size_t* first,
                                        size_t sets, size_t* failed, CUstream stream) {
  size_t none;
  return copy_all(dsts, srcs, sizes, count, attributes, first, sets, stream,
                  failed ? failed : &none);
}

SOFTGPU_API CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                             size_t count, CUmemcpyAttributes* attributes,
                                             size_t* first, size_t sets, size_t* failed,
                                             CUstream stream) {
  const softgpu::PerThreadScope own;
  return cuMemcpyBatchAsync(dsts, srcs, sizes, count, attributes, first, sets, failed, stream);
}

SOFTGPU_API cudaError_t cudaMemcpyBatchAsync(void* const* dsts, const void* const* srcs,
                                             const size_t* sizes, size_t count,
                                             cudaMemcpyAttributes* attributes, size_t* first,
                                             size_t sets, cudaStream_t stream) {
  static_assert(sizeof(cudaMemcpyAttributes) == sizeof(CUmemcpyAttributes));
  size_t failed;
  return softgpu::api::record(static_cast<cudaError_t>(copy_all(
      reinterpret_cast<const CUdeviceptr*>(dsts), reinterpret_cast<const CUdeviceptr*>(srcs), sizes,
      count, reinterpret_cast<const CUmemcpyAttributes*>(attributes), first, sets, stream,
      &failed)));
}
