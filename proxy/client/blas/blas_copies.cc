// cuBLAS's copies of vectors and matrices between host and device: plain copies in two dimensions.
#include "client/blas/blas.h"
#include "client/memory/copy.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

uint64_t address(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

// `lines` of `elements` each; leading dimensions count elements.
struct Lines {
  int lines, elements, element_bytes;
  const void* from;
  int from_step;
  void* to;
  int to_step;
};

cublasStatus_t copy_lines(const Lines& c, cudaStream_t stream, bool blocking) {
  if (c.lines < 0 || c.elements < 0 || c.element_bytes <= 0 || c.from_step <= 0 || c.to_step <= 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (c.lines == 0 || c.elements == 0) return CUBLAS_STATUS_SUCCESS;
  const auto bytes = static_cast<uint64_t>(c.element_bytes);
  const uint64_t width = static_cast<uint64_t>(c.elements) * bytes;
  const uint64_t to_pitch = static_cast<uint64_t>(c.to_step) * bytes;
  const uint64_t from_pitch = static_cast<uint64_t>(c.from_step) * bytes;
  const auto lines = static_cast<uint64_t>(c.lines);
  const bool dense = width == to_pitch && width == from_pitch;
  const cudaError_t error =
      dense ? copy(address(c.to), address(c.from), width * lines, stream, blocking)
            : copy_2d({address(c.to), to_pitch, address(c.from), from_pitch, width, lines}, stream,
                      blocking);
  return error == cudaErrorInvalidValue ? CUBLAS_STATUS_MAPPING_ERROR : blas_status(error);
}

cublasStatus_t copy_vector(int n, int element_bytes, const void* from, int from_step, void* to,
                           int to_step, cudaStream_t stream, bool blocking) {
  return copy_lines({n, 1, element_bytes, from, from_step, to, to_step}, stream, blocking);
}

// Column by column.
cublasStatus_t copy_matrix(int rows, int cols, int element_bytes, const void* from, int from_step,
                           void* to, int to_step, cudaStream_t stream, bool blocking) {
  if (rows > from_step || rows > to_step) return CUBLAS_STATUS_INVALID_VALUE;
  return copy_lines({cols, rows, element_bytes, from, from_step, to, to_step}, stream, blocking);
}

}  // namespace

PYFT_API cublasStatus_t cublasSetVector(int n, int elemSize, const void* x, int incx,
                                        void* devicePtr, int incy) {
  const Entered entered(Api::cublasSetVector);
  return copy_vector(n, elemSize, x, incx, devicePtr, incy, nullptr, true);
}

PYFT_API cublasStatus_t cublasGetVector(int n, int elemSize, const void* x, int incx, void* y,
                                        int incy) {
  const Entered entered(Api::cublasGetVector);
  return copy_vector(n, elemSize, x, incx, y, incy, nullptr, true);
}

PYFT_API cublasStatus_t cublasSetMatrix(int rows, int cols, int elemSize, const void* A, int lda,
                                        void* B, int ldb) {
  const Entered entered(Api::cublasSetMatrix);
  return copy_matrix(rows, cols, elemSize, A, lda, B, ldb, nullptr, true);
}

PYFT_API cublasStatus_t cublasGetMatrix(int rows, int cols, int elemSize, const void* A, int lda,
                                        void* B, int ldb) {
  const Entered entered(Api::cublasGetMatrix);
  return copy_matrix(rows, cols, elemSize, A, lda, B, ldb, nullptr, true);
}

PYFT_API cublasStatus_t cublasSetVectorAsync(int n, int elemSize, const void* hostPtr, int incx,
                                             void* devicePtr, int incy, cudaStream_t stream) {
  const Entered entered(Api::cublasSetVectorAsync);
  return copy_vector(n, elemSize, hostPtr, incx, devicePtr, incy, stream, false);
}

PYFT_API cublasStatus_t cublasGetVectorAsync(int n, int elemSize, const void* devicePtr, int incx,
                                             void* hostPtr, int incy, cudaStream_t stream) {
  const Entered entered(Api::cublasGetVectorAsync);
  return copy_vector(n, elemSize, devicePtr, incx, hostPtr, incy, stream, false);
}

PYFT_API cublasStatus_t cublasSetMatrixAsync(int rows, int cols, int elemSize, const void* A,
                                             int lda, void* B, int ldb, cudaStream_t stream) {
  const Entered entered(Api::cublasSetMatrixAsync);
  return copy_matrix(rows, cols, elemSize, A, lda, B, ldb, stream, false);
}

PYFT_API cublasStatus_t cublasGetMatrixAsync(int rows, int cols, int elemSize, const void* A,
                                             int lda, void* B, int ldb, cudaStream_t stream) {
  const Entered entered(Api::cublasGetMatrixAsync);
  return copy_matrix(rows, cols, elemSize, A, lda, B, ldb, stream, false);
}
