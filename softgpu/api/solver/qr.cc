// cuSOLVER's QR factorisations and products with their orthogonal factor.
#include "api/solver/solver.h"

namespace softgpu::api {
namespace {

template <class T>
SolverStatus geqrf(void* handle, int64_t m, int64_t n, T* a, int64_t lda, T* tau, int* info) {
  if (!is_size(m) || !is_size(n) || !is_distance(lda, m)) return kSolverInvalidValue;
  return solve_on_stream(handle,
                         {writes("matrix A", a, m, n, lda), writes("tau", tau, std::min(m, n)),
                          writes("info", info, 1)},
                         [=] {
                           *info = with_scratch<T>([=](T* work, int room) {
                             return SOFTGPU_SPELLED(T, geqrf_work, static_cast<int>(m),
                                                    static_cast<int>(n), a, static_cast<int>(lda),
                                                    tau, work, room);
                           });
                         });
}

// The first n columns of the orthogonal factor, in the place of the k reflectors.
template <class T>
SolverStatus orgqr(void* handle, int m, int n, int k, T* a, int lda, const T* tau, int* info) {
  if (k < 0 || n < k || m < n || !is_distance(lda, m)) return kSolverInvalidValue;
  return solve_on_stream(
      handle, {writes("matrix A", a, m, n, lda), reads("tau", tau, k), writes("info", info, 1)},
      [=] {
        *info = with_scratch<T>([=](T* work, int room) {
          return SOFTGPU_SPELLED_MIXED(T, orgqr_work, ungqr_work, m, n, k, a, lda, tau, work, room);
        });
      });
}

template <class T>
SolverStatus ormqr(void* handle, cublasSideMode_t side, cublasOperation_t op, int m, int n, int k,
                   const T* a, int lda, const T* tau, T* c, int ldc, int* info) {
  const bool left = side == CUBLAS_SIDE_LEFT;
  const int rows = left ? m : n;
  if (m < 0 || n < 0 || k < 0 || k > rows) return kSolverInvalidValue;
  if (!is_distance(lda, rows) || !is_distance(ldc, m)) return kSolverInvalidValue;
  return solve_on_stream(handle,
                         {reads("matrix A", a, rows, k, lda), reads("tau", tau, k),
                          writes("matrix C", c, m, n, ldc), writes("info", info, 1)},
                         [=] {
                           *info = with_scratch<T>([=](T* work, int room) {
                             return SOFTGPU_SPELLED_MIXED(T, ormqr_work, unmqr_work,
                                                          left ? 'L' : 'R', letter<T>(op), m, n, k,
                                                          a, lda, tau, c, ldc, work, room);
                           });
                         });
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;
using side = cublasSideMode_t;
using op = cublasOperation_t;

SOFTGPU_API SolverStatus cusolverDnSgeqrf_bufferSize(void* h, int m, int n, float*, int,
                                                     int* room) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnDgeqrf_bufferSize(void* h, int m, int n, double*, int,
                                                     int* room) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnCgeqrf_bufferSize(void* h, int m, int n, Single*, int,
                                                     int* room) {
  return api::scratch(h, room, m, n);
}
SOFTGPU_API SolverStatus cusolverDnZgeqrf_bufferSize(void* h, int m, int n, Double*, int,
                                                     int* room) {
  return api::scratch(h, room, m, n);
}

SOFTGPU_API SolverStatus cusolverDnSgeqrf(void* h, int m, int n, float* a, int lda, float* tau,
                                          float*, int, int* info) {
  return api::geqrf(h, m, n, a, lda, tau, info);
}
SOFTGPU_API SolverStatus cusolverDnDgeqrf(void* h, int m, int n, double* a, int lda, double* tau,
                                          double*, int, int* info) {
  return api::geqrf(h, m, n, a, lda, tau, info);
}
SOFTGPU_API SolverStatus cusolverDnCgeqrf(void* h, int m, int n, Single* a, int lda, Single* tau,
                                          Single*, int, int* info) {
  return api::geqrf(h, m, n, a, lda, tau, info);
}
SOFTGPU_API SolverStatus cusolverDnZgeqrf(void* h, int m, int n, Double* a, int lda, Double* tau,
                                          Double*, int, int* info) {
  return api::geqrf(h, m, n, a, lda, tau, info);
}

SOFTGPU_API SolverStatus cusolverDnXgeqrf_bufferSize(void* h, void*, int64_t m, int64_t n,
                                                     cudaDataType, const void*, int64_t,
                                                     cudaDataType, const void*, cudaDataType,
                                                     size_t* device, size_t* host) {
  return api::scratch(h, device, host, m, n);
}
SOFTGPU_API SolverStatus cusolverDnXgeqrf(void* h, void*, int64_t m, int64_t n, cudaDataType type,
                                          void* a, int64_t lda, cudaDataType type_tau, void* tau,
                                          cudaDataType, void*, size_t, void*, size_t, int* info) {
  if (type != type_tau) return api::kSolverNotSupported;
  return api::by_type(type, [=]<class T>(T*) {
    return api::geqrf(h, m, n, static_cast<T*>(a), lda, static_cast<T*>(tau), info);
  });
}

SOFTGPU_API SolverStatus cusolverDnSorgqr_bufferSize(void* h, int m, int n, int k, const float*,
                                                     int, const float*, int* room) {
  return api::scratch(h, room, m, n, k);
}
SOFTGPU_API SolverStatus cusolverDnDorgqr_bufferSize(void* h, int m, int n, int k, const double*,
                                                     int, const double*, int* room) {
  return api::scratch(h, room, m, n, k);
}

SOFTGPU_API SolverStatus cusolverDnCungqr_bufferSize(void* h, int m, int n, int k, const Single*,
                                                     int, const Single*, int* room) {
  return api::scratch(h, room, m, n, k);
}
SOFTGPU_API SolverStatus cusolverDnZungqr_bufferSize(void* h, int m, int n, int k, const Double*,
                                                     int, const Double*, int* room) {
  return api::scratch(h, room, m, n, k);
}

SOFTGPU_API SolverStatus cusolverDnSorgqr(void* h, int m, int n, int k, float* a, int lda,
                                          const float* tau, float*, int, int* info) {
  return api::orgqr(h, m, n, k, a, lda, tau, info);
}
SOFTGPU_API SolverStatus cusolverDnDorgqr(void* h, int m, int n, int k, double* a, int lda,
                                          const double* tau, double*, int, int* info) {
  return api::orgqr(h, m, n, k, a, lda, tau, info);
}

SOFTGPU_API SolverStatus cusolverDnCungqr(void* h, int m, int n, int k, Single* a, int lda,
                                          const Single* tau, Single*, int, int* info) {
  return api::orgqr(h, m, n, k, a, lda, tau, info);
}
SOFTGPU_API SolverStatus cusolverDnZungqr(void* h, int m, int n, int k, Double* a, int lda,
                                          const Double* tau, Double*, int, int* info) {
  return api::orgqr(h, m, n, k, a, lda, tau, info);
}

SOFTGPU_API SolverStatus cusolverDnSormqr_bufferSize(void* h, side, op, int m, int n, int k,
                                                     const float*, int, const float*, const float*,
                                                     int, int* room) {
  return api::scratch(h, room, m, n, k);
}
SOFTGPU_API SolverStatus cusolverDnDormqr_bufferSize(void* h, side, op, int m, int n, int k,
                                                     const double*, int, const double*,
                                                     const double*, int, int* room) {
  return api::scratch(h, room, m, n, k);
}

SOFTGPU_API SolverStatus cusolverDnCunmqr_bufferSize(void* h, side, op, int m, int n, int k,
                                                     const Single*, int, const Single*,
                                                     const Single*, int, int* room) {
  return api::scratch(h, room, m, n, k);
}
SOFTGPU_API SolverStatus cusolverDnZunmqr_bufferSize(void* h, side, op, int m, int n, int k,
                                                     const Double*, int, const Double*,
                                                     const Double*, int, int* room) {
  return api::scratch(h, room, m, n, k);
}

SOFTGPU_API SolverStatus cusolverDnSormqr(void* h, side where, op trans, int m, int n, int k,
                                          const float* a, int lda, const float* tau, float* c,
                                          int ldc, float*, int, int* info) {
  return api::ormqr(h, where, trans, m, n, k, a, lda, tau, c, ldc, info);
}
SOFTGPU_API SolverStatus cusolverDnDormqr(void* h, side where, op trans, int m, int n, int k,
                                          const double* a, int lda, const double* tau, double* c,
                                          int ldc, double*, int, int* info) {
  return api::ormqr(h, where, trans, m, n, k, a, lda, tau, c, ldc, info);
}

SOFTGPU_API SolverStatus cusolverDnCunmqr(void* h, side where, op trans, int m, int n, int k,
                                          const Single* a, int lda, const Single* tau, Single* c,
                                          int ldc, Single*, int, int* info) {
  return api::ormqr(h, where, trans, m, n, k, a, lda, tau, c, ldc, info);
}
SOFTGPU_API SolverStatus cusolverDnZunmqr(void* h, side where, op trans, int m, int n, int k,
                                          const Double* a, int lda, const Double* tau, Double* c,
                                          int ldc, Double*, int, int* info) {
  return api::ormqr(h, where, trans, m, n, k, a, lda, tau, c, ldc, info);
}
