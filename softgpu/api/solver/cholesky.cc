// cuSOLVER's Cholesky factorisations and their solves.
#include "api/solver/solver.h"
#include "fault/written.h"
#include "memory/pointers.h"

namespace softgpu::api {
namespace {

template <class T>
SolverStatus potrf(void* handle, cublasFillMode_t uplo, int64_t n, T* a, int64_t lda, int* info) {
  if (!is_size(n) || !is_distance(lda, n)) return kSolverInvalidValue;
  return solve_on_stream(handle, {writes("matrix A", a, n, n, lda), writes("info", info, 1)}, [=] {
    *info =
        SOFTGPU_SPELLED(T, potrf_work, letter(uplo), static_cast<int>(n), a, static_cast<int>(lda));
  });
}

template <class T>
SolverStatus potrs(void* handle, cublasFillMode_t uplo, int64_t n, int64_t nrhs, const T* a,
                   int64_t lda, T* b, int64_t ldb, int* info) {
  if (!is_size(n) || !is_size(nrhs)) return kSolverInvalidValue;
  if (!is_distance(lda, n) || !is_distance(ldb, n)) return kSolverInvalidValue;
  return solve_on_stream(handle,
                         {reads("matrix A", a, n, n, lda), writes("matrix B", b, n, nrhs, ldb),
                          writes("info", info, 1)},
                         [=] {
                           *info = SOFTGPU_SPELLED(T, potrs_work, letter(uplo), static_cast<int>(n),
                                                   static_cast<int>(nrhs), a, static_cast<int>(lda),
                                                   b, static_cast<int>(ldb));
                         });
}

template <class T>
SolverStatus potrf_batched(void* handle, cublasFillMode_t uplo, int n, T** as, int lda, int* infos,
                           int count) {
  if (n < 0 || count < 0 || !is_distance(lda, n)) return kSolverInvalidValue;
  return on_solver_stream(handle, [=]() -> Fault {
    if (Fault bad = claim({reads("array of A", as, n ? count : 0), writes("info", infos, count)}))
      return bad;
    for (int i = 0; i < count; ++i) {
      T* const a = n ? as[i] : nullptr;
      if (Fault bad = claim({writes("matrix A", a, n, n, lda)})) return bad;
      infos[i] = SOFTGPU_SPELLED(T, potrf_work, letter(uplo), n, a, lda);
    }
    return {};
  });
}

template <class T>
SolverStatus potrs_batched(void* handle, cublasFillMode_t uplo, int n, int nrhs, T** as, int lda,
                           T** bs, int ldb, int* info, int count) {
  if (n < 0 || nrhs != 1 || count < 0) return kSolverInvalidValue;  // nor does cuSOLVER know more
  if (!is_distance(lda, n) || !is_distance(ldb, n)) return kSolverInvalidValue;
  return on_solver_stream(handle, [=]() -> Fault {
    const int addresses = n ? count : 0;
    if (Fault bad = claim({reads("array of A", as, addresses), reads("array of B", bs, addresses),
                           writes("info", info, 1)}))
      return bad;
    *info = 0;
    for (int i = 0; i < addresses; ++i) {
      T *const a = as[i], *const b = bs[i];
      if (Fault bad = claim({reads("matrix A", a, n, n, lda), writes("matrix B", b, n, nrhs, ldb)}))
        return bad;
      SOFTGPU_SPELLED(T, potrs_work, letter(uplo), n, nrhs, a, lda, b, ldb);
    }
    return {};
  });
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;
using fill = cublasFillMode_t;

SOFTGPU_API SolverStatus cusolverDnSpotrf_bufferSize(void* h, fill, int n, float*, int, int* room) {
  return api::scratch(h, room, n);
}
SOFTGPU_API SolverStatus cusolverDnDpotrf_bufferSize(void* h, fill, int n, double*, int,
                                                     int* room) {
  return api::scratch(h, room, n);
}
SOFTGPU_API SolverStatus cusolverDnCpotrf_bufferSize(void* h, fill, int n, Single*, int,
                                                     int* room) {
  return api::scratch(h, room, n);
}
SOFTGPU_API SolverStatus cusolverDnZpotrf_bufferSize(void* h, fill, int n, Double*, int,
                                                     int* room) {
  return api::scratch(h, room, n);
}

SOFTGPU_API SolverStatus cusolverDnSpotrf(void* h, fill uplo, int n, float* a, int lda, float*, int,
                                          int* info) {
  return api::potrf(h, uplo, n, a, lda, info);
}
SOFTGPU_API SolverStatus cusolverDnDpotrf(void* h, fill uplo, int n, double* a, int lda, double*,
                                          int, int* info) {
  return api::potrf(h, uplo, n, a, lda, info);
}
SOFTGPU_API SolverStatus cusolverDnCpotrf(void* h, fill uplo, int n, Single* a, int lda, Single*,
                                          int, int* info) {
  return api::potrf(h, uplo, n, a, lda, info);
}
SOFTGPU_API SolverStatus cusolverDnZpotrf(void* h, fill uplo, int n, Double* a, int lda, Double*,
                                          int, int* info) {
  return api::potrf(h, uplo, n, a, lda, info);
}

SOFTGPU_API SolverStatus cusolverDnSpotrs(void* h, fill uplo, int n, int nrhs, const float* a,
                                          int lda, float* b, int ldb, int* info) {
  return api::potrs(h, uplo, n, nrhs, a, lda, b, ldb, info);
}
SOFTGPU_API SolverStatus cusolverDnDpotrs(void* h, fill uplo, int n, int nrhs, const double* a,
                                          int lda, double* b, int ldb, int* info) {
  return api::potrs(h, uplo, n, nrhs, a, lda, b, ldb, info);
}
SOFTGPU_API SolverStatus cusolverDnCpotrs(void* h, fill uplo, int n, int nrhs, const Single* a,
                                          int lda, Single* b, int ldb, int* info) {
  return api::potrs(h, uplo, n, nrhs, a, lda, b, ldb, info);
}
SOFTGPU_API SolverStatus cusolverDnZpotrs(void* h, fill uplo, int n, int nrhs, const Double* a,
                                          int lda, Double* b, int ldb, int* info) {
  return api::potrs(h, uplo, n, nrhs, a, lda, b, ldb, info);
}

SOFTGPU_API SolverStatus cusolverDnSpotrfBatched(void* h, fill uplo, int n, float** as, int lda,
                                                 int* infos, int count) {
  return api::potrf_batched(h, uplo, n, as, lda, infos, count);
}
SOFTGPU_API SolverStatus cusolverDnDpotrfBatched(void* h, fill uplo, int n, double** as, int lda,
                                                 int* infos, int count) {
  return api::potrf_batched(h, uplo, n, as, lda, infos, count);
}
SOFTGPU_API SolverStatus cusolverDnCpotrfBatched(void* h, fill uplo, int n, Single** as, int lda,
                                                 int* infos, int count) {
  return api::potrf_batched(h, uplo, n, as, lda, infos, count);
}
SOFTGPU_API SolverStatus cusolverDnZpotrfBatched(void* h, fill uplo, int n, Double** as, int lda,
                                                 int* infos, int count) {
  return api::potrf_batched(h, uplo, n, as, lda, infos, count);
}

SOFTGPU_API SolverStatus cusolverDnSpotrsBatched(void* h, fill uplo, int n, int nrhs, float** as,
                                                 int lda, float** bs, int ldb, int* info,
                                                 int count) {
  return api::potrs_batched(h, uplo, n, nrhs, as, lda, bs, ldb, info, count);
}
SOFTGPU_API SolverStatus cusolverDnDpotrsBatched(void* h, fill uplo, int n, int nrhs, double** as,
                                                 int lda, double** bs, int ldb, int* info,
                                                 int count) {
  return api::potrs_batched(h, uplo, n, nrhs, as, lda, bs, ldb, info, count);
}
SOFTGPU_API SolverStatus cusolverDnCpotrsBatched(void* h, fill uplo, int n, int nrhs, Single** as,
                                                 int lda, Single** bs, int ldb, int* info,
                                                 int count) {
  return api::potrs_batched(h, uplo, n, nrhs, as, lda, bs, ldb, info, count);
}
SOFTGPU_API SolverStatus cusolverDnZpotrsBatched(void* h, fill uplo, int n, int nrhs, Double** as,
                                                 int lda, Double** bs, int ldb, int* info,
                                                 int count) {
  return api::potrs_batched(h, uplo, n, nrhs, as, lda, bs, ldb, info, count);
}

SOFTGPU_API SolverStatus cusolverDnXpotrf_bufferSize(void* h, void*, fill, int64_t n, cudaDataType,
                                                     const void*, int64_t, cudaDataType,
                                                     size_t* device, size_t* host) {
  return api::scratch(h, device, host, n);
}
SOFTGPU_API SolverStatus cusolverDnXpotrf(void* h, void*, fill uplo, int64_t n, cudaDataType type,
                                          void* a, int64_t lda, cudaDataType, void*, size_t, void*,
                                          size_t, int* info) {
  return api::by_type(
      type, [=]<class T>(T*) { return api::potrf(h, uplo, n, static_cast<T*>(a), lda, info); });
}
SOFTGPU_API SolverStatus cusolverDnXpotrs(void* h, void*, fill uplo, int64_t n, int64_t nrhs,
                                          cudaDataType type, const void* a, int64_t lda,
                                          cudaDataType type_b, void* b, int64_t ldb, int* info) {
  if (type != type_b) return api::kSolverNotSupported;
  return api::by_type(type, [=]<class T>(T*) {
    return api::potrs(h, uplo, n, nrhs, static_cast<const T*>(a), lda, static_cast<T*>(b), ldb,
                      info);
  });
}
