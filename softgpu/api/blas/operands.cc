#include "api/blas/operands.h"

#include <algorithm>
#include <cstring>

#include "api/support.h"
#include "memory/pointers.h"

namespace softgpu::api {
namespace {

// One factor per row, or the same one for all.
std::vector<float> row_factors(const Gemm& g, const Factor& factor, uint64_t vector) {
  std::vector<float> out(static_cast<size_t>(g.m), static_cast<float>(factor.real));
  if (vector) load_floats(CUDA_R_32F, pointer(vector), g.m, out.data());
  return out;
}

}  // namespace

bool Triangle::valid(int lda, int ldb) const {
  const bool sided = side == CUBLAS_SIDE_LEFT || side == CUBLAS_SIDE_RIGHT;
  const bool filled = uplo == CUBLAS_FILL_MODE_LOWER || uplo == CUBLAS_FILL_MODE_UPPER;
  const bool diagonal = diag == CUBLAS_DIAG_NON_UNIT || diag == CUBLAS_DIAG_UNIT;
  return sided && filled && diagonal && known(op) && m >= 0 && n >= 0 &&
         lda >= std::max(order(), 1) && ldb >= std::max(m, 1);
}

CBLAS_TRANSPOSE cblas_op(cublasOperation_t op) {
  if (op == CUBLAS_OP_N) return CblasNoTrans;
  return op == CUBLAS_OP_T ? CblasTrans : CblasConjTrans;
}

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

void store_matrix(const Matrix& matrix, const Shape& shape, const float* from, uint64_t address) {
  const int64_t step = matrix.ld * static_cast<int64_t>(element_bytes(matrix.type));
  for (int64_t col = 0; col < shape.cols; ++col) {
    store_floats(matrix.type, from + col * shape.rows, shape.rows,
                 pointer(address + static_cast<uint64_t>(col * step)));
  }
}

bool factors_reachable(const Gemm& g) {
  const uint64_t bytes = static_cast<uint64_t>(g.m) * sizeof(float);
  return (!g.alphas || pointers().covers(g.alphas, bytes)) &&
         (!g.betas || pointers().covers(g.betas, bytes));
}

void combine(const Gemm& g, const Addresses& at, float* product) {
  const std::vector<float> alpha = row_factors(g, g.alpha, g.alphas),
                           beta = row_factors(g, g.beta, g.betas);
  std::vector<float> c;
  if (g.reads_c()) c = load_matrix(g.c, {g.m, g.n}, at.c);
  for (int64_t i = 0; i < g.m * g.n; ++i) {
    const auto row = static_cast<size_t>(i % g.m);
    product[i] *= alpha[row];
    // A factor of 0 means that C is not looked at, whatever it holds.
    if (!c.empty() && beta[row] != 0) product[i] += beta[row] * c[static_cast<size_t>(i)];
  }
}

}  // namespace softgpu::api
