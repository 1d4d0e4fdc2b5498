// Element formats of BLAS operands and their conversion to 32-bit floats.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "api/blas/blas.h"
#include "api/support.h"

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

int8_t float_to_byte(float value) {
  if (std::isnan(value)) return 0;
  return static_cast<int8_t>(std::nearbyint(std::clamp(value, -128.f, 127.f)));
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
  } else if (type == CUDA_R_8I) {
    std::copy_n(static_cast<const int8_t*>(from), count, to);
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
  } else if (type == CUDA_R_8I) {
    auto* bytes = static_cast<int8_t*>(to);
    for (int64_t i = 0; i < count; ++i) bytes[i] = float_to_byte(from[i]);
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
  int32_t whole = 0;
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
    case CUDA_R_32I:
      std::memcpy(&whole, from, sizeof whole);
      factor.real = whole;
      break;
    default:
      load_floats(type, from, 1, &single);
      factor.real = single;
  }
  return factor;
}

}  // namespace softgpu::api
