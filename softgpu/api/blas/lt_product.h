// What a cublasLtMatmul call asks for, and putting it on a stream.
#ifndef SOFTGPU_API_BLAS_LT_PRODUCT_H_
#define SOFTGPU_API_BLAS_LT_PRODUCT_H_

#include "api/blas/lt_epilogue.h"

namespace softgpu::api {

// The content of a cublasLtMatrixLayout_t. Plain data, so that a copy of the struct is a copy.
struct Layout {
  uint32_t type;
  int32_t order;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batch;
  int32_t reserved;
  int64_t stride;
};
struct Operands {
  const void *alpha, *a, *b, *beta, *c;
  void* d;
};
struct Layouts {
  Layout a, b, c, d;
};

// The product of these descriptors, still without addresses and factors; says what is unsupported.
cublasStatus_t make_product(const MatmulDesc& desc, const Layouts& layouts, Gemm* gemm);
cublasStatus_t matmul(const MatmulDesc& desc, const Layouts& layouts, const Operands& at,
                      int device, cudaStream_t stream);

}  // namespace softgpu::api

#endif  // SOFTGPU_API_BLAS_LT_PRODUCT_H_
