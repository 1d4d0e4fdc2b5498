// A product of floating-point matrices on the host's BLAS.
#include <cstring>

#include "api/blas/operands.h"
#include "api/blas/upset.h"
#include "api/support.h"
#include "core/config.h"
#include "fault/written.h"

namespace softgpu::api {
namespace {

void sgemm(const Gemm& g, float alpha, const float* a, int64_t lda, const float* b, int64_t ldb,
           float beta, float* c, int64_t ldc) {
  scipy_cblas_sgemm(CblasColMajor, cblas_op(g.transa), cblas_op(g.transb),
                    static_cast<blasint>(g.m), static_cast<blasint>(g.n), static_cast<blasint>(g.k),
                    alpha, a, static_cast<blasint>(lda), b, static_cast<blasint>(ldb), beta, c,
                    static_cast<blasint>(ldc));
}

const float* floats(uint64_t address) {
  return reinterpret_cast<const float*>(address);
}

// 16-bit inputs, or an epilogue: everything in 32-bit copies.
void gemm_converted(const Gemm& g, const Addresses& at, const Epilogue& epilogue, int64_t index) {
  const Shape sa = shape_a(g), sb = shape_b(g), sd{g.m, g.n};
  std::vector<float> a, b, product;
  const float* pa = floats(at.a);
  const float* pb = floats(at.b);
  int64_t lda = g.a.ld, ldb = g.b.ld;
  if (is_half(g.a.type)) {
    a = load_matrix(g.a, sa, at.a);
    pa = a.data();
    lda = std::max<int64_t>(sa.rows, 1);
  }
  if (is_half(g.b.type)) {
    b = load_matrix(g.b, sb, at.b);
    pb = b.data();
    ldb = std::max<int64_t>(sb.rows, 1);
  }
  const bool by_row = g.alphas || g.betas;
  const bool keep = g.reads_c() && !by_row;
  if (keep) {
    product = load_matrix(g.c, sd, at.c);
  } else {
    product.resize(static_cast<size_t>(g.m * g.n));
  }
  const float alpha = by_row ? 1 : static_cast<float>(g.alpha.real);
  const float beta = keep ? static_cast<float>(g.beta.real) : 0;
  sgemm(g, alpha, pa, lda, pb, ldb, beta, product.data(), g.m);
  upset_product(g, at, index, product.data(), g.m);
  if (by_row) combine(g, at, product.data());
  if (!epilogue.none) epilogue.apply(product.data(), g.m, index);
  store_matrix(g.d, sd, product.data(), at.d);
}

// C and D of the same type; without this D would be computed from old content.
void copy_c_to_d(const Gemm& g, const Addresses& at) {
  if (g.in_place() || !g.reads_c()) return;
  const uint64_t size = element_bytes(g.c.type);
  for (int64_t col = 0; col < g.n; ++col) {
    std::memmove(pointer(at.d + static_cast<uint64_t>(col * g.d.ld) * size),
                 pointer(at.c + static_cast<uint64_t>(col * g.c.ld) * size),
                 static_cast<uint64_t>(g.m) * size);
  }
}

void gemm_direct(const Gemm& g, const Addresses& at, int64_t index) {
  copy_c_to_d(g, at);
  const auto ta = cblas_op(g.transa), tb = cblas_op(g.transb);
  const auto m = static_cast<blasint>(g.m), n = static_cast<blasint>(g.n),
             k = static_cast<blasint>(g.k), lda = static_cast<blasint>(g.a.ld),
             ldb = static_cast<blasint>(g.b.ld), ldd = static_cast<blasint>(g.d.ld);
  const float falpha[2] = {static_cast<float>(g.alpha.real), static_cast<float>(g.alpha.imaginary)};
  const float fbeta[2] = {static_cast<float>(g.beta.real), static_cast<float>(g.beta.imaginary)};
  const double dalpha[2] = {g.alpha.real, g.alpha.imaginary};
  const double dbeta[2] = {g.beta.real, g.beta.imaginary};
  void* d = pointer(at.d);
  switch (g.a.type) {
    case CUDA_R_32F:
      sgemm(g, falpha[0], floats(at.a), g.a.ld, floats(at.b), g.b.ld, fbeta[0],
            static_cast<float*>(d), g.d.ld);
      upset_product(g, at, index, static_cast<float*>(d), g.d.ld);
      break;
    case CUDA_R_64F:
      scipy_cblas_dgemm(
          CblasColMajor, ta, tb, m, n, k, g.alpha.real, reinterpret_cast<const double*>(at.a), lda,
          reinterpret_cast<const double*>(at.b), ldb, g.beta.real, static_cast<double*>(d), ldd);
      break;
    case CUDA_C_32F:
      scipy_cblas_cgemm(CblasColMajor, ta, tb, m, n, k, falpha, pointer(at.a), lda, pointer(at.b),
                        ldb, fbeta, d, ldd);
      break;
    default:
      scipy_cblas_zgemm(CblasColMajor, ta, tb, m, n, k, dalpha, pointer(at.a), lda, pointer(at.b),
                        ldb, dbeta, d, ldd);
  }
}

void multiply(const Gemm& g, const Addresses& at, const Epilogue& epilogue, int64_t index) {
  if (is_integer(g)) return integer_gemm(g, at, epilogue, index);
  const bool half =
      is_half(g.a.type) || is_half(g.b.type) || is_half(g.c.type) || is_half(g.d.type);
  if (half || !epilogue.none || g.alphas || g.betas) return gemm_converted(g, at, epilogue, index);
  gemm_direct(g, at, index);
}

}  // namespace

cublasStatus_t check_gemm(const Gemm& g) {
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (!known(g.transa) || !known(g.transb)) return CUBLAS_STATUS_INVALID_VALUE;
  const auto fits = [](const Matrix& m, int64_t rows) {
    return m.ld >= std::max<int64_t>(rows, 1);
  };
  if (!fits(g.a, shape_a(g).rows) || !fits(g.b, shape_b(g).rows) || !fits(g.d, g.m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (is_integer(g)) return check_integer_gemm(g);
  const auto real = [](cudaDataType_t t) { return t == CUDA_R_32F || is_half(t); };
  const bool mixed = real(g.a.type) && real(g.b.type) && real(g.c.type) && real(g.d.type);
  const bool same = g.a.type == g.b.type && g.a.type == g.c.type && g.a.type == g.d.type;
  const bool wide = g.a.type == CUDA_R_64F || g.a.type == CUDA_C_32F || g.a.type == CUDA_C_64F;
  return mixed || (same && wide && !g.alphas) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

Fault blas_fault(const char* what, uint64_t address) {
  char text[96];
  std::snprintf(text, sizeof text, "%s at [0x%llx] of a BLAS call is not mapped", what,
                static_cast<unsigned long long>(address));
  return {FaultKind::kIllegalAddress, text};
}

Fault run_gemm(const Gemm& given, const Epilogue& epilogue) {
  Gemm g = given;
  if (g.m == 0 || g.n == 0) return {};
  if (!resolve(&g.alpha)) return blas_fault("alpha", g.alpha.device_address);
  if (!resolve(&g.beta)) return blas_fault("beta", g.beta.device_address);
  if (!factors_reachable(g)) return blas_fault("a vector of factors", g.alphas);
  if (!epilogue.none && !epilogue.reachable()) return blas_fault("an epilogue operand", 0);
  for (int64_t i = 0; i < g.batch; ++i) {
    Addresses at{};
    if (g.k && !locate(g.a, shape_a(g), i, &at.a)) return blas_fault("matrix A", at.a);
    if (g.k && !locate(g.b, shape_b(g), i, &at.b)) return blas_fault("matrix B", at.b);
    if (g.reads_c() && !locate(g.c, {g.m, g.n}, i, &at.c)) return blas_fault("matrix C", at.c);
    if (!locate(g.d, {g.m, g.n}, i, &at.d)) return blas_fault("the result", at.d);
    const uint64_t element = element_bytes(g.d.type);
    about_to_write(at.d, static_cast<uint64_t>(g.m) * element, static_cast<uint64_t>(g.n),
                   static_cast<uint64_t>(g.d.ld) * element);
    multiply(g, at, epilogue, i);
  }
  return {};
}

void prepare_host_blas() {
  static const bool done = [] {
    scipy_openblas_set_num_threads(config().blas_threads);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace softgpu::api
