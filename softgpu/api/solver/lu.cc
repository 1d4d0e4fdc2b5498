// cuSOLVER's LU and LDL factorisations and their solves.
#include <numeric>

#include "api/solver/solver.h"

namespace softgpu::api {
namespace {

template <class T>
SolverStatus getrf(void* handle, int m, int n, T* a, int lda, int* pivots, int* info) {
  if (m < 0 || n < 0 || !is_distance(lda, m)) return kSolverInvalidValue;
  const int steps = pivots ? std::min(m, n) : 0;
  return solve_on_stream(
      handle,
      {writes("matrix A", a, m, n, lda), writes("pivots", pivots, steps), writes("info", info, 1)},
      [=] {
        *info = pivots ? SOFTGPU_SPELLED(T, getrf_work, m, n, a, lda, pivots)
                       : factor_without_pivots(m, n, a, lda);
      });
}

template <class T>
SolverStatus getrs(void* handle, cublasOperation_t op, int n, int nrhs, const T* a, int lda,
                   const int* pivots, T* b, int ldb, int* info) {
  if (n < 0 || nrhs < 0) return kSolverInvalidValue;
  if (!is_distance(lda, n) || !is_distance(ldb, n)) return kSolverInvalidValue;
  return solve_on_stream(handle,
                         {reads("matrix A", a, n, n, lda), reads("pivots", pivots, pivots ? n : 0),
                          writes("matrix B", b, n, nrhs, ldb), writes("info", info, 1)},
                         [=] {
                           std::vector<int> in_order(static_cast<size_t>(pivots ? 0 : n));
                           std::iota(in_order.begin(), in_order.end(), 1);
                           const int* own = pivots ? pivots : in_order.data();
                           *info = SOFTGPU_SPELLED(T, getrs_work, letter<T>(op), n, nrhs, a, lda,
                                                   own, b, ldb);
                         });
}

// Symmetric, of complex elements as well: not Hermitian.
template <class T>
SolverStatus sytrf(void* handle, cublasFillMode_t uplo, int n, T* a, int lda, int* pivots,
                   int* info) {
  if (n < 0 || !is_distance(lda, n)) return kSolverInvalidValue;
  if (!pivots && n) return kSolverNotSupported;  // without exchanges
  return solve_on_stream(
      handle,
      {writes("matrix A", a, n, n, lda), writes("pivots", pivots, n), writes("info", info, 1)},
      [=] {
        *info = with_scratch<T>([=](T* work, int room) {
          return SOFTGPU_SPELLED(T, sytrf_work, letter(uplo), n, a, lda, pivots, work, room);
        });
      });
}

template <class T>
SolverStatus sytrs(void* handle, cublasFillMode_t uplo, int64_t n, int64_t nrhs, const T* a,
                   int64_t lda, const int64_t* pivots, T* b, int64_t ldb, int* info) {
  if (!is_size(n) || !is_size(nrhs)) return kSolverInvalidValue;
  if (!is_distance(lda, n) || !is_distance(ldb, n)) return kSolverInvalidValue;
  if (!pivots && n) return kSolverNotSupported;
  return solve_on_stream(handle,
                         {reads("matrix A", a, n, n, lda), reads("pivots", pivots, n),
                          writes("matrix B", b, n, nrhs, ldb), writes("info", info, 1)},
                         [=] {
                           std::vector<int> own(static_cast<size_t>(n));
                           for (int64_t i = 0; i < n; ++i)
                             own[static_cast<size_t>(i)] = static_cast<int>(pivots[i]);
                           *info = SOFTGPU_SPELLED(T, sytrs_work, letter(uplo), static_cast<int>(n),
                                                   static_cast<int>(nrhs), a, static_cast<int>(lda),
                                                   own.data(), b, static_cast<int>(ldb));
                         });
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;
using fill = cublasFillMode_t;
using op = cublasOperation_t;

SOFTGPU_API SolverStatus cusolverDnSgetrf_bufferSize(void* h, int m, int n, float*, int,
                                                     int* room) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnDgetrf_bufferSize(void* h, int m, int n, double*, int,
                                                     int* room) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnCgetrf_bufferSize(void* h, int m, int n, Single*, int,
                                                     int* room) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnZgetrf_bufferSize(void* h, int m, int n, Double*, int,
                                                     int* room) {
  return api::scratch(h, room, m, n);
}

SOFTGPU_API SolverStatus cusolverDnSgetrf(void* h, int m, int n, float* a, int lda, float*,
                                          int* pivots, int* info) {
  return api::getrf(h, m, n, a, lda, pivots, info);
}
SOFTGPU_API SolverStatus cusolverDnDgetrf(void* h, int m, int n, double* a, int lda, double*,
                                          int* pivots, int* info) {
  return api::getrf(h, m, n, a, lda, pivots, info);
}
SOFTGPU_API SolverStatus cusolverDnCgetrf(void* h, int m, int n, Single* a, int lda, Single*,
                                          int* pivots, int* info) {
  return api::getrf(h, m, n, a, lda, pivots, info);
}
SOFTGPU_API SolverStatus cusolverDnZgetrf(void* h, int m, int n, Double* a, int lda, Double*,
                                          int* pivots, int* info) {
  return api::getrf(h, m, n, a, lda, pivots, info);
}

SOFTGPU_API SolverStatus cusolverDnSgetrs(void* h, op trans, int n, int nrhs, const float* a,
                                          int lda, const int* pivots, float* b, int ldb,
                                          int* info) {
  return api::getrs(h, trans, n, nrhs, a, lda, pivots, b, ldb, info);
}
SOFTGPU_API SolverStatus cusolverDnDgetrs(void* h, op trans, int n, int nrhs, const double* a,
                                          int lda, const int* pivots, double* b, int ldb,
                                          int* info) {
  return api::getrs(h, trans, n, nrhs, a, lda, pivots, b, ldb, info);
}
SOFTGPU_API SolverStatus cusolverDnCgetrs(void* h, op trans, int n, int nrhs, const Single* a,
                                          int lda, const int* pivots, Single* b, int ldb,
                                          int* info) {
  return api::getrs(h, trans, n, nrhs, a, lda, pivots, b, ldb, info);
}
SOFTGPU_API SolverStatus cusolverDnZgetrs(void* h, op trans, int n, int nrhs, const Double* a,
                                          int lda, const int* pivots, Double* b, int ldb,
                                          int* info) {
  return api::getrs(h, trans, n, nrhs, a, lda, pivots, b, ldb, info);
}

SOFTGPU_API SolverStatus cusolverDnSsytrf_bufferSize(void* h, int n, float*, int, int* room) {
  return api::scratch(h, room, n);
}
SOFTGPU_API SolverStatus cusolverDnDsytrf_bufferSize(void* h, int n, double*, int, int* room) {
  return api::scratch(h, room, n);
}
SOFTGPU_API SolverStatus cusolverDnCsytrf_bufferSize(void* h, int n, Single*, int, int* room) {
  return api::scratch(h, room, n);
}
SOFTGPU_API SolverStatus cusolverDnZsytrf_bufferSize(void* h, int n, Double*, int, int* room) {
  return api::scratch(h, room, n);
}

SOFTGPU_API SolverStatus cusolverDnSsytrf(void* h, fill uplo, int n, float* a, int lda, int* pivots,
                                          float*, int, int* info) {
  return api::sytrf(h, uplo, n, a, lda, pivots, info);
}
SOFTGPU_API SolverStatus cusolverDnDsytrf(void* h, fill uplo, int n, double* a, int lda,
                                          int* pivots, double*, int, int* info) {
  return api::sytrf(h, uplo, n, a, lda, pivots, info);
}
SOFTGPU_API SolverStatus cusolverDnCsytrf(void* h, fill uplo, int n, Single* a, int lda,
                                          int* pivots, Single*, int, int* info) {
  return api::sytrf(h, uplo, n, a, lda, pivots, info);
}
SOFTGPU_API SolverStatus cusolverDnZsytrf(void* h, fill uplo, int n, Double* a, int lda,
                                          int* pivots, Double*, int, int* info) {
  return api::sytrf(h, uplo, n, a, lda, pivots, info);
}

SOFTGPU_API SolverStatus cusolverDnXsytrs_bufferSize(void* h, fill, int64_t n, int64_t nrhs,
                                                     cudaDataType, const void*, int64_t,
                                                     const int64_t*, cudaDataType, void*, int64_t,
                                                     size_t* device, size_t* host) {
  return api::scratch(h, device, host, n, nrhs);
}
SOFTGPU_API SolverStatus cusolverDnXsytrs(void* h, fill uplo, int64_t n, int64_t nrhs,
                                          cudaDataType type, const void* a, int64_t lda,
                                          const int64_t* pivots, cudaDataType type_b, void* b,
                                          int64_t ldb, void*, size_t, void*, size_t, int* info) {
  if (type != type_b) return api::kSolverNotSupported;
  return api::by_type(type, [=]<class T>(T*) {
    return api::sytrs(h, uplo, n, nrhs, static_cast<const T*>(a), lda, pivots, static_cast<T*>(b),
                      ldb, info);
  });
}
