// Upsets and stuck bits in products.
#ifndef SOFTGPU_API_BLAS_UPSET_H_
#define SOFTGPU_API_BLAS_UPSET_H_

#include "api/blas/operands.h"

namespace softgpu::api {

// To be called when a product of floats is computed, and before anything else is done to it.
// `product` has m rows in columns of `ld`, without what becomes of it by rounding to a shorter
// type. Does nothing unless it was asked for.
void upset_product(const Gemm& gemm, const Addresses& at, int64_t index, float* product,
                   int64_t ld);

}  // namespace softgpu::api

#endif  // SOFTGPU_API_BLAS_UPSET_H_
