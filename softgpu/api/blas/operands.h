// Where the matrices of a product lie, and their content as 32-bit floats.
#ifndef SOFTGPU_API_BLAS_OPERANDS_H_
#define SOFTGPU_API_BLAS_OPERANDS_H_

#include <cblas.h>

#include <vector>

#include "api/blas/blas.h"

namespace softgpu::api {

struct Shape {
  int64_t rows, cols;
  uint64_t bytes(const Matrix& m) const {
    if (rows == 0 || cols == 0) return 0;
    return static_cast<uint64_t>((cols - 1) * m.ld + rows) * element_bytes(m.type);
  }
};
// As stored, that is before transposition.
inline Shape shape_a(const Gemm& g) {
  return g.transa == CUBLAS_OP_N ? Shape{g.m, g.k} : Shape{g.k, g.m};
}
inline Shape shape_b(const Gemm& g) {
  return g.transb == CUBLAS_OP_N ? Shape{g.k, g.n} : Shape{g.n, g.k};
}

// One matrix of each operand's batch. C is only set if it is read.
struct Addresses {
  uint64_t a, b, c, d;
};

CBLAS_TRANSPOSE cblas_op(cublasOperation_t op);
// The address of matrix `index` of a batch, with its whole extent checked.
bool locate(const Matrix& matrix, const Shape& shape, int64_t index, uint64_t* address);
// Reads a factor that lies on the device.
bool resolve(Factor* factor);
// Without gaps between the columns.
std::vector<float> load_matrix(const Matrix& matrix, const Shape& shape, uint64_t address);
void store_matrix(const Matrix& matrix, const Shape& shape, const float* from, uint64_t address);

// alpha * product + beta * C for 32-bit values, where the factors may differ from row to row.
bool factors_reachable(const Gemm& gemm);
void combine(const Gemm& gemm, const Addresses& at, float* product);

// 8-bit integers, summed exactly in 32 bits.
bool is_integer(const Gemm& gemm);
cublasStatus_t check_integer_gemm(const Gemm& gemm);
void integer_gemm(const Gemm& gemm, const Addresses& at, const Epilogue& epilogue, int64_t index);

}  // namespace softgpu::api

#endif  // SOFTGPU_API_BLAS_OPERANDS_H_
