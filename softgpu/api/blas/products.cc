// The many spellings of a matrix product.
#include "api/blas/blas.h"
#include "api/support.h"

namespace softgpu::api {
namespace {

using op = cublasOperation_t;

template <class T>
constexpr cudaDataType_t kTypeOf = CUDA_R_32F;
template <>
constexpr cudaDataType_t kTypeOf<__half> = CUDA_R_16F;
template <>
constexpr cudaDataType_t kTypeOf<double> = CUDA_R_64F;
template <>
constexpr cudaDataType_t kTypeOf<cuComplex> = CUDA_C_32F;
template <>
constexpr cudaDataType_t kTypeOf<cuDoubleComplex> = CUDA_C_64F;

struct Dimensions {
  cublasOperation_t transa, transb;
  int64_t m, n, k, batch = 1;
};

// The result is written over C.
cublasStatus_t gemm(cublasHandle_t handle, const Dimensions& size, const void* alpha,
                    cudaDataType_t scale, const Matrix& a, const Matrix& b, const void* beta,
                    const Matrix& c) {
  BlasHandle* h = blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!alpha || !beta) return CUBLAS_STATUS_INVALID_VALUE;
  const bool on_device = h->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
  Gemm g{size.transa,
         size.transb,
         size.m,
         size.n,
         size.k,
         size.batch,
         make_factor(alpha, scale, on_device),
         make_factor(beta, scale, on_device),
         a,
         b,
         c,
         c};
  if (const cublasStatus_t bad = check_gemm(g); bad != CUBLAS_STATUS_SUCCESS) return bad;
  return enqueue_blas(*h, h->stream, [g] { return run_gemm(g, {}); });
}

template <class T>
cublasStatus_t typed_gemm(cublasHandle_t handle, const Dimensions& size, const T* alpha, const T* a,
                          int lda, long long stride_a, const T* b, int ldb, long long stride_b,
                          const T* beta, T* c, int ldc, long long stride_c) {
  constexpr cudaDataType_t type = kTypeOf<T>;
  return gemm(handle, size, alpha, type, {number(a), type, lda, stride_a},
              {number(b), type, ldb, stride_b}, beta, {number(c), type, ldc, stride_c});
}

template <class T>
cublasStatus_t array_gemm(cublasHandle_t handle, const Dimensions& size, const T* alpha,
                          const T* const a[], int lda, const T* const b[], int ldb, const T* beta,
                          T* const c[], int ldc) {
  constexpr cudaDataType_t type = kTypeOf<T>;
  return gemm(handle, size, alpha, type, {number(a), type, lda, 0, true},
              {number(b), type, ldb, 0, true}, beta, {number(c), type, ldc, 0, true});
}

// The type of alpha and beta that goes with a compute type.
cudaDataType_t scale_type(cublasComputeType_t compute, cudaDataType_t result) {
  const bool complex = result == CUDA_C_32F || result == CUDA_C_64F;
  if (compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC) {
    return complex ? CUDA_C_64F : CUDA_R_64F;
  }
  if (compute == CUBLAS_COMPUTE_32I || compute == CUBLAS_COMPUTE_32I_PEDANTIC) return CUDA_R_32I;
  if (compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC) return CUDA_R_16F;
  return complex ? CUDA_C_32F : CUDA_R_32F;
}

// Groups of products, each with its own shape and factors; all addresses in one device array.
struct Groups {
  const op *transa, *transb;
  const int *m, *n, *k, *lda, *ldb, *ldc, *sizes;
  int count;
};

cublasStatus_t grouped_gemm(cublasHandle_t handle, const Groups& groups, const void* alphas,
                            cudaDataType_t scale, const void* a, cudaDataType_t at, const void* b,
                            cudaDataType_t bt, const void* betas, const void* c,
                            cudaDataType_t ct) {
  const BlasHandle* h = blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (groups.count < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (h->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto factor = [scale](const void* array, int i) {
    return static_cast<const uint8_t*>(array) + static_cast<size_t>(i) * element_bytes(scale);
  };
  uint64_t first = 0;
  for (int i = 0; i < groups.count; ++i) {
    const Dimensions size{groups.transa[i], groups.transb[i], groups.m[i],
                          groups.n[i],      groups.k[i],      groups.sizes[i]};
    const auto slots = [&](const void* array, cudaDataType_t type, int ld) {
      return Matrix{number(array) + first * sizeof(void*), type, ld, 0, true};
    };
    const cublasStatus_t bad =
        gemm(handle, size, factor(alphas, i), scale, slots(a, at, groups.lda[i]),
             slots(b, bt, groups.ldb[i]), factor(betas, i), slots(c, ct, groups.ldc[i]));
    if (bad != CUBLAS_STATUS_SUCCESS) return bad;
    first += static_cast<uint64_t>(groups.sizes[i]);
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;
using op = cublasOperation_t;

SOFTGPU_API cublasStatus_t cublasSgemm_v2(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                          const float* alpha, const float* a, int lda,
                                          const float* b, int ldb, const float* beta, float* c,
                                          int ldc) {
  return api::typed_gemm(h, {ta, tb, m, n, k}, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0);
}

SOFTGPU_API cublasStatus_t cublasDgemm_v2(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                          const double* alpha, const double* a, int lda,
                                          const double* b, int ldb, const double* beta, double* c,
                                          int ldc) {
  return api::typed_gemm(h, {ta, tb, m, n, k}, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0);
}

SOFTGPU_API cublasStatus_t cublasCgemm_v2(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                          const cuComplex* alpha, const cuComplex* a, int lda,
                                          const cuComplex* b, int ldb, const cuComplex* beta,
                                          cuComplex* c, int ldc) {
  return api::typed_gemm(h, {ta, tb, m, n, k}, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0);
}

SOFTGPU_API cublasStatus_t cublasZgemm_v2(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                          const cuDoubleComplex* alpha, const cuDoubleComplex* a,
                                          int lda, const cuDoubleComplex* b, int ldb,
                                          const cuDoubleComplex* beta, cuDoubleComplex* c,
                                          int ldc) {
  return api::typed_gemm(h, {ta, tb, m, n, k}, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0);
}

SOFTGPU_API cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t h, op ta, op tb, int m, int n,
                                                     int k, const float* alpha, const float* a,
                                                     int lda, long long sa, const float* b, int ldb,
                                                     long long sb, const float* beta, float* c,
                                                     int ldc, long long sc, int batch) {
  return api::typed_gemm(h, {ta, tb, m, n, k, batch}, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc,
                         sc);
}

SOFTGPU_API cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t h, op ta, op tb, int m, int n,
                                                     int k, const double* alpha, const double* a,
                                                     int lda, long long sa, const double* b,
                                                     int ldb, long long sb, const double* beta,
                                                     double* c, int ldc, long long sc, int batch) {
  return api::typed_gemm(h, {ta, tb, m, n, k, batch}, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc,
                         sc);
}

SOFTGPU_API cublasStatus_t cublasCgemmStridedBatched(cublasHandle_t h, op ta, op tb, int m, int n,
                                                     int k, const cuComplex* alpha,
                                                     const cuComplex* a, int lda, long long sa,
                                                     const cuComplex* b, int ldb, long long sb,
                                                     const cuComplex* beta, cuComplex* c, int ldc,
                                                     long long sc, int batch) {
  return api::typed_gemm(h, {ta, tb, m, n, k, batch}, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc,
                         sc);
}

SOFTGPU_API cublasStatus_t cublasZgemmStridedBatched(
    cublasHandle_t h, op ta, op tb, int m, int n, int k, const cuDoubleComplex* alpha,
    const cuDoubleComplex* a, int lda, long long sa, const cuDoubleComplex* b, int ldb,
    long long sb, const cuDoubleComplex* beta, cuDoubleComplex* c, int ldc, long long sc,
    int batch) {
  return api::typed_gemm(h, {ta, tb, m, n, k, batch}, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc,
                         sc);
}

SOFTGPU_API cublasStatus_t cublasSgemmBatched(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                              const float* alpha, const float* const a[], int lda,
                                              const float* const b[], int ldb, const float* beta,
                                              float* const c[], int ldc, int batch) {
  return api::array_gemm(h, {ta, tb, m, n, k, batch}, alpha, a, lda, b, ldb, beta, c, ldc);
}

SOFTGPU_API cublasStatus_t cublasDgemmBatched(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                              const double* alpha, const double* const a[], int lda,
                                              const double* const b[], int ldb, const double* beta,
                                              double* const c[], int ldc, int batch) {
  return api::array_gemm(h, {ta, tb, m, n, k, batch}, alpha, a, lda, b, ldb, beta, c, ldc);
}

SOFTGPU_API cublasStatus_t cublasCgemmBatched(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                              const cuComplex* alpha, const cuComplex* const a[],
                                              int lda, const cuComplex* const b[], int ldb,
                                              const cuComplex* beta, cuComplex* const c[], int ldc,
                                              int batch) {
  return api::array_gemm(h, {ta, tb, m, n, k, batch}, alpha, a, lda, b, ldb, beta, c, ldc);
}

SOFTGPU_API cublasStatus_t cublasZgemmBatched(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                              const cuDoubleComplex* alpha,
                                              const cuDoubleComplex* const a[], int lda,
                                              const cuDoubleComplex* const b[], int ldb,
                                              const cuDoubleComplex* beta,
                                              cuDoubleComplex* const c[], int ldc, int batch) {
  return api::array_gemm(h, {ta, tb, m, n, k, batch}, alpha, a, lda, b, ldb, beta, c, ldc);
}

SOFTGPU_API cublasStatus_t cublasSgemmEx(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                         const float* alpha, const void* a, cudaDataType at,
                                         int lda, const void* b, cudaDataType bt, int ldb,
                                         const float* beta, void* c, cudaDataType ct, int ldc) {
  return api::gemm(h, {ta, tb, m, n, k}, alpha, CUDA_R_32F, {api::number(a), at, lda},
                   {api::number(b), bt, ldb}, beta, {api::number(c), ct, ldc});
}

SOFTGPU_API cublasStatus_t cublasGemmEx(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                        const void* alpha, const void* a, cudaDataType at, int lda,
                                        const void* b, cudaDataType bt, int ldb, const void* beta,
                                        void* c, cudaDataType ct, int ldc,
                                        cublasComputeType_t compute, cublasGemmAlgo_t) {
  return api::gemm(h, {ta, tb, m, n, k}, alpha, api::scale_type(compute, ct),
                   {api::number(a), at, lda}, {api::number(b), bt, ldb}, beta,
                   {api::number(c), ct, ldc});
}

SOFTGPU_API cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t h, op ta, op tb, int m, int n, int k, const void* alpha, const void* a,
    cudaDataType at, int lda, long long sa, const void* b, cudaDataType bt, int ldb, long long sb,
    const void* beta, void* c, cudaDataType ct, int ldc, long long sc, int batch,
    cublasComputeType_t compute, cublasGemmAlgo_t) {
  return api::gemm(h, {ta, tb, m, n, k, batch}, alpha, api::scale_type(compute, ct),
                   {api::number(a), at, lda, sa}, {api::number(b), bt, ldb, sb}, beta,
                   {api::number(c), ct, ldc, sc});
}

SOFTGPU_API cublasStatus_t cublasGemmBatchedEx(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                               const void* alpha, const void* const a[],
                                               cudaDataType at, int lda, const void* const b[],
                                               cudaDataType bt, int ldb, const void* beta,
                                               void* const c[], cudaDataType ct, int ldc, int batch,
                                               cublasComputeType_t compute, cublasGemmAlgo_t) {
  return api::gemm(h, {ta, tb, m, n, k, batch}, alpha, api::scale_type(compute, ct),
                   {api::number(a), at, lda, 0, true}, {api::number(b), bt, ldb, 0, true}, beta,
                   {api::number(c), ct, ldc, 0, true});
}

SOFTGPU_API cublasStatus_t cublasHgemm(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                       const __half* alpha, const __half* a, int lda,
                                       const __half* b, int ldb, const __half* beta, __half* c,
                                       int ldc) {
  return api::typed_gemm(h, {ta, tb, m, n, k}, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0);
}

SOFTGPU_API cublasStatus_t cublasHgemmStridedBatched(cublasHandle_t h, op ta, op tb, int m, int n,
                                                     int k, const __half* alpha, const __half* a,
                                                     int lda, long long sa, const __half* b,
                                                     int ldb, long long sb, const __half* beta,
                                                     __half* c, int ldc, long long sc, int batch) {
  return api::typed_gemm(h, {ta, tb, m, n, k, batch}, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc,
                         sc);
}

SOFTGPU_API cublasStatus_t cublasHgemmBatched(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                              const __half* alpha, const __half* const a[], int lda,
                                              const __half* const b[], int ldb, const __half* beta,
                                              __half* const c[], int ldc, int batch) {
  return api::array_gemm(h, {ta, tb, m, n, k, batch}, alpha, a, lda, b, ldb, beta, c, ldc);
}

// Fewer multiplications is what the 3m forms promise, not other values.
SOFTGPU_API cublasStatus_t cublasCgemm3m(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                         const cuComplex* alpha, const cuComplex* a, int lda,
                                         const cuComplex* b, int ldb, const cuComplex* beta,
                                         cuComplex* c, int ldc) {
  return cublasCgemm_v2(h, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

SOFTGPU_API cublasStatus_t cublasZgemm3m(cublasHandle_t h, op ta, op tb, int m, int n, int k,
                                         const cuDoubleComplex* alpha, const cuDoubleComplex* a,
                                         int lda, const cuDoubleComplex* b, int ldb,
                                         const cuDoubleComplex* beta, cuDoubleComplex* c, int ldc) {
  return cublasZgemm_v2(h, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

SOFTGPU_API cublasStatus_t cublasCgemm3mStridedBatched(cublasHandle_t h, op ta, op tb, int m, int n,
                                                       int k, const cuComplex* alpha,
                                                       const cuComplex* a, int lda, long long sa,
                                                       const cuComplex* b, int ldb, long long sb,
                                                       const cuComplex* beta, cuComplex* c, int ldc,
                                                       long long sc, int batch) {
  return cublasCgemmStridedBatched(h, ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc,
                                   sc, batch);
}

SOFTGPU_API cublasStatus_t cublasSgemmGroupedBatched(cublasHandle_t h, const op ta[], const op tb[],
                                                     const int m[], const int n[], const int k[],
                                                     const float alpha[], const float* const a[],
                                                     const int lda[], const float* const b[],
                                                     const int ldb[], const float beta[],
                                                     float* const c[], const int ldc[], int groups,
                                                     const int sizes[]) {
  return api::grouped_gemm(h, {ta, tb, m, n, k, lda, ldb, ldc, sizes, groups}, alpha, CUDA_R_32F, a,
                           CUDA_R_32F, b, CUDA_R_32F, beta, c, CUDA_R_32F);
}

SOFTGPU_API cublasStatus_t cublasDgemmGroupedBatched(cublasHandle_t h, const op ta[], const op tb[],
                                                     const int m[], const int n[], const int k[],
                                                     const double alpha[], const double* const a[],
                                                     const int lda[], const double* const b[],
                                                     const int ldb[], const double beta[],
                                                     double* const c[], const int ldc[], int groups,
                                                     const int sizes[]) {
  return api::grouped_gemm(h, {ta, tb, m, n, k, lda, ldb, ldc, sizes, groups}, alpha, CUDA_R_64F, a,
                           CUDA_R_64F, b, CUDA_R_64F, beta, c, CUDA_R_64F);
}

SOFTGPU_API cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t h, const op ta[], const op tb[], const int m[], const int n[], const int k[],
    const void* alpha, const void* const a[], cudaDataType_t at, const int lda[],
    const void* const b[], cudaDataType_t bt, const int ldb[], const void* beta, void* const c[],
    cudaDataType_t ct, const int ldc[], int groups, const int sizes[],
    cublasComputeType_t compute) {
  return api::grouped_gemm(h, {ta, tb, m, n, k, lda, ldb, ldc, sizes, groups}, alpha,
                           api::scale_type(compute, ct), a, at, b, bt, beta, c, ct);
}
