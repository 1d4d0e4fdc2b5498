// cuBLAS calls on complex vectors: products, matrix times vector, triangular solves.
#include <complex>
#include <type_traits>

#include "api/blas/operands.h"
#include "api/support.h"
#include "fault/written.h"
#include "memory/pointers.h"

namespace softgpu::api {
namespace {

template <class T>
constexpr cudaDataType_t kTypeOf = std::is_same_v<T, cuComplex> ? CUDA_C_32F : CUDA_C_64F;

// The same numbers as the host computes with them.
template <class T>
using Host =
    std::conditional_t<std::is_same_v<T, cuComplex>, std::complex<float>, std::complex<double>>;

template <class T>
struct Vector {
  T* data;
  int increment;
  bool mapped(int64_t n) const {
    const auto span = static_cast<uint64_t>((n - 1) * std::abs(increment) + 1);
    return n <= 0 || pointers().covers(number(data), span * sizeof(T));
  }
};

template <class T>
bool mapped(const T* matrix, int64_t rows, int64_t columns, int64_t ld) {
  const int64_t elements = rows && columns ? (columns - 1) * ld + rows : 0;
  return pointers().covers(number(matrix), static_cast<uint64_t>(elements) * sizeof(T));
}

// A factor's value, once it is read.
template <class T>
Host<T> value(const Factor& f) {
  using Real = typename Host<T>::value_type;
  return {static_cast<Real>(f.real), static_cast<Real>(f.imaginary)};
}

template <class T>
Factor factor(const BlasHandle& handle, const T* from) {
  return make_factor(from, kTypeOf<T>, handle.pointer_mode == CUBLAS_POINTER_MODE_DEVICE);
}

template <class T>
cublasStatus_t dot(cublasHandle_t handle, bool conjugate, int n, Vector<const T> x,
                   Vector<const T> y, T* result) {
  BlasHandle* h = blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool host = h->pointer_mode == CUBLAS_POINTER_MODE_HOST;
  const cublasStatus_t status = enqueue_blas(*h, h->stream, [=]() -> Fault {
    if (!x.mapped(n)) return blas_fault("x", number(x.data));
    if (!y.mapped(n)) return blas_fault("y", number(y.data));
    if (!host && !mapped(result, 1, 1, 1)) return blas_fault("the result", number(result));
    if (!host) about_to_write(result, 1);
    const auto call = [&](auto plain, auto conjugated) {
      (conjugate ? conjugated : plain)(n, x.data, x.increment, y.data, y.increment, result);
    };
    if constexpr (std::is_same_v<T, cuComplex>) {
      call(scipy_cblas_cdotu_sub, scipy_cblas_cdotc_sub);
    } else {
      call(scipy_cblas_zdotu_sub, scipy_cblas_zdotc_sub);
    }
    return {};
  });
  if (status != CUBLAS_STATUS_SUCCESS || !host) return status;
  return cudaStreamSynchronize(h->stream) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                         : CUBLAS_STATUS_EXECUTION_FAILED;
}

CBLAS_TRANSPOSE host_op(cublasOperation_t op) {
  return op == CUBLAS_OP_N ? CblasNoTrans : op == CUBLAS_OP_T ? CblasTrans : CblasConjTrans;
}

template <class T>
cublasStatus_t gemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const T* alpha,
                    const T* a, int lda, Vector<const T> x, const T* beta, Vector<T> y) {
  BlasHandle* h = blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!known(op) || m < 0 || n < 0 || lda < std::max(m, 1) || !x.increment || !y.increment) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const Factor fa = factor(*h, alpha), fb = factor(*h, beta);
  return enqueue_blas(*h, h->stream, [=]() -> Fault {
    const bool plain = op == CUBLAS_OP_N;
    if (!x.mapped(plain ? n : m)) return blas_fault("x", number(x.data));
    if (!y.mapped(plain ? m : n)) return blas_fault("y", number(y.data));
    if (!mapped(a, m, n, lda)) return blas_fault("matrix A", number(a));
    Factor ra = fa, rb = fb;
    if (!resolve(&ra)) return blas_fault("alpha", fa.device_address);
    if (!resolve(&rb)) return blas_fault("beta", fb.device_address);
    about_to_write(y.data, plain ? m : n, y.increment);
    const Host<T> scale = value<T>(ra), keep = value<T>(rb);
    const auto call = [&](auto routine) {
      routine(CblasColMajor, host_op(op), m, n, &scale, a, lda, x.data, x.increment, &keep, y.data,
              y.increment);
    };
    if constexpr (std::is_same_v<T, cuComplex>) {
      call(scipy_cblas_cgemv);
    } else {
      call(scipy_cblas_zgemv);
    }
    return {};
  });
}

