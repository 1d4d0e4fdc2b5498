#include "api/blas/lt_epilogue.h"

#include <cmath>
#include <complex>
#include <vector>

#include "api/blas/operands.h"
#include "api/support.h"
#include "fault/written.h"
#include "memory/pointers.h"

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

// op(X) summed over its columns (A) or its rows (B), both of which run over k.
std::vector<float> sums_over_k(const Matrix& matrix, const Shape& shape, uint64_t address,
                               bool along_columns) {
  const std::vector<float> values = load_matrix(matrix, shape, address);
  std::vector<float> sums(static_cast<size_t>(along_columns ? shape.rows : shape.cols));
  for (int64_t col = 0; col < shape.cols; ++col) {
    for (int64_t row = 0; row < shape.rows; ++row) {
      sums[static_cast<size_t>(along_columns ? row : col)] +=
          values[static_cast<size_t>(col * shape.rows + row)];
    }
  }
  return sums;
}

}  // namespace

Fault store_input_gradients(const Gemm& g, const MatmulDesc& desc) {
  const bool of_a = desc.epilogue & kGradientA;
  const Matrix& matrix = of_a ? g.a : g.b;
  const Shape shape = of_a ? shape_a(g) : shape_b(g);
  const bool along_columns = of_a == ((of_a ? g.transa : g.transb) == CUBLAS_OP_N);
  const auto type = desc.bias_type < 0 ? g.d.type : static_cast<cudaDataType_t>(desc.bias_type);
  for (int64_t i = 0; i < g.batch; ++i) {
    uint64_t from = 0;
    if (!locate(matrix, shape, i, &from)) return blas_fault("an input", from);
    const std::vector<float> sums = sums_over_k(matrix, shape, from, along_columns);
    const uint64_t to = batch_address(desc.bias, desc.bias_stride, i, type);
    if (!pointers().covers(to, sums.size() * element_bytes(type))) {
      return blas_fault("the bias gradient", to);
    }
    about_to_write(to, sums.size() * element_bytes(type));
    store_floats(type, sums.data(), static_cast<int64_t>(sums.size()), pointer(to));
  }
  return {};
}

Fault add_wide_bias(const Gemm& gemm, uint64_t bias, int64_t stride) {
  if (gemm.d.type == CUDA_R_64F) return add_vector<double>(gemm, bias, stride);
  if (gemm.d.type == CUDA_C_32F) return add_vector<std::complex<float>>(gemm, bias, stride);
  return add_vector<std::complex<double>>(gemm, bias, stride);
}

uint64_t Post::aux_address(int64_t index) const {
  if (!(desc.epilogue & (kRelu | kDrelu))) {
    return batch_address(desc.aux, desc.aux_stride, index, d_type);
  }
  return desc.aux + static_cast<uint64_t>(desc.aux_stride * index / 8);
}

uint64_t Post::aux_bytes() const {
  const int64_t elements = n ? desc.aux_ld * (n - 1) + m : 0;
  if (desc.epilogue & (kRelu | kDrelu)) return static_cast<uint64_t>((elements + 7) / 8);
  return static_cast<uint64_t>(elements) * element_bytes(d_type);
}

bool Post::reachable() const {
  const uint64_t bias_bytes = static_cast<uint64_t>(m) * element_bytes(bias_type);
  for (int64_t i = 0; i < batch; ++i) {
    const uint64_t bias = batch_address(desc.bias, desc.bias_stride, i, bias_type);
    if ((desc.epilogue & (kBias | kBiasGradient)) && !pointers().covers(bias, bias_bytes)) {
      return false;
    }
    if ((desc.epilogue & kAux) && !pointers().covers(aux_address(i), aux_bytes())) return false;
  }
  return true;
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
  if (desc.epilogue & kAux) about_to_write(aux, aux_bytes());
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
  const uint64_t to = batch_address(desc.bias, desc.bias_stride, index, bias_type);
  about_to_write(to, static_cast<uint64_t>(m) * element_bytes(bias_type));
  store_floats(bias_type, sums.data(), m, pointer(to));
}

void Post::apply(float* product, int64_t ld, int64_t index) const {
  const uint64_t aux = aux_address(index);
  if (desc.epilogue & kBias) add_bias(product, ld, index);
  if (desc.epilogue & (kRelu | kGelu)) forward(product, ld, aux);
  if (desc.epilogue & (kDrelu | kDgelu)) backward(product, ld, aux);
  if (desc.epilogue & kBiasGradient) reduce_bias(product, ld, index);
}

}  // namespace softgpu::api
