#include <cblas.h>

#include <bit>
#include <cstring>
#include <vector>

#include "api/blas.h"
#include "api/support.h"
#include "core/config.h"
#include "core/pointers.h"

namespace softgpu::api {
namespace {

float half_to_float(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31,
                 mantissa = bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7fff);
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to infinity
  if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 leaves the result's bits, correctly rounded, at the low end.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

uint16_t float_to_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

struct Shape {
  int64_t rows, cols;
  uint64_t bytes(const Matrix& m) const {
    if (rows == 0 || cols == 0) return 0;
    return static_cast<uint64_t>((cols - 1) * m.ld + rows) * element_bytes(m.type);
  }
};

Shape shape_a(const Gemm& g) {
  return g.transa == CUBLAS_OP_N ? Shape{g.m, g.k} : Shape{g.k, g.m};
}
Shape shape_b(const Gemm& g) {
  return g.transb == CUBLAS_OP_N ? Shape{g.k, g.n} : Shape{g.n, g.k};
}

CBLAS_TRANSPOSE cblas_op(cublasOperation_t op) {
  if (op == CUBLAS_OP_N) return CblasNoTrans;
  return op == CUBLAS_OP_T ? CblasTrans : CblasConjTrans;
}

// The address of matrix `index` of a batch, with its whole extent checked.
bool locate(const Matrix& matrix, const Shape& shape, int64_t index, uint64_t* address) {
  if (matrix.pointers) {
    const uint64_t slot = matrix.address + static_cast<uint64_t>(index) * sizeof(uint64_t);
    if (!pointers().covers(slot, sizeof(uint64_t))) return false;
    std::memcpy(address, pointer(slot), sizeof *address);
  } else {
    const int64_t bytes = index * matrix.stride * static_cast<int64_t>(element_bytes(matrix.type));
    *address = matrix.address + static_cast<uint64_t>(bytes);
  }
  return pointers().covers(*address, shape.bytes(matrix));
}

bool resolve(Factor* factor) {
  if (!factor->device_address) return true;
  if (!pointers().covers(factor->device_address, element_bytes(factor->type))) return false;
  *factor = make_factor(pointer(factor->device_address), factor->type, false);
  return true;
}

std::vector<float> load_matrix(const Matrix& matrix, const Shape& shape, uint64_t address) {
  std::vector<float> out(static_cast<size_t>(shape.rows * shape.cols));
  const int64_t step = matrix.ld * static_cast<int64_t>(element_bytes(matrix.type));
  for (int64_t col = 0; col < shape.cols; ++col) {
    load_floats(matrix.type, pointer(address + static_cast<uint64_t>(col * step)), shape.rows,
                out.data() + col * shape.rows);
  }
  return out;
}

struct Addresses {
  uint64_t a, b, c, d;
};

void sgemm(const Gemm& g, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
           float* c, int64_t ldc) {
  scipy_cblas_sgemm(CblasColMajor, cblas_op(g.transa), cblas_op(g.transb),
                    static_cast<blasint>(g.m), static_cast<blasint>(g.n), static_cast<blasint>(g.k),
                    static_cast<float>(g.alpha.real), a, static_cast<blasint>(lda), b,
                    static_cast<blasint>(ldb), beta, c, static_cast<blasint>(ldc));
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
  const bool keep = g.beta.real != 0;
  if (keep) {
    product = load_matrix(g.c, sd, at.c);
  } else {
    product.resize(static_cast<size_t>(g.m * g.n));
  }
  sgemm(g, pa, lda, pb, ldb, static_cast<float>(g.beta.real), product.data(), g.m);
  if (!epilogue.none) epilogue.apply(product.data(), g.m, index);
  const int64_t step = g.d.ld * static_cast<int64_t>(element_bytes(g.d.type));
  for (int64_t col = 0; col < g.n; ++col) {
    store_floats(g.d.type, product.data() + col * g.m, g.m,
                 pointer(at.d + static_cast<uint64_t>(col * step)));
  }
}

// C and D of the same type; without this D would be computed from old content.
void copy_c_to_d(const Gemm& g, const Addresses& at) {
  if (g.in_place() || (g.beta.real == 0 && g.beta.imaginary == 0)) return;
  const uint64_t size = element_bytes(g.c.type);
  for (int64_t col = 0; col < g.n; ++col) {
    std::memmove(pointer(at.d + static_cast<uint64_t>(col * g.d.ld) * size),
                 pointer(at.c + static_cast<uint64_t>(col * g.c.ld) * size),
                 static_cast<uint64_t>(g.m) * size);
  }
}

void gemm_direct(const Gemm& g, const Addresses& at) {
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
      sgemm(g, floats(at.a), g.a.ld, floats(at.b), g.b.ld, fbeta[0], static_cast<float*>(d),
            g.d.ld);
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

}  // namespace

size_t element_bytes(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_64F:
    case CUDA_C_32F:
      return 8;
    case CUDA_C_64F:
      return 16;
    default:
      return 1;
  }
}

bool is_half(cudaDataType_t type) {
  return type == CUDA_R_16F || type == CUDA_R_16BF;
}

void load_floats(cudaDataType_t type, const void* from, int64_t count, float* to) {
  const auto* half = static_cast<const uint16_t*>(from);
  if (type == CUDA_R_32F) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else if (type == CUDA_R_16BF) {
    for (int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(uint32_t{half[i]} << 16);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = half_to_float(half[i]);
  }
}

void store_floats(cudaDataType_t type, const float* from, int64_t count, void* to) {
  auto* half = static_cast<uint16_t*>(to);
  if (type == CUDA_R_32F) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else if (type == CUDA_R_16BF) {
    for (int64_t i = 0; i < count; ++i) half[i] = float_to_bfloat(from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) half[i] = float_to_half(from[i]);
  }
}

Factor make_factor(const void* from, cudaDataType_t type, bool on_device) {
  Factor factor;
  factor.type = type;
  if (on_device) {
    factor.device_address = number(from);
    return factor;
  }
  float single = 0, single_pair[2] = {};
  double pair[2] = {};
  switch (type) {
    case CUDA_R_64F:
      std::memcpy(&factor.real, from, sizeof factor.real);
      break;
    case CUDA_C_32F:
      std::memcpy(single_pair, from, sizeof single_pair);
      factor.real = single_pair[0];
      factor.imaginary = single_pair[1];
      break;
    case CUDA_C_64F:
      std::memcpy(pair, from, sizeof pair);
      factor.real = pair[0];
      factor.imaginary = pair[1];
      break;
    default:
      load_floats(type, from, 1, &single);
      factor.real = single;
  }
  return factor;
}

cublasStatus_t check_gemm(const Gemm& g) {
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
  const auto fits = [](const Matrix& m, int64_t rows) {
    return m.ld >= std::max<int64_t>(rows, 1);
  };
  if (!fits(g.a, shape_a(g).rows) || !fits(g.b, shape_b(g).rows) || !fits(g.d, g.m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto real = [](cudaDataType_t t) { return t == CUDA_R_32F || is_half(t); };
  const bool mixed = real(g.a.type) && real(g.b.type) && real(g.c.type) && real(g.d.type);
  const bool same = g.a.type == g.b.type && g.a.type == g.c.type && g.a.type == g.d.type;
  const bool wide = g.a.type == CUDA_R_64F || g.a.type == CUDA_C_32F || g.a.type == CUDA_C_64F;
  return mixed || (same && wide) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
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
  if (!epilogue.none && !epilogue.reachable()) return blas_fault("an epilogue operand", 0);
  const bool converted = is_half(g.a.type) || is_half(g.b.type) || is_half(g.c.type) ||
                         is_half(g.d.type) || !epilogue.none;
  const bool uses_c = g.beta.real != 0 || g.beta.imaginary != 0;
  for (int64_t i = 0; i < g.batch; ++i) {
    Addresses at{};
    if (g.k && !locate(g.a, shape_a(g), i, &at.a)) return blas_fault("matrix A", at.a);
    if (g.k && !locate(g.b, shape_b(g), i, &at.b)) return blas_fault("matrix B", at.b);
    if (uses_c && !locate(g.c, {g.m, g.n}, i, &at.c)) return blas_fault("matrix C", at.c);
    if (!locate(g.d, {g.m, g.n}, i, &at.d)) return blas_fault("the result", at.d);
    if (converted) {
      gemm_converted(g, at, epilogue, i);
    } else {
      gemm_direct(g, at);
    }
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