template <class T>
cublasStatus_t axpy(cublasHandle_t handle, int n, const T* alpha, Vector<const T> x, Vector<T> y) {
  BlasHandle* h = blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Factor given = factor(*h, alpha);
  return enqueue_blas(*h, h->stream, [=]() -> Fault {
    if (!x.mapped(n)) return blas_fault("x", number(x.data));
    if (!y.mapped(n)) return blas_fault("y", number(y.data));
    Factor read = given;
    if (!resolve(&read)) return blas_fault("alpha", given.device_address);
    about_to_write(y.data, n, y.increment);
    const Host<T> scale = value<T>(read);
    if constexpr (std::is_same_v<T, cuComplex>) {
      scipy_cblas_caxpy(n, &scale, x.data, x.increment, y.data, y.increment);
    } else {
      scipy_cblas_zaxpy(n, &scale, x.data, x.increment, y.data, y.increment);
    }
    return {};
  });
}

template <class T>
Fault solve(const Triangle& t, const Host<T>& scale, const T* a, int lda, T* b, int ldb) {
  const int order = t.order();
  if (!mapped(a, order, order, lda)) return blas_fault("matrix A", number(a));
  if (!mapped(b, t.m, t.n, ldb)) return blas_fault("matrix B", number(b));
  about_to_write(number(b), static_cast<uint64_t>(t.m) * sizeof(T), static_cast<uint64_t>(t.n),
                 static_cast<uint64_t>(ldb) * sizeof(T));
  const auto call = [&](auto routine) {
    routine(CblasColMajor, t.side == CUBLAS_SIDE_LEFT ? CblasLeft : CblasRight,
            t.uplo == CUBLAS_FILL_MODE_UPPER ? CblasUpper : CblasLower, host_op(t.op),
            t.diag == CUBLAS_DIAG_UNIT ? CblasUnit : CblasNonUnit, t.m, t.n, &scale, a, lda, b,
            ldb);
  };
  if constexpr (std::is_same_v<T, cuComplex>) {
    call(scipy_cblas_ctrsm);
  } else {
    call(scipy_cblas_ztrsm);
  }
  return {};
}

template <class T>
cublasStatus_t trsm(cublasHandle_t handle, const Triangle& t, const T* alpha, const T* a, int lda,
                    T* b, int ldb) {
  BlasHandle* h = blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!t.valid(lda, ldb)) return CUBLAS_STATUS_INVALID_VALUE;
  const Factor given = factor(*h, alpha);
  return enqueue_blas(*h, h->stream, [=]() -> Fault {
    if (t.m == 0 || t.n == 0) return {};
    Factor read = given;
    if (!resolve(&read)) return blas_fault("alpha", given.device_address);
    return solve<T>(t, value<T>(read), a, lda, b, ldb);
  });
}

template <class T>
cublasStatus_t trsm_batched(cublasHandle_t handle, const Triangle& t, const T* alpha,
                            const T* const* as, int lda, T* const* bs, int ldb, int count) {
  BlasHandle* h = blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!t.valid(lda, ldb) || count < 0) return CUBLAS_STATUS_INVALID_VALUE;
  const Factor given = factor(*h, alpha);
  return enqueue_blas(*h, h->stream, [=]() -> Fault {
    if (t.m == 0 || t.n == 0) return {};
    Factor read = given;
    if (!resolve(&read)) return blas_fault("alpha", given.device_address);
    const auto bytes = static_cast<uint64_t>(count) * sizeof(T*);
    if (!pointers().covers(number(as), bytes)) return blas_fault("a pointer array", number(as));
    if (!pointers().covers(number(bs), bytes)) return blas_fault("a pointer array", number(bs));
    for (int i = 0; i < count; ++i) {
      if (Fault bad = solve<T>(t, value<T>(read), as[i], lda, bs[i], ldb)) return bad;
    }
    return {};
  });
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;
using op = cublasOperation_t;
using side_mode = cublasSideMode_t;
using fill_mode = cublasFillMode_t;
using diag_type = cublasDiagType_t;
using Z = cuDoubleComplex;

