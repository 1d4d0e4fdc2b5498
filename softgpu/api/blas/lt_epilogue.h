// What cublasLtMatmul does to a product before it stores it.
#ifndef SOFTGPU_API_BLAS_LT_EPILOGUE_H_
#define SOFTGPU_API_BLAS_LT_EPILOGUE_H_

#include "api/blas/blas.h"

namespace softgpu::api {

// The content of a cublasLtMatmulDesc_t.
struct MatmulDesc {
  int32_t compute_type, scale_type, pointer_mode, transa, transb, transc;
  uint32_t epilogue;
  int32_t bias_type;  // -1: that of D
  uint64_t bias;
  int64_t bias_stride;
  uint64_t aux;
  int64_t aux_ld, aux_stride;
};
// The bits that cublasLtEpilogue_t is made of.
inline constexpr uint32_t kRelu = 2, kBias = 4, kDrelu = 8, kBiasGradient = 16, kGelu = 32,
                          kDgelu = 64, kAux = 128, kGradientA = 256, kGradientB = 512,
                          kInputGradients = kGradientA | kGradientB;
// All of them, and CUBLASLT_EPILOGUE_DEFAULT.
inline constexpr uint32_t kEpilogues = 2 * kGradientB - 1;

struct Post {
  MatmulDesc desc;
  int64_t m, n, batch;
  cudaDataType_t bias_type, d_type;

  // Where the stored bits or inputs of a matrix of the batch begin, and how many bytes they take.
  uint64_t aux_address(int64_t index) const;
  uint64_t aux_bytes() const;
  bool reachable() const;
  void apply(float* product, int64_t ld, int64_t index) const;
  void add_bias(float* product, int64_t ld, int64_t index) const;
  void forward(float* product, int64_t ld, uint64_t aux) const;
  void backward(float* product, int64_t ld, uint64_t aux) const;
  void reduce_bias(const float* product, int64_t ld, int64_t index) const;
};

// The bias of products of doubles and complex numbers, after they are stored: epilogues work on
// 32-bit values. `stride` between the vectors of a batch, in elements.
Fault add_wide_bias(const Gemm& gemm, uint64_t bias, int64_t stride);

// Sums of the input matrices along the inner dimension, written where a bias would be read: for A
// one per row of the result, for B one per column.
Fault store_input_gradients(const Gemm& gemm, const MatmulDesc& desc);

}  // namespace softgpu::api

#endif  // SOFTGPU_API_BLAS_LT_EPILOGUE_H_
