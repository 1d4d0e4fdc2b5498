#include "api/support.h"
#include "work/transfer.h"

namespace api = softgpu::api;
using softgpu::CopyShape;

namespace {

using StreamPointer = std::shared_ptr<softgpu::Stream>;

cudaError_t copy_on(cudaStream_t stream, void* dst, const void* src, const CopyShape& shape,
                    cudaMemcpyKind kind, bool synchronous) {
  return api::record(api::with_stream(stream, [&](const StreamPointer& s) {
    return softgpu::copy(s, api::number(dst), api::number(src), shape, kind, synchronous);
  }));
}

cudaError_t fill_on(cudaStream_t stream, uint64_t dst, const softgpu::FillShape& shape) {
  return api::with_stream(stream,
                          [&](const StreamPointer& s) { return softgpu::fill(s, dst, shape); });
}

CUresult driver_copy(CUstream stream, uint64_t dst, uint64_t src, size_t bytes, cudaMemcpyKind kind,
                     bool synchronous) {
  const profiling::DriverCall traced(synchronous ? CUPTI_DRIVER_TRACE_CBID_cuMemcpy
                                                 : CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync);
  return api::driver_result(api::with_stream(stream, [&](const StreamPointer& s) {
    return softgpu::copy(s, dst, src, {bytes, 1, bytes, bytes}, kind, synchronous);
  }));
}

CUresult driver_fill(CUstream stream, uint64_t dst, size_t pitch, uint32_t value, uint32_t element,
                     size_t width, size_t height) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async);
  return api::driver_result(fill_on(stream, dst, {width, height, pitch, value, element}));
}

CUresult driver_copy_2d(const CUDA_MEMCPY2D* c, CUstream stream, bool synchronous) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2);
  const auto place = [](CUmemorytype type, const void* host, CUdeviceptr device, size_t pitch,
                        size_t x, size_t y) {
    const uint64_t base = type == CU_MEMORYTYPE_HOST ? api::number(host) : device;
    return base + y * pitch + x;
  };
  if (!c || c->srcMemoryType == CU_MEMORYTYPE_ARRAY || c->dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CopyShape shape{c->WidthInBytes, c->Height, c->dstPitch ? c->dstPitch : c->WidthInBytes,
                        c->srcPitch ? c->srcPitch : c->WidthInBytes};
  const uint64_t dst =
      place(c->dstMemoryType, c->dstHost, c->dstDevice, shape.dst_pitch, c->dstXInBytes, c->dstY);
  const uint64_t src =
      place(c->srcMemoryType, c->srcHost, c->srcDevice, shape.src_pitch, c->srcXInBytes, c->srcY);
  return api::driver_result(api::with_stream(stream, [&](const StreamPointer& s) {
    return softgpu::copy(s, dst, src, shape, cudaMemcpyDefault, synchronous);
  }));
}

}  // namespace

SOFTGPU_API cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020);
  return copy_on(nullptr, dst, src, {bytes, 1, bytes, bytes}, kind, true);
}

SOFTGPU_API cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes,
                                        cudaMemcpyKind kind, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020);
  return copy_on(stream, dst, src, {bytes, 1, bytes, bytes}, kind, false);
}

SOFTGPU_API cudaError_t cudaMemcpyPeer(void* dst, int, const void* src, int, size_t bytes) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeer_v4000);
  return copy_on(nullptr, dst, src, {bytes, 1, bytes, bytes}, cudaMemcpyDefault, true);
}

SOFTGPU_API cudaError_t cudaMemcpyPeerAsync(void* dst, int, const void* src, int, size_t bytes,
                                            cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000);
  return copy_on(stream, dst, src, {bytes, 1, bytes, bytes}, cudaMemcpyDefault, false);
}

SOFTGPU_API cudaError_t cudaMemcpy2D(void* dst, size_t dst_pitch, const void* src, size_t src_pitch,
                                     size_t width, size_t height, cudaMemcpyKind kind) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2D_v3020);
  return copy_on(nullptr, dst, src, {width, height, dst_pitch, src_pitch}, kind, true);
}

SOFTGPU_API cudaError_t cudaMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src,
                                          size_t src_pitch, size_t width, size_t height,
                                          cudaMemcpyKind kind, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_v3020);
  return copy_on(stream, dst, src, {width, height, dst_pitch, src_pitch}, kind, false);
}

SOFTGPU_API cudaError_t cudaMemset(void* dst, int value, size_t bytes) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020);
  return api::record(
      fill_on(nullptr, api::number(dst), {bytes, 1, 0, static_cast<uint32_t>(value) & 255, 1}));
}

SOFTGPU_API cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020);
  return api::record(
      fill_on(stream, api::number(dst), {bytes, 1, 0, static_cast<uint32_t>(value) & 255, 1}));
}

