// Matrix products on the host's BLAS, put on streams like any other work.
#ifndef SOFTGPU_API_BLAS_BLAS_H_
#define SOFTGPU_API_BLAS_BLAS_H_

#include "api/blas/cublas_types.h"

#include <cstdint>
#include <functional>
#include <memory>

#include "stream/stream.h"

namespace softgpu::api {

// What a cublasHandle_t (also accepted as a cublasLtHandle_t) points to.
struct BlasHandle {
  int device = 0;
  cudaStream_t stream = nullptr;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
  cublasAtomicsMode_t atomics_mode = CUBLAS_ATOMICS_NOT_ALLOWED;
  int sm_count_target = 0;
};
BlasHandle* blas_handle(const void* handle);  // nullptr if it is none

// A factor: read at the call from the host, or when the stream gets there from the device.
struct Factor {
  double real = 0, imaginary = 0;
  uint64_t device_address = 0;  // 0: the values above hold
  cudaDataType_t type = CUDA_R_32F;
};
Factor make_factor(const void* pointer, cudaDataType_t type, bool on_device);

// N, T and C: those that cuBLAS has.
inline bool known(cublasOperation_t op) {
  return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C;
}

// Of a solve with a triangular matrix A, on the side of B (m x n).
struct Triangle {
  cublasSideMode_t side;
  cublasFillMode_t uplo;
  cublasOperation_t op;
  cublasDiagType_t diag;
  int m, n;
  int order() const { return side == CUBLAS_SIDE_LEFT ? m : n; }
  bool valid(int lda, int ldb) const;
};

// D = alpha op(A) op(B) + beta C for `batch` column-major matrices.
struct Matrix {
  uint64_t address = 0;
  cudaDataType_t type = CUDA_R_32F;
  int64_t ld = 0, stride = 0;  // elements; stride between the matrices of a batch
  bool pointers = false;       // `address` is a device array of matrix addresses
};
struct Gemm {
  cublasOperation_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  Factor alpha, beta;
  Matrix a, b, c, d;
  // Device vectors of 32-bit factors, one per row of the result, in place of alpha and beta.
  uint64_t alphas = 0, betas = 0;
  // Valid once alpha and beta are read.
  bool reads_c() const { return betas || beta.real != 0 || beta.imaginary != 0; }
  bool in_place() const { return c.address == d.address && c.ld == d.ld; }
};

// What is done to a finished product before it is stored, on the 32-bit values.
struct Epilogue {
  bool none = true;
  std::function<void(float* product, int64_t ld, int64_t index)> apply;
  // Checks the memory that `apply` touches.
  std::function<bool()> reachable = [] { return true; };
};

cublasStatus_t check_gemm(const Gemm& gemm);
Fault run_gemm(const Gemm& gemm, const Epilogue& epilogue);

// Puts work on the stream that the handle uses now.
cublasStatus_t enqueue_blas(const BlasHandle& handle, cudaStream_t stream,
                            std::function<Fault()> run);

// The same for any library on the host's BLAS, by name and the device of its handle.
cublasStatus_t enqueue_host_blas(const char* library, int device, cudaStream_t stream,
                                 std::function<Fault()> run);

size_t element_bytes(cudaDataType_t type);
bool is_half(cudaDataType_t type);
// To and from 32-bit floats, `count` elements; rounds to nearest even, 8-bit integers with
// clamping.
void load_floats(cudaDataType_t type, const void* from, int64_t count, float* to);
void store_floats(cudaDataType_t type, const float* from, int64_t count, void* to);

Fault blas_fault(const char* what, uint64_t address);
// Once per process: how many threads the host's BLAS uses.
void prepare_host_blas();

}  // namespace softgpu::api

#endif  // SOFTGPU_API_BLAS_BLAS_H_
