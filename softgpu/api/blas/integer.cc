// Products of 8-bit integers. The sums are exact, as those of the integer tensor cores are.
#include <algorithm>

#include "api/blas/operands.h"
#include "api/support.h"

namespace softgpu::api {
namespace {

// (-128)^2 times this is 2^24: floats hold every sum of so many products exactly.
constexpr int64_t kExactSlice = 1024;

// Overflow wraps around.
void add(int32_t* sum, float exact) {
  *sum = static_cast<int32_t>(static_cast<uint32_t>(*sum) +
                              static_cast<uint32_t>(static_cast<int32_t>(exact)));
}

std::vector<int32_t> products(const Gemm& g, const Addresses& at) {
  std::vector<int32_t> sums(static_cast<size_t>(g.m * g.n));
  if (g.k == 0) return sums;
  const Shape sa = shape_a(g), sb = shape_b(g);
  const std::vector<float> a = load_matrix(g.a, sa, at.a), b = load_matrix(g.b, sb, at.b);
  std::vector<float> slice(sums.size());
  for (int64_t k = 0; k < g.k; k += kExactSlice) {
    const int64_t depth = std::min(kExactSlice, g.k - k);
    const float* pa = a.data() + (g.transa == CUBLAS_OP_N ? k * sa.rows : k);
    const float* pb = b.data() + (g.transb == CUBLAS_OP_N ? k : k * sb.rows);
    scipy_cblas_sgemm(CblasColMajor, cblas_op(g.transa), cblas_op(g.transb),
                      static_cast<blasint>(g.m), static_cast<blasint>(g.n),
                      static_cast<blasint>(depth), 1, pa, static_cast<blasint>(sa.rows), pb,
                      static_cast<blasint>(sb.rows), 0, slice.data(), static_cast<blasint>(g.m));
    for (size_t i = 0; i < sums.size(); ++i) add(&sums[i], slice[i]);
  }
  return sums;
}

// 32-bit results with whole-numbered factors.
void store_whole(const Gemm& g, const Addresses& at, const std::vector<int32_t>& sums) {
  const auto alpha = static_cast<uint32_t>(static_cast<int32_t>(g.alpha.real)),
             beta = static_cast<uint32_t>(static_cast<int32_t>(g.beta.real));
  for (int64_t col = 0; col < g.n; ++col) {
    auto* d = static_cast<uint32_t*>(pointer(at.d)) + col * g.d.ld;
    const auto* c = beta ? static_cast<const uint32_t*>(pointer(at.c)) + col * g.c.ld : nullptr;
    for (int64_t row = 0; row < g.m; ++row) {
      const auto sum = static_cast<uint32_t>(sums[static_cast<size_t>(col * g.m + row)]);
      d[row] = alpha * sum + (c ? beta * c[row] : 0);
    }
  }
}

bool is(const Matrix& matrix, cudaDataType_t type) {
  return matrix.type == type;
}

}  // namespace

bool is_integer(const Gemm& g) {
  return is(g.a, CUDA_R_8I) || is(g.b, CUDA_R_8I);
}

cublasStatus_t check_integer_gemm(const Gemm& g) {
  if (!is(g.a, CUDA_R_8I) || !is(g.b, CUDA_R_8I) || g.c.type != g.d.type) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool whole = is(g.d, CUDA_R_32I) && g.alpha.type == CUDA_R_32I && !g.alphas;
  const bool scaled = (is(g.d, CUDA_R_8I) || is(g.d, CUDA_R_32F)) && g.alpha.type == CUDA_R_32F;
  return whole || scaled ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

void integer_gemm(const Gemm& g, const Addresses& at, const Epilogue& epilogue, int64_t index) {
  const std::vector<int32_t> sums = products(g, at);
  if (is(g.d, CUDA_R_32I)) return store_whole(g, at, sums);
  std::vector<float> values(sums.begin(), sums.end());
  combine(g, at, values.data());
  if (!epilogue.none) epilogue.apply(values.data(), g.m, index);
  store_matrix(g.d, {g.m, g.n}, values.data(), at.d);
}

}  // namespace softgpu::api
