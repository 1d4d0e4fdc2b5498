// The small float formats as bits, with the conversions of CUDA's headers: round to nearest even;
// fp8 from half, saturating to the largest finite value as CUDA's constructors do.
#ifndef FLEXCCL_REDUCE_FORMATS_H_
#define FLEXCCL_REDUCE_FORMATS_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace flexccl {

inline float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t rest = h & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  if (rest < 0x0400u) {
    const float value = static_cast<float>(rest) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
}

inline std::uint16_t float_to_half(float f) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return 0x7fffu;  // CUDA's one NaN
  if (rest >= 0x477ff000u) return sign | 0x7c00u;
  if (rest < 0x38800000u) {
    // Adding 0.5 leaves the half's subnormal bits, rounded, at the end of the float's mantissa.
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u);
  }
  const std::uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u) - 0x38000000u;
  return sign | static_cast<std::uint16_t>(rounded >> 13);
}

inline float bfloat_to_float(std::uint16_t b) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16);
}

inline std::uint16_t float_to_bfloat(float f) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// e4m3 has no infinity: 0x7f is NaN, 0x7e (448) the largest value. e5m2 is a half cut short.
inline float e4m3_to_float(std::uint8_t v) {
  const int exponent = (v >> 3) & 15, mantissa = v & 7;
  const float sign = v & 0x80 ? -1.0f : 1.0f;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(0x7fffffffu);
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1p-9f;
  return sign * std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
}

inline std::uint8_t float_to_e4m3(float f) {
  const std::uint8_t sign = std::signbit(f) ? 0x80 : 0;
  const float size = std::fabs(f);
  if (std::isnan(f)) return 0x7f;
  if (size >= 448.0f) return sign | 0x7e;
  if (size < 0x1p-6f) return sign | static_cast<std::uint8_t>(std::nearbyint(size * 0x1p9f));
  std::uint32_t bits = std::bit_cast<std::uint32_t>(size);
  bits += 0x7ffffu + ((bits >> 20) & 1u);
  const std::uint8_t code = static_cast<std::uint8_t>((bits >> 20) - ((127 - 7) << 3));
  return sign | (code > 0x7e ? 0x7e : code);
}

inline float e5m2_to_float(std::uint8_t v) {
  return half_to_float(static_cast<std::uint16_t>(v << 8));
}

inline std::uint8_t float_to_e5m2(float f) {
  if (std::isnan(f)) return 0x7f;
  const std::uint8_t sign = std::signbit(f) ? 0x80 : 0;
  if (std::fabs(f) >= 57344.0f) return sign | 0x7b;
  const std::uint32_t half = float_to_half(std::fabs(f));  // exact: callers round to half first
  const std::uint32_t rounded = (half + 0x7fu + ((half >> 8) & 1u)) >> 8;
  return sign | static_cast<std::uint8_t>(rounded > 0x7bu ? 0x7bu : rounded);
}

}  // namespace flexccl

#endif  // FLEXCCL_REDUCE_FORMATS_H_
