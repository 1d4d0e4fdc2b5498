#include "api/lt_epilogue.h"

#include <cmath>
#include <complex>
#include <vector>

#include "api/support.h"
#include "core/pointers.h"

namespace softgpu::api {
namespace {

// The tanh form, which is what cuBLASLt's GELU is.
float gelu(float x) {
  const float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + std::tanh(inner));
}

float gelu_gradient(float x) {
  const float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));
  const float inner = 0.7978845608f * (1.0f + 3 * 0.044715f * x * x);
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

uint64_t batch_address(uint64_t base, int64_t stride, int64_t index, cudaDataType_t type) {
  return base + static_cast<uint64_t>(stride * index * static_cast<int64_t>(element_bytes(type)));
}

template <class T>
Fault add_vector(const Gemm& g, uint64_t bias, int64_t stride) {
  for (int64_t i = 0; i < g.batch; ++i) {
    const uint64_t at = batch_address(bias, stride, i, g.d.type);
    if (!pointers().covers(at, static_cast<uint64_t>(g.m) * sizeof(T))) {
      return blas_fault("the bias", at);
    }
    const T* values = static_cast<const T*>(pointer(at));
    T* product = static_cast<T*>(pointer(batch_address(g.d.address, g.d.stride, i, g.d.type)));
    for (int64_t col = 0; col < g.n; ++col) {
      for (int64_t row = 0; row < g.m; ++row) product[col * g.d.ld + row] += values[row];
    }
  }
  return {};
}

}  // namespace

Fault add_wide_bias(const Gemm& gemm, uint64_t bias, int64_t stride) {
  if (gemm.d.type == CUDA_R_64F) return add_vector<double>(gemm, bias, stride);
  if (gemm.d.type == CUDA_C_32F) return add_vector<std::complex<float>>(gemm, bias, stride);
  return add_vector<std::complex<double>>(gemm, bias, stride);
}

bool Post::reachable() const {
  if ((desc.epilogue & (kBias | kBiasGradient)) &&
      !pointers().covers(desc.bias, static_cast<uint64_t>(m) * element_bytes(bias_type))) {
    return false;
  }
  return !(desc.epilogue & kAux) || pointers().covers(desc.aux, aux_bytes());
}

void Post::add_bias(float* product, int64_t ld, int64_t index) const {
  std::vector<float> bias(static_cast<size_t>(m));
  load_floats(bias_type, pointer(batch_address(desc.bias, desc.bias_stride, index, bias_type)), m,
              bias.data());
  for (int64_t col = 0; col < n; ++col) {
    for (int64_t row = 0; row < m; ++row) {
      product[col * ld + row] += bias[static_cast<size_t>(row)];
    }
  }
}

// Stores what the backward pass needs: a bit per element for ReLU, the input for GELU.
void Post::forward(float* product, int64_t ld, uint64_t aux) const {
  for (int64_t col = 0; col < n; ++col) {
    float* column = product + col * ld;
    if ((desc.epilogue & kGelu) && (desc.epilogue & kAux)) {
      store_floats(d_type, column, m, pointer(batch_address(aux, desc.aux_ld, col, d_type)));
    }
    for (int64_t row = 0; row < m; ++row) {
      if (desc.epilogue & kGelu) {
        column[row] = gelu(column[row]);
        continue;
      }
      const bool positive = column[row] > 0;
      if (desc.epilogue & kAux) {
        const int64_t bit = col * desc.aux_ld + row;
        auto* byte = static_cast<uint8_t*>(pointer(aux)) + bit / 8;
        *byte = static_cast<uint8_t>((*byte & ~(1 << bit % 8)) | (positive << bit % 8));
      }
      // A NaN stays one.
      if (!positive && !std::isnan(column[row])) column[row] = 0;
    }
  }
}

void Post::backward(float* product, int64_t ld, uint64_t aux) const {
  std::vector<float> input(static_cast<size_t>(m));
  for (int64_t col = 0; col < n; ++col) {
    float* column = product + col * ld;
    if (desc.epilogue & kDgelu) {
      load_floats(d_type, pointer(batch_address(aux, desc.aux_ld, col, d_type)), m, input.data());
    }
    for (int64_t row = 0; row < m; ++row) {
      if (desc.epilogue & kDgelu) {
        column[row] *= gelu_gradient(input[static_cast<size_t>(row)]);
        continue;
      }
      const int64_t bit = col * desc.aux_ld + row;
      const auto byte = static_cast<const uint8_t*>(pointer(aux))[bit / 8];
      if (!(byte >> (bit % 8) & 1)) column[row] = 0;
    }
  }
}

void Post::reduce_bias(const float* product, int64_t ld, int64_t index) const {
  std::vector<float> sums(static_cast<size_t>(m));
  for (int64_t col = 0; col < n; ++col) {
    for (int64_t row = 0; row < m; ++row) sums[static_cast<size_t>(row)] += product[col * ld + row];
  }
  store_floats(bias_type, sums.data(), m,
               pointer(batch_address(desc.bias, desc.bias_stride, index, bias_type)));
}

void Post::apply(float* product, int64_t ld, int64_t index) const {
  const uint64_t aux = desc.epilogue & (kRelu | kDrelu)
                           ? desc.aux + static_cast<uint64_t>(desc.aux_stride * index / 8)
                           : batch_address(desc.aux, desc.aux_stride, index, d_type);
  if (desc.epilogue & kBias) add_bias(product, ld, index);
  if (desc.epilogue & (kRelu | kGelu)) forward(product, ld, aux);
  if (desc.epilogue & (kDrelu | kDgelu)) backward(product, ld, aux);
  if (desc.epilogue & kBiasGradient) reduce_bias(product, ld, index);
}

}  // namespace softgpu::api
