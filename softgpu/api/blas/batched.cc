// cuBLAS's batched factorisations on the host's LAPACK: LU, its solves, QR, least squares.
#include <vector>

#include "api/blas/blas.h"
#include "api/lapack.h"
#include "api/support.h"
#include "fault/written.h"
#include "memory/pointers.h"

namespace softgpu::api {
namespace {

// A batch of column-major matrices by an array of addresses on the device.
template <class T>
struct Batch {
  T* const* slots;
  int64_t rows, columns, ld;
  bool find(int index, T** out) const {
    *out = nullptr;
    // Matrices without elements need no addresses, nor an array of them.
    if (!rows || !columns) return true;
    if (!pointers().covers(number(slots + index), sizeof(T*))) return false;
    *out = slots[index];
    const int64_t elements = (columns - 1) * ld + rows;
    return pointers().covers(number(*out), static_cast<uint64_t>(elements) * sizeof(T));
  }
  // The same for a matrix that is written.
  bool find_result(int index, T** out) const {
    if (!find(index, out)) return false;
    if (*out)
      about_to_write(number(*out), static_cast<uint64_t>(rows) * sizeof(T),
                     static_cast<uint64_t>(columns), static_cast<uint64_t>(ld) * sizeof(T));
    return true;
  }
};

template <class T>
Batch<T> batch_of(const void* slots, int64_t rows, int64_t columns, int64_t ld) {
  return {static_cast<T* const*>(slots), rows, columns, ld};
}

cublasStatus_t on_stream(cublasHandle_t handle, std::function<Fault()> body) {
  BlasHandle* h = blas_handle(handle);
  return h ? enqueue_blas(*h, h->stream, std::move(body)) : CUBLAS_STATUS_NOT_INITIALIZED;
}

bool covers(const int* values, int64_t count) {
  return pointers().covers(number(values), static_cast<uint64_t>(count) * sizeof(int));
}

template <class T>
cublasStatus_t getrf(cublasHandle_t handle, int n, const void* as, int lda, int* pivots, int* info,
                     int count) {
  if (n < 0 || count < 0 || lda < std::max(n, 1)) return CUBLAS_STATUS_INVALID_VALUE;
  return on_stream(handle, [=]() -> Fault {
    const auto a = batch_of<T>(as, n, n, lda);
    if (!covers(info, count)) return blas_fault("info", number(info));
    if (pivots && !covers(pivots, int64_t{n} * count)) return blas_fault("pivots", number(pivots));
    about_to_write(info, count);
    if (pivots) about_to_write(pivots, int64_t{n} * count);
    for (int i = 0; i < count; ++i) {
      T* matrix = nullptr;
      if (!a.find_result(i, &matrix)) return blas_fault("matrix A", number(matrix));
      int* own = pivots + int64_t{n} * i;
      info[i] = pivots ? SOFTGPU_SPELLED(T, getrf_work, n, n, matrix, lda, own)
                       : factor_without_pivots(n, n, matrix, lda);
    }
    return {};
  });
}

char letter(cublasOperation_t op) {
  return op == CUBLAS_OP_N ? 'N' : op == CUBLAS_OP_T ? 'T' : 'C';
}

template <class T>
cublasStatus_t getrs(cublasHandle_t handle, cublasOperation_t op, int n, int nrhs, const void* as,
                     int lda, const int* pivots, const void* bs, int ldb, int* info, int count) {
  if (!info) return CUBLAS_STATUS_INVALID_VALUE;
  const bool sizes = n >= 0 && nrhs >= 0 && count >= 0;
  *info = known(op) && sizes && lda >= std::max(n, 1) && ldb >= std::max(n, 1) ? 0 : -1;
  if (*info) return CUBLAS_STATUS_INVALID_VALUE;
  return on_stream(handle, [=]() -> Fault {
    const auto a = batch_of<T>(as, n, n, lda);
    const auto b = batch_of<T>(bs, n, nrhs, ldb);
    if (pivots && !covers(pivots, int64_t{n} * count)) return blas_fault("pivots", number(pivots));
    std::vector<int> in_order(static_cast<size_t>(pivots ? 0 : n));
    for (size_t i = 0; i < in_order.size(); ++i) in_order[i] = static_cast<int>(i) + 1;
    for (int i = 0; i < count; ++i) {
      T *factors = nullptr, *values = nullptr;
      if (!a.find(i, &factors)) return blas_fault("matrix A", number(factors));
      if (!b.find_result(i, &values)) return blas_fault("matrix B", number(values));
      const int* own = pivots ? pivots + int64_t{n} * i : in_order.data();
      SOFTGPU_SPELLED(T, getrs_work, letter(op), n, nrhs, factors, lda, own, values, ldb);
    }
    return {};
  });
}

template <class T>
cublasStatus_t geqrf(cublasHandle_t handle, int m, int n, const void* as, int lda, const void* taus,
                     int* info, int count) {
  if (!info) return CUBLAS_STATUS_INVALID_VALUE;
  *info = m < 0 || n < 0 || count < 0 || lda < std::max(m, 1) ? -1 : 0;
  if (*info) return CUBLAS_STATUS_INVALID_VALUE;
  return on_stream(handle, [=]() -> Fault {
    const auto a = batch_of<T>(as, m, n, lda);
    const auto tau = batch_of<T>(taus, std::min(m, n), 1, std::min(m, n));
    const int room = std::max(n, 1) * 32;
    std::vector<T> work(static_cast<size_t>(room));
    for (int i = 0; i < count; ++i) {
      T *matrix = nullptr, *scales = nullptr;
      if (!a.find_result(i, &matrix)) return blas_fault("matrix A", number(matrix));
      if (!tau.find_result(i, &scales)) return blas_fault("tau", number(scales));
      SOFTGPU_SPELLED(T, geqrf_work, m, n, matrix, lda, scales, work.data(), room);
    }
    return {};
  });
}

template <class T>
cublasStatus_t gels(cublasHandle_t handle, cublasOperation_t op, int m, int n, int nrhs,
                    const void* as, int lda, const void* cs, int ldc, int* info, int* device_info,
                    int count) {
  if (!info) return CUBLAS_STATUS_INVALID_VALUE;
  *info = m < 0 || n < 0 || nrhs < 0 || count < 0 || lda < std::max(m, 1) ? -1 : 0;
  if (*info) return CUBLAS_STATUS_INVALID_VALUE;
  if (op != CUBLAS_OP_N || m < n) return CUBLAS_STATUS_NOT_SUPPORTED;  // nor does cuBLAS
  return on_stream(handle, [=]() -> Fault {
    const auto a = batch_of<T>(as, m, n, lda);
    const auto c = batch_of<T>(cs, m, nrhs, ldc);
    if (device_info && !covers(device_info, count)) return blas_fault("info", number(device_info));
    if (device_info) about_to_write(device_info, count);
    const int room = (std::max(n, nrhs) + n + 1) * 32;
    std::vector<T> work(static_cast<size_t>(room));
    for (int i = 0; i < count; ++i) {
      T *matrix = nullptr, *values = nullptr;
      if (!a.find_result(i, &matrix)) return blas_fault("matrix A", number(matrix));
      if (!c.find_result(i, &values)) return blas_fault("matrix C", number(values));
      const int result = SOFTGPU_SPELLED(T, gels_work, 'N', m, n, nrhs, matrix, lda, values, ldc,
                                         work.data(), room);
      if (device_info) device_info[i] = result;
    }
    return {};
  });
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;
using op = cublasOperation_t;

SOFTGPU_API cublasStatus_t cublasSgetrfBatched(cublasHandle_t h, int n, float* const a[], int lda,
                                               int* pivots, int* info, int count) {
  return api::getrf<float>(h, n, a, lda, pivots, info, count);
}
SOFTGPU_API cublasStatus_t cublasDgetrfBatched(cublasHandle_t h, int n, double* const a[], int lda,
                                               int* pivots, int* info, int count) {
  return api::getrf<double>(h, n, a, lda, pivots, info, count);
}
SOFTGPU_API cublasStatus_t cublasCgetrfBatched(cublasHandle_t h, int n, cuComplex* const a[],
                                               int lda, int* pivots, int* info, int count) {
  return api::getrf<api::Single>(h, n, a, lda, pivots, info, count);
}
SOFTGPU_API cublasStatus_t cublasZgetrfBatched(cublasHandle_t h, int n, cuDoubleComplex* const a[],
                                               int lda, int* pivots, int* info, int count) {
  return api::getrf<api::Double>(h, n, a, lda, pivots, info, count);
}

SOFTGPU_API cublasStatus_t cublasSgetrsBatched(cublasHandle_t h, op trans, int n, int nrhs,
                                               const float* const a[], int lda, const int* pivots,
                                               float* const b[], int ldb, int* info, int count) {
  return api::getrs<float>(h, trans, n, nrhs, a, lda, pivots, b, ldb, info, count);
}
SOFTGPU_API cublasStatus_t cublasDgetrsBatched(cublasHandle_t h, op trans, int n, int nrhs,
                                               const double* const a[], int lda, const int* pivots,
                                               double* const b[], int ldb, int* info, int count) {
  return api::getrs<double>(h, trans, n, nrhs, a, lda, pivots, b, ldb, info, count);
}
SOFTGPU_API cublasStatus_t cublasCgetrsBatched(cublasHandle_t h, op trans, int n, int nrhs,
                                               const cuComplex* const a[], int lda,
                                               const int* pivots, cuComplex* const b[], int ldb,
                                               int* info, int count) {
  return api::getrs<api::Single>(h, trans, n, nrhs, a, lda, pivots, b, ldb, info, count);
}
SOFTGPU_API cublasStatus_t cublasZgetrsBatched(cublasHandle_t h, op trans, int n, int nrhs,
                                               const cuDoubleComplex* const a[], int lda,
                                               const int* pivots, cuDoubleComplex* const b[],
                                               int ldb, int* info, int count) {
  return api::getrs<api::Double>(h, trans, n, nrhs, a, lda, pivots, b, ldb, info, count);
}

SOFTGPU_API cublasStatus_t cublasSgeqrfBatched(cublasHandle_t h, int m, int n, float* const a[],
                                               int lda, float* const tau[], int* info, int count) {
  return api::geqrf<float>(h, m, n, a, lda, tau, info, count);
}
SOFTGPU_API cublasStatus_t cublasDgeqrfBatched(cublasHandle_t h, int m, int n, double* const a[],
                                               int lda, double* const tau[], int* info, int count) {
  return api::geqrf<double>(h, m, n, a, lda, tau, info, count);
}
SOFTGPU_API cublasStatus_t cublasCgeqrfBatched(cublasHandle_t h, int m, int n, cuComplex* const a[],
                                               int lda, cuComplex* const tau[], int* info,
                                               int count) {
  return api::geqrf<api::Single>(h, m, n, a, lda, tau, info, count);
}
SOFTGPU_API cublasStatus_t cublasZgeqrfBatched(cublasHandle_t h, int m, int n,
                                               cuDoubleComplex* const a[], int lda,
                                               cuDoubleComplex* const tau[], int* info, int count) {
  return api::geqrf<api::Double>(h, m, n, a, lda, tau, info, count);
}

SOFTGPU_API cublasStatus_t cublasSgelsBatched(cublasHandle_t h, op trans, int m, int n, int nrhs,
                                              float* const a[], int lda, float* const c[], int ldc,
                                              int* info, int* device_info, int count) {
  return api::gels<float>(h, trans, m, n, nrhs, a, lda, c, ldc, info, device_info, count);
}
SOFTGPU_API cublasStatus_t cublasDgelsBatched(cublasHandle_t h, op trans, int m, int n, int nrhs,
                                              double* const a[], int lda, double* const c[],
                                              int ldc, int* info, int* device_info, int count) {
  return api::gels<double>(h, trans, m, n, nrhs, a, lda, c, ldc, info, device_info, count);
}
SOFTGPU_API cublasStatus_t cublasCgelsBatched(cublasHandle_t h, op trans, int m, int n, int nrhs,
                                              cuComplex* const a[], int lda, cuComplex* const c[],
                                              int ldc, int* info, int* device_info, int count) {
  return api::gels<api::Single>(h, trans, m, n, nrhs, a, lda, c, ldc, info, device_info, count);
}
SOFTGPU_API cublasStatus_t cublasZgelsBatched(cublasHandle_t h, op trans, int m, int n, int nrhs,
                                              cuDoubleComplex* const a[], int lda,
                                              cuDoubleComplex* const c[], int ldc, int* info,
                                              int* device_info, int count) {
  return api::gels<api::Double>(h, trans, m, n, nrhs, a, lda, c, ldc, info, device_info, count);
}
