// The many spellings of copy and fill.
#include "client/memory/copy.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

template <class Pointer>
uint64_t address(Pointer* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

CUresult result(cudaError_t error) {
  return static_cast<CUresult>(error);
}

// CUDA_MEMCPY2D names arrays too; those are not supported.
CUresult driver_2d(const CUDA_MEMCPY2D* p, CUstream stream) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  const auto side = [](CUmemorytype type, const void* host, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : uint64_t{device};
  };
  if (p->srcMemoryType == CU_MEMORYTYPE_ARRAY || p->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return CUDA_ERROR_NOT_SUPPORTED;
  Copy2D job{side(p->dstMemoryType, p->dstHost, p->dstDevice),
             p->dstPitch,
             side(p->srcMemoryType, p->srcHost, p->srcDevice),
             p->srcPitch,
             p->WidthInBytes,
             p->Height};
  if (!job.dst_pitch) job.dst_pitch = job.width;
  if (!job.src_pitch) job.src_pitch = job.width;
  job.dst += p->dstY * job.dst_pitch + p->dstXInBytes;
  job.src += p->srcY * job.src_pitch + p->srcXInBytes;
  return result(copy_2d(job, stream, false));
}

}  // namespace

PYFT_API cudaError_t cudaMemcpy(void* dst, const void* src, size_t count,
                                enum cudaMemcpyKind kind) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy_v3020);
  const Entered entered(Api::cudaMemcpy);
  return done(copy(address(dst), address(src), count, nullptr, true));
}

PYFT_API cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count,
                                     enum cudaMemcpyKind kind, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020);
  const Entered entered(Api::cudaMemcpyAsync);
  return done(copy(address(dst), address(src), count, stream, false));
}

PYFT_API cudaError_t cudaMemcpy2D(void* dst, size_t dpitch, const void* src, size_t spitch,
                                  size_t width, size_t height, enum cudaMemcpyKind kind) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2D_v3020);
  const Entered entered(Api::cudaMemcpy2D);
  return done(copy_2d({address(dst), dpitch, address(src), spitch, width, height}, nullptr, true));
}

PYFT_API cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch,
                                       size_t width, size_t height, enum cudaMemcpyKind kind,
                                       cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy2DAsync_v3020);
  const Entered entered(Api::cudaMemcpy2DAsync);
  return done(copy_2d({address(dst), dpitch, address(src), spitch, width, height}, stream, false));
}

PYFT_API cudaError_t cudaMemcpyPeer(void* dst, int dstDevice, const void* src, int srcDevice,
                                    size_t count) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeer_v4000);
  const Entered entered(Api::cudaMemcpyPeer);
  return done(copy(address(dst), address(src), count, nullptr, true));
}

PYFT_API cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice,
                                         size_t count, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyPeerAsync_v4000);
  const Entered entered(Api::cudaMemcpyPeerAsync);
  return done(copy(address(dst), address(src), count, stream, false));
}

PYFT_API cudaError_t cudaMemset(void* devPtr, int value, size_t count) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemset_v3020);
  const Entered entered(Api::cudaMemset);
  return done(fill(address(devPtr), static_cast<uint8_t>(value), 1, count, nullptr));
}

PYFT_API cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020);
  const Entered entered(Api::cudaMemsetAsync);
  return done(fill(address(devPtr), static_cast<uint8_t>(value), 1, count, stream));
}

PYFT_API cudaError_t cudaMemset2D(void* devPtr, size_t pitch, int value, size_t width,
                                  size_t height) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemset2D_v3020);
  const Entered entered(Api::cudaMemset2D);
  return done(
      fill_2d(address(devPtr), pitch, static_cast<uint8_t>(value), 1, width, height, nullptr));
}

PYFT_API cudaError_t cudaMemset2DAsync(void* devPtr, size_t pitch, int value, size_t width,
                                       size_t height, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMemset2DAsync_v3020);
  const Entered entered(Api::cudaMemset2DAsync);
  return done(
      fill_2d(address(devPtr), pitch, static_cast<uint8_t>(value), 1, width, height, stream));
}

PYFT_API CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemcpy);
  const Entered entered(Api::cuMemcpy);
  return result(copy(dst, src, ByteCount, nullptr, true));
}

PYFT_API CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount,
                                CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync);
  const Entered entered(Api::cuMemcpyAsync);
  return result(copy(dst, src, ByteCount, hStream, false));
}

PYFT_API CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2);
  const Entered entered(Api::cuMemcpyHtoD_v2);
  return result(copy(dstDevice, address(srcHost), ByteCount, nullptr, true));
}

PYFT_API CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoH_v2);
  const Entered entered(Api::cuMemcpyDtoH_v2);
  return result(copy(address(dstHost), srcDevice, ByteCount, nullptr, true));
}

PYFT_API CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoD_v2);
  const Entered entered(Api::cuMemcpyDtoD_v2);
  return result(copy(dstDevice, srcDevice, ByteCount, nullptr, true));
}

PYFT_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                                       CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2);
  const Entered entered(Api::cuMemcpyHtoDAsync_v2);
  return result(copy(dstDevice, address(srcHost), ByteCount, hStream, false));
}

PYFT_API CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                                       CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2);
  const Entered entered(Api::cuMemcpyDtoHAsync_v2);
  return result(copy(address(dstHost), srcDevice, ByteCount, hStream, false));
}

PYFT_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice,
                                       size_t ByteCount, CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2);
  const Entered entered(Api::cuMemcpyDtoDAsync_v2);
  return result(copy(dstDevice, srcDevice, ByteCount, hStream, false));
}

PYFT_API CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2);
  const Entered entered(Api::cuMemcpy2DAsync_v2);
  return driver_2d(pCopy, hStream);
}

PYFT_API CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemsetD8_v2);
  const Entered entered(Api::cuMemsetD8_v2);
  return result(fill(dstDevice, uc, 1, N, nullptr));
}

PYFT_API CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemsetD32_v2);
  const Entered entered(Api::cuMemsetD32_v2);
  return result(fill(dstDevice, ui, 4, N, nullptr));
}

PYFT_API CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N,
                                  CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async);
  const Entered entered(Api::cuMemsetD8Async);
  return result(fill(dstDevice, uc, 1, N, hStream));
}

PYFT_API CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N,
                                   CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemsetD16Async);
  const Entered entered(Api::cuMemsetD16Async);
  return result(fill(dstDevice, us, 2, N, hStream));
}

PYFT_API CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N,
                                   CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async);
  const Entered entered(Api::cuMemsetD32Async);
  return result(fill(dstDevice, ui, 4, N, hStream));
}

PYFT_API CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                                    size_t Width, size_t Height, CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D8Async);
  const Entered entered(Api::cuMemsetD2D8Async);
  return result(fill_2d(dstDevice, dstPitch, uc, 1, Width, Height, hStream));
}

PYFT_API CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                     size_t Width, size_t Height, CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D16Async);
  const Entered entered(Api::cuMemsetD2D16Async);
  return result(fill_2d(dstDevice, dstPitch, us, 2, Width, Height, hStream));
}

PYFT_API CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                     size_t Width, size_t Height, CUstream hStream) {
  const profiling::DriverCall traced(CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32Async);
  const Entered entered(Api::cuMemsetD2D32Async);
  return result(fill_2d(dstDevice, dstPitch, ui, 4, Width, Height, hStream));
}