SOFTGPU_API cudaError_t cudaMemset2D(void* dst, size_t pitch, int value, size_t width,
                                     size_t height) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemset2D_v3020);
  return api::record(fill_on(nullptr, api::number(dst),
                             {width, height, pitch, static_cast<uint32_t>(value) & 255, 1}));
}

SOFTGPU_API cudaError_t cudaMemset2DAsync(void* dst, size_t pitch, int value, size_t width,
                                          size_t height, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemset2DAsync_v3020);
  return api::record(fill_on(stream, api::number(dst),
                             {width, height, pitch, static_cast<uint32_t>(value) & 255, 1}));
}

SOFTGPU_API CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return driver_copy(nullptr, dst, src, bytes, cudaMemcpyDefault, true);
}

SOFTGPU_API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream s) {
  return driver_copy(s, dst, src, bytes, cudaMemcpyDefault, false);
}

SOFTGPU_API CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void* src, size_t bytes) {
  return driver_copy(nullptr, dst, api::number(src), bytes, cudaMemcpyHostToDevice, true);
}

SOFTGPU_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t bytes,
                                          CUstream s) {
  return driver_copy(s, dst, api::number(src), bytes, cudaMemcpyHostToDevice, false);
}

SOFTGPU_API CUresult cuMemcpyDtoH_v2(void* dst, CUdeviceptr src, size_t bytes) {
  return driver_copy(nullptr, api::number(dst), src, bytes, cudaMemcpyDeviceToHost, true);
}

SOFTGPU_API CUresult cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t bytes, CUstream s) {
  return driver_copy(s, api::number(dst), src, bytes, cudaMemcpyDeviceToHost, false);
}

SOFTGPU_API CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return driver_copy(nullptr, dst, src, bytes, cudaMemcpyDeviceToDevice, true);
}

SOFTGPU_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                          CUstream s) {
  return driver_copy(s, dst, src, bytes, cudaMemcpyDeviceToDevice, false);
}

SOFTGPU_API CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext,
                                  size_t bytes) {
  return driver_copy(nullptr, dst, src, bytes, cudaMemcpyDefault, true);
}

SOFTGPU_API CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext, CUdeviceptr src, CUcontext,
                                       size_t bytes, CUstream s) {
  return driver_copy(s, dst, src, bytes, cudaMemcpyDefault, false);
}

SOFTGPU_API CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* c) {
  return driver_copy_2d(c, nullptr, true);
}

SOFTGPU_API CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* c) {
  return driver_copy_2d(c, nullptr, true);
}

SOFTGPU_API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* c, CUstream s) {
  return driver_copy_2d(c, s, false);
}

SOFTGPU_API CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n) {
  return driver_fill(nullptr, dst, 0, value, 1, n, 1);
}

SOFTGPU_API CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t n) {
  return driver_fill(nullptr, dst, 0, value, 2, n, 1);
}

SOFTGPU_API CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned value, size_t n) {
  return driver_fill(nullptr, dst, 0, value, 4, n, 1);
}

SOFTGPU_API CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream s) {
  return driver_fill(s, dst, 0, value, 1, n, 1);
}

SOFTGPU_API CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n, CUstream s) {
  return driver_fill(s, dst, 0, value, 2, n, 1);
}

SOFTGPU_API CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t n, CUstream s) {
  return driver_fill(s, dst, 0, value, 4, n, 1);
}

SOFTGPU_API CUresult cuMemsetD2D8_v2(CUdeviceptr dst, size_t pitch, unsigned char value,
                                     size_t width, size_t height) {
  return driver_fill(nullptr, dst, pitch, value, 1, width, height);
}

SOFTGPU_API CUresult cuMemsetD2D32_v2(CUdeviceptr dst, size_t pitch, unsigned value, size_t width,
                                      size_t height) {
  return driver_fill(nullptr, dst, pitch, value, 4, width, height);
}

SOFTGPU_API CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value,
                                       size_t width, size_t height, CUstream s) {
  return driver_fill(s, dst, pitch, value, 1, width, height);
}

SOFTGPU_API CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned value, size_t width,
                                        size_t height, CUstream s) {
  return driver_fill(s, dst, pitch, value, 4, width, height);
}

SOFTGPU_API CUresult cuMemsetD2D16_v2(CUdeviceptr dst, size_t pitch, unsigned short value,
                                      size_t width, size_t height) {
  return driver_fill(nullptr, dst, pitch, value, 2, width, height);
}

SOFTGPU_API CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value,
                                        size_t width, size_t height, CUstream s) {
  return driver_fill(s, dst, pitch, value, 2, width, height);
}
