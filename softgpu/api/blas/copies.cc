// cuBLAS's copies of vectors and matrices between host and device.
#include "api/support.h"

// after it: cuBLAS's header wants the types above
#include <cublas_v2.h>

namespace softgpu::api {
namespace {

// `lines` of `elements` each; steps from line to line are in elements.
struct Lines {
  int lines, elements, element_bytes;
  const void* from;
  int from_step;
  void* to;
  int to_step;
};

cublasStatus_t copy(const Lines& c, cudaStream_t stream) {
  if (c.lines < 0 || c.elements < 0 || c.element_bytes <= 0 || c.from_step < c.elements ||
      c.to_step < c.elements || c.from_step <= 0 || c.to_step <= 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto bytes = static_cast<size_t>(c.element_bytes);
  const auto wide = [bytes](int elements) { return static_cast<size_t>(elements) * bytes; };
  const cudaError_t error =
      cudaMemcpy2DAsync(c.to, wide(c.to_step), c.from, wide(c.from_step), wide(c.elements),
                        static_cast<size_t>(c.lines), cudaMemcpyDefault, stream);
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

cublasStatus_t copy_and_wait(const Lines& c) {
  const cublasStatus_t status = copy(c, nullptr);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const bool done = cudaStreamSynchronize(nullptr) == cudaSuccess;
  return done ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;

SOFTGPU_API cublasStatus_t cublasSetVector(int n, int bytes, const void* x, int incx, void* y,
                                           int incy) {
  return api::copy_and_wait({n, 1, bytes, x, incx, y, incy});
}

SOFTGPU_API cublasStatus_t cublasGetVector(int n, int bytes, const void* x, int incx, void* y,
                                           int incy) {
  return api::copy_and_wait({n, 1, bytes, x, incx, y, incy});
}

SOFTGPU_API cublasStatus_t cublasSetMatrix(int rows, int cols, int bytes, const void* a, int lda,
                                           void* b, int ldb) {
  return api::copy_and_wait({cols, rows, bytes, a, lda, b, ldb});
}

SOFTGPU_API cublasStatus_t cublasGetMatrix(int rows, int cols, int bytes, const void* a, int lda,
                                           void* b, int ldb) {
  return api::copy_and_wait({cols, rows, bytes, a, lda, b, ldb});
}

SOFTGPU_API cublasStatus_t cublasSetVectorAsync(int n, int bytes, const void* x, int incx, void* y,
                                                int incy, cudaStream_t stream) {
  return api::copy({n, 1, bytes, x, incx, y, incy}, stream);
}

SOFTGPU_API cublasStatus_t cublasGetVectorAsync(int n, int bytes, const void* x, int incx, void* y,
                                                int incy, cudaStream_t stream) {
  return api::copy({n, 1, bytes, x, incx, y, incy}, stream);
}

SOFTGPU_API cublasStatus_t cublasSetMatrixAsync(int rows, int cols, int bytes, const void* a,
                                                int lda, void* b, int ldb, cudaStream_t stream) {
  return api::copy({cols, rows, bytes, a, lda, b, ldb}, stream);
}

SOFTGPU_API cublasStatus_t cublasGetMatrixAsync(int rows, int cols, int bytes, const void* a,
                                                int lda, void* b, int ldb, cudaStream_t stream) {
  return api::copy({cols, rows, bytes, a, lda, b, ldb}, stream);
}
