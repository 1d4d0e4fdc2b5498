// cuBLAS calls on vectors, matrix times vector, and triangular solves.
#include <cmath>
#include <cstring>
#include <vector>

#include "api/blas/operands.h"
#include "api/support.h"
#include "fault/written.h"
#include "memory/pointers.h"

namespace softgpu::api {
namespace {

template <class T>
constexpr cudaDataType_t kTypeOf = CUDA_R_32F;
template <>
constexpr cudaDataType_t kTypeOf<double> = CUDA_R_64F;

// Bytes from the first to the last element of a strided vector.
uint64_t span_bytes(int64_t n, int64_t increment, size_t element) {
  if (n <= 0) return 0;
  return (static_cast<uint64_t>((n - 1) * std::abs(increment)) + 1) * element;
}

bool mapped(const void* address, int64_t n, int64_t increment, size_t element) {
  return pointers().covers(number(address), span_bytes(n, increment, element));
}

// Runs `body` on the handle's stream; results in host memory are there when the call returns.
cublasStatus_t on_stream(cublasHandle_t handle, bool wait, std::function<Fault()> body) {
  BlasHandle* h = blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  const cublasStatus_t status = enqueue_blas(*h, h->stream, std::move(body));
  if (status != CUBLAS_STATUS_SUCCESS || !wait) return status;
  return cudaStreamSynchronize(h->stream) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                         : CUBLAS_STATUS_EXECUTION_FAILED;
}

bool host_mode(cublasHandle_t handle) {
  const BlasHandle* h = blas_handle(handle);
  return !h || h->pointer_mode == CUBLAS_POINTER_MODE_HOST;
}

template <class T>
double dot_product(int64_t n, const T* x, int incx, const T* y, int incy) {
  if constexpr (std::is_same_v<T, double>) {
    return scipy_cblas_ddot(static_cast<blasint>(n), x, incx, y, incy);
  } else {
    return scipy_cblas_sdot(static_cast<blasint>(n), x, incx, y, incy);
  }
}

template <class T>
cublasStatus_t dot(cublasHandle_t handle, int n, const T* x, int incx, const T* y, int incy,
                   T* result) {
  const bool host = host_mode(handle);
  return on_stream(handle, host, [=]() -> Fault {
    if (!mapped(x, n, incx, sizeof(T))) return blas_fault("x", number(x));
    if (!mapped(y, n, incy, sizeof(T))) return blas_fault("y", number(y));
    if (!host && !mapped(result, 1, 1, sizeof(T))) return blas_fault("result", number(result));
    if (!host) about_to_write(result, 1);
    *result = static_cast<T>(dot_product(n, x, incx, y, incy));
    return {};
  });
}

std::vector<float> gather(const void* from, cudaDataType_t type, int64_t n, int64_t increment) {
  std::vector<float> out(static_cast<size_t>(n));
  const auto* at = static_cast<const uint8_t*>(from);
  if (increment < 0) at += (1 - n) * increment * static_cast<int64_t>(element_bytes(type));
  for (int64_t i = 0; i < n; ++i, at += increment * static_cast<int64_t>(element_bytes(type))) {
    load_floats(type, at, 1, &out[static_cast<size_t>(i)]);
  }
  return out;
}

template <class T>
struct Vector {
  T* data;
  int increment;
};

template <class T>
cublasStatus_t gemv(cublasHandle_t handle, cublasOperation_t op, int m, int n, const T* alpha,
                    const T* a, int lda, Vector<const T> x, const T* beta, Vector<T> y) {
  BlasHandle* h = blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!known(op) || m < 0 || n < 0 || lda < std::max(m, 1) || !x.increment || !y.increment) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool on_device = h->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
  const Factor fa = make_factor(alpha, kTypeOf<T>, on_device),
               fb = make_factor(beta, kTypeOf<T>, on_device);
  return on_stream(handle, false, [=]() -> Fault {
    const bool plain = op == CUBLAS_OP_N;
    if (!mapped(x.data, plain ? n : m, x.increment, sizeof(T))) {
      return blas_fault("x", number(x.data));
    }
    if (!mapped(y.data, plain ? m : n, y.increment, sizeof(T))) {
      return blas_fault("y", number(y.data));
    }
    if (!mapped(a, n ? int64_t{lda} * (n - 1) + m : 0, 1, sizeof(T))) {
      return blas_fault("matrix A", number(a));
    }
    Factor scale = fa, keep = fb;
    if (!resolve(&scale)) return blas_fault("alpha", fa.device_address);
    if (!resolve(&keep)) return blas_fault("beta", fb.device_address);
    about_to_write(y.data, plain ? m : n, y.increment);
    const auto trans = plain ? CblasNoTrans : CblasTrans;
    if constexpr (std::is_same_v<T, double>) {
      scipy_cblas_dgemv(CblasColMajor, trans, m, n, scale.real, a, lda, x.data, x.increment,
                        keep.real, y.data, y.increment);
    } else {
      scipy_cblas_sgemv(CblasColMajor, trans, m, n, static_cast<float>(scale.real), a, lda, x.data,
                        x.increment, static_cast<float>(keep.real), y.data, y.increment);
    }
    return {};
  });
}

template <class T>
cublasStatus_t axpy(cublasHandle_t handle, int n, const T* alpha, const T* x, int incx, T* y,
                    int incy) {
  BlasHandle* h = blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Factor given = make_factor(alpha, kTypeOf<T>, !host_mode(handle));
  return on_stream(handle, false, [=]() -> Fault {
    if (!mapped(x, n, incx, sizeof(T))) return blas_fault("x", number(x));
    if (!mapped(y, n, incy, sizeof(T))) return blas_fault("y", number(y));
    Factor f = given;
    if (!resolve(&f)) return blas_fault("alpha", f.device_address);
    about_to_write(y, n, incy);
    if constexpr (std::is_same_v<T, double>) {
      scipy_cblas_daxpy(n, f.real, x, incx, y, incy);
    } else {
      scipy_cblas_saxpy(n, static_cast<float>(f.real), x, incx, y, incy);
    }
    return {};
  });
}

template <class T>
cublasStatus_t scal(cublasHandle_t handle, int n, const T* alpha, T* x, int incx) {
  BlasHandle* h = blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Factor given = make_factor(alpha, kTypeOf<T>, !host_mode(handle));
  return on_stream(handle, false, [=]() -> Fault {
    if (n <= 0 || incx <= 0) return {};  // as BLAS has it
    if (!mapped(x, n, incx, sizeof(T))) return blas_fault("x", number(x));
    Factor f = given;
    if (!resolve(&f)) return blas_fault("alpha", f.device_address);
    about_to_write(x, n, incx);
    for (int64_t i = 0; i < n; ++i) x[i * incx] *= static_cast<T>(f.real);
    return {};
  });
}

template <class T>
cublasStatus_t nrm2(cublasHandle_t handle, int n, const T* x, int incx, T* result) {
  const bool host = host_mode(handle);
  return on_stream(handle, host, [=]() -> Fault {
    if (!mapped(x, n, incx, sizeof(T))) return blas_fault("x", number(x));
    if (!host && !mapped(result, 1, 1, sizeof(T))) return blas_fault("result", number(result));
    if (!host) about_to_write(result, 1);
    if constexpr (std::is_same_v<T, double>) {
      *result = scipy_cblas_dnrm2(n, x, incx);
    } else {
      *result = scipy_cblas_snrm2(n, x, incx);
    }
    return {};
  });
}

template <class T>
void solve(const Triangle& t, T alpha, const T* a, int lda, T* b, int ldb) {
  const auto side = t.side == CUBLAS_SIDE_LEFT ? CblasLeft : CblasRight;
  const auto uplo = t.uplo == CUBLAS_FILL_MODE_UPPER ? CblasUpper : CblasLower;
  const auto trans = t.op == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
  const auto diag = t.diag == CUBLAS_DIAG_UNIT ? CblasUnit : CblasNonUnit;
  if constexpr (std::is_same_v<T, double>) {
    scipy_cblas_dtrsm(CblasColMajor, side, uplo, trans, diag, t.m, t.n, alpha, a, lda, b, ldb);
  } else {
    scipy_cblas_strsm(CblasColMajor, side, uplo, trans, diag, t.m, t.n, alpha, a, lda, b, ldb);
  }
}

template <class T>
Fault checked_solve(const Triangle& t, T alpha, const T* a, int lda, T* b, int ldb) {
  const int order = t.order();
  if (order == 0 || t.m == 0 || t.n == 0) return {};
  if (!mapped(a, int64_t{lda} * (order - 1) + order, 1, sizeof(T))) {
    return blas_fault("matrix A", number(a));
  }
  if (!mapped(b, int64_t{ldb} * (t.n - 1) + t.m, 1, sizeof(T))) {
    return blas_fault("matrix B", number(b));
  }
  about_to_write(number(b), static_cast<uint64_t>(t.m) * sizeof(T), static_cast<uint64_t>(t.n),
                 static_cast<uint64_t>(ldb) * sizeof(T));
  solve(t, alpha, a, lda, b, ldb);
  return {};
}

// `batch` < 0: one solve, `a` and `b` are the matrices themselves.
template <class T>
cublasStatus_t trsm(cublasHandle_t handle, const Triangle& t, const T* alpha, const void* a,
                    int lda, const void* b, int ldb, int batch) {
  if (!blas_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!t.valid(lda, ldb)) return CUBLAS_STATUS_INVALID_VALUE;
  const Factor given = make_factor(alpha, kTypeOf<T>, !host_mode(handle));
  return on_stream(handle, false, [=]() -> Fault {
    if (t.m == 0 || t.n == 0) return {};  // then the arrays may be missing, too
    Factor f = given;
    if (!resolve(&f)) return blas_fault("alpha", f.device_address);
    const T scale = static_cast<T>(f.real);
    if (batch < 0) {
      return checked_solve<T>(t, scale, static_cast<const T*>(a), lda,
                              static_cast<T*>(const_cast<void*>(b)), ldb);
    }
    const auto* as = static_cast<const T* const*>(a);
    const auto* bs = static_cast<T* const*>(b);
    for (int i = 0; i < batch; ++i) {
      if (!mapped(&as[i], 1, 1, sizeof(T*)) || !mapped(&bs[i], 1, 1, sizeof(T*))) {
        return blas_fault("a pointer array", number(&as[i]));
      }
      if (Fault bad = checked_solve<T>(t, scale, as[i], lda, bs[i], ldb)) return bad;
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

SOFTGPU_API cublasStatus_t cublasSdot_v2(cublasHandle_t h, int n, const float* x, int incx,
                                         const float* y, int incy, float* result) {
  return api::dot(h, n, x, incx, y, incy, result);
}

SOFTGPU_API cublasStatus_t cublasDdot_v2(cublasHandle_t h, int n, const double* x, int incx,
                                         const double* y, int incy, double* result) {
  return api::dot(h, n, x, incx, y, incy, result);
}

// 16-bit inputs, summed in 32 bits.
SOFTGPU_API cublasStatus_t cublasDotEx(cublasHandle_t h, int n, const void* x, cudaDataType xt,
                                       int incx, const void* y, cudaDataType yt, int incy,
                                       void* result, cudaDataType rt, cudaDataType) {
  const auto supported = [](cudaDataType t) { return t == CUDA_R_32F || api::is_half(t); };
  if (!supported(xt) || !supported(yt) || !supported(rt)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool host = api::host_mode(h);
  return api::on_stream(h, host, [=]() -> softgpu::Fault {
    if (!api::mapped(x, n, incx, api::element_bytes(xt))) {
      return api::blas_fault("x", api::number(x));
    }
    if (!api::mapped(y, n, incy, api::element_bytes(yt))) {
      return api::blas_fault("y", api::number(y));
    }
    if (!host && !api::mapped(result, 1, 1, api::element_bytes(rt))) {
      return api::blas_fault("result", api::number(result));
    }
    const int count = std::max(n, 0);
    const auto fx = api::gather(x, xt, count, incx), fy = api::gather(y, yt, count, incy);
    const auto sum = static_cast<float>(api::dot_product(count, fx.data(), 1, fy.data(), 1));
    if (!host) softgpu::about_to_write(api::number(result), api::element_bytes(rt));
    api::store_floats(rt, &sum, 1, result);
    return {};
  });
}

SOFTGPU_API cublasStatus_t cublasSgemv_v2(cublasHandle_t h, op trans, int m, int n,
                                          const float* alpha, const float* a, int lda,
                                          const float* x, int incx, const float* beta, float* y,
                                          int incy) {
  return api::gemv<float>(h, trans, m, n, alpha, a, lda, {x, incx}, beta, {y, incy});
}

SOFTGPU_API cublasStatus_t cublasDgemv_v2(cublasHandle_t h, op trans, int m, int n,
                                          const double* alpha, const double* a, int lda,
                                          const double* x, int incx, const double* beta, double* y,
                                          int incy) {
  return api::gemv<double>(h, trans, m, n, alpha, a, lda, {x, incx}, beta, {y, incy});
}

SOFTGPU_API cublasStatus_t cublasSaxpy_v2(cublasHandle_t h, int n, const float* alpha,
                                          const float* x, int incx, float* y, int incy) {
  return api::axpy(h, n, alpha, x, incx, y, incy);
}

SOFTGPU_API cublasStatus_t cublasDaxpy_v2(cublasHandle_t h, int n, const double* alpha,
                                          const double* x, int incx, double* y, int incy) {
  return api::axpy(h, n, alpha, x, incx, y, incy);
}

SOFTGPU_API cublasStatus_t cublasSscal_v2(cublasHandle_t h, int n, const float* alpha, float* x,
                                          int incx) {
  return api::scal(h, n, alpha, x, incx);
}

SOFTGPU_API cublasStatus_t cublasDscal_v2(cublasHandle_t h, int n, const double* alpha, double* x,
                                          int incx) {
  return api::scal(h, n, alpha, x, incx);
}

SOFTGPU_API cublasStatus_t cublasSnrm2_v2(cublasHandle_t h, int n, const float* x, int incx,
                                          float* result) {
  return api::nrm2(h, n, x, incx, result);
}

SOFTGPU_API cublasStatus_t cublasDnrm2_v2(cublasHandle_t h, int n, const double* x, int incx,
                                          double* result) {
  return api::nrm2(h, n, x, incx, result);
}

SOFTGPU_API cublasStatus_t cublasStrsm_v2(cublasHandle_t h, side_mode side, fill_mode uplo,
                                          op trans, diag_type diag, int m, int n,
                                          const float* alpha, const float* a, int lda, float* b,
                                          int ldb) {
  return api::trsm<float>(h, {side, uplo, trans, diag, m, n}, alpha, a, lda, b, ldb, -1);
}

SOFTGPU_API cublasStatus_t cublasDtrsm_v2(cublasHandle_t h, side_mode side, fill_mode uplo,
                                          op trans, diag_type diag, int m, int n,
                                          const double* alpha, const double* a, int lda, double* b,
                                          int ldb) {
  return api::trsm<double>(h, {side, uplo, trans, diag, m, n}, alpha, a, lda, b, ldb, -1);
}

SOFTGPU_API cublasStatus_t cublasStrsmBatched(cublasHandle_t h, side_mode side, fill_mode uplo,
                                              op trans, diag_type diag, int m, int n,
                                              const float* alpha, const float* const a[], int lda,
                                              float* const b[], int ldb, int batch) {
  if (batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
  return api::trsm<float>(h, {side, uplo, trans, diag, m, n}, alpha, a, lda, b, ldb, batch);
}

SOFTGPU_API cublasStatus_t cublasDtrsmBatched(cublasHandle_t h, side_mode side, fill_mode uplo,
                                              op trans, diag_type diag, int m, int n,
                                              const double* alpha, const double* const a[], int lda,
                                              double* const b[], int ldb, int batch) {
  if (batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
  return api::trsm<double>(h, {side, uplo, trans, diag, m, n}, alpha, a, lda, b, ldb, batch);
}

SOFTGPU_API cublasStatus_t cublasAxpyEx(cublasHandle_t h, int n, const void* alpha, cudaDataType at,
                                        const void* x, cudaDataType xt, int incx, void* y,
                                        cudaDataType yt, int incy, cudaDataType et) {
  if (at == CUDA_R_64F && xt == at && yt == at && et == at) {
    return api::axpy(h, n, static_cast<const double*>(alpha), static_cast<const double*>(x), incx,
                     static_cast<double*>(y), incy);
  }
  if (at != CUDA_R_32F || xt != at || yt != at || et != at) return CUBLAS_STATUS_NOT_SUPPORTED;
  return api::axpy(h, n, static_cast<const float*>(alpha), static_cast<const float*>(x), incx,
                   static_cast<float*>(y), incy);
}

SOFTGPU_API cublasStatus_t cublasScalEx(cublasHandle_t h, int n, const void* alpha, cudaDataType at,
                                        void* x, cudaDataType xt, int incx, cudaDataType et) {
  if (at == CUDA_R_64F && xt == at && et == at) {
    return api::scal(h, n, static_cast<const double*>(alpha), static_cast<double*>(x), incx);
  }
  if (at != CUDA_R_32F || xt != at || et != at) return CUBLAS_STATUS_NOT_SUPPORTED;
  return api::scal(h, n, static_cast<const float*>(alpha), static_cast<float*>(x), incx);
}