SOFTGPU_API cublasStatus_t cublasCdotu_v2(cublasHandle_t h, int n, const cuComplex* x, int incx,
                                          const cuComplex* y, int incy, cuComplex* result) {
  return api::dot<cuComplex>(h, false, n, {x, incx}, {y, incy}, result);
}
SOFTGPU_API cublasStatus_t cublasCdotc_v2(cublasHandle_t h, int n, const cuComplex* x, int incx,
                                          const cuComplex* y, int incy, cuComplex* result) {
  return api::dot<cuComplex>(h, true, n, {x, incx}, {y, incy}, result);
}
SOFTGPU_API cublasStatus_t cublasZdotu_v2(cublasHandle_t h, int n, const Z* x, int incx, const Z* y,
                                          int incy, Z* result) {
  return api::dot<Z>(h, false, n, {x, incx}, {y, incy}, result);
}
SOFTGPU_API cublasStatus_t cublasZdotc_v2(cublasHandle_t h, int n, const Z* x, int incx, const Z* y,
                                          int incy, Z* result) {
  return api::dot<Z>(h, true, n, {x, incx}, {y, incy}, result);
}

SOFTGPU_API cublasStatus_t cublasCgemv_v2(cublasHandle_t h, op trans, int m, int n,
                                          const cuComplex* alpha, const cuComplex* a, int lda,
                                          const cuComplex* x, int incx, const cuComplex* beta,
                                          cuComplex* y, int incy) {
  return api::gemv<cuComplex>(h, trans, m, n, alpha, a, lda, {x, incx}, beta, {y, incy});
}
SOFTGPU_API cublasStatus_t cublasZgemv_v2(cublasHandle_t h, op trans, int m, int n, const Z* alpha,
                                          const Z* a, int lda, const Z* x, int incx, const Z* beta,
                                          Z* y, int incy) {
  return api::gemv<Z>(h, trans, m, n, alpha, a, lda, {x, incx}, beta, {y, incy});
}

SOFTGPU_API cublasStatus_t cublasCaxpy_v2(cublasHandle_t h, int n, const cuComplex* alpha,
                                          const cuComplex* x, int incx, cuComplex* y, int incy) {
  return api::axpy<cuComplex>(h, n, alpha, {x, incx}, {y, incy});
}
SOFTGPU_API cublasStatus_t cublasZaxpy_v2(cublasHandle_t h, int n, const Z* alpha, const Z* x,
                                          int incx, Z* y, int incy) {
  return api::axpy<Z>(h, n, alpha, {x, incx}, {y, incy});
}

SOFTGPU_API cublasStatus_t cublasCtrsm_v2(cublasHandle_t h, side_mode side, fill_mode uplo,
                                          op trans, diag_type diag, int m, int n,
                                          const cuComplex* alpha, const cuComplex* a, int lda,
                                          cuComplex* b, int ldb) {
  return api::trsm(h, {side, uplo, trans, diag, m, n}, alpha, a, lda, b, ldb);
}
SOFTGPU_API cublasStatus_t cublasZtrsm_v2(cublasHandle_t h, side_mode side, fill_mode uplo,
                                          op trans, diag_type diag, int m, int n, const Z* alpha,
                                          const Z* a, int lda, Z* b, int ldb) {
  return api::trsm(h, {side, uplo, trans, diag, m, n}, alpha, a, lda, b, ldb);
}
SOFTGPU_API cublasStatus_t cublasCtrsmBatched(cublasHandle_t h, side_mode side, fill_mode uplo,
                                              op trans, diag_type diag, int m, int n,
                                              const cuComplex* alpha, const cuComplex* const a[],
                                              int lda, cuComplex* const b[], int ldb, int count) {
  return api::trsm_batched(h, {side, uplo, trans, diag, m, n}, alpha, a, lda, b, ldb, count);
}
SOFTGPU_API cublasStatus_t cublasZtrsmBatched(cublasHandle_t h, side_mode side, fill_mode uplo,
                                              op trans, diag_type diag, int m, int n,
                                              const Z* alpha, const Z* const a[], int lda,
                                              Z* const b[], int ldb, int count) {
  return api::trsm_batched(h, {side, uplo, trans, diag, m, n}, alpha, a, lda, b, ldb, count);
}
