// The small float formats as bits, with the conversions of CUDA's headers: round to nearest even;
// fp8 from half, saturating to the largest finite value as CUDA's constructors do.
//
// Every function computes all cases and selects one, without branches and tables, so that loops
// around it become vector code.
#ifndef FLEXCCL_REDUCE_FORMATS_H_
#define FLEXCCL_REDUCE_FORMATS_H_

#include <bit>
#include <cstdint>

namespace flexccl {

// The conversions go into loops compiled for several instruction sets, so they must be inlined.
#define FLEXCCL_INLINE [[gnu::always_inline]] inline

FLEXCCL_INLINE std::uint32_t bits_of(float f) {
  return std::bit_cast<std::uint32_t>(f);
}
FLEXCCL_INLINE float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
// `yes` if a < b, else `no`; a and b below 2^31. Arithmetic instead of `?:`, of which the compiler
// makes branches as soon as one side is a float operation.
FLEXCCL_INLINE std::uint32_t if_less(std::uint32_t a, std::uint32_t b, std::uint32_t yes,
                                     std::uint32_t no) {
  const auto mask = static_cast<std::uint32_t>(static_cast<std::int32_t>(a - b) >> 31);
  return no ^ ((yes ^ no) & mask);
}
// Small numbers as signed: vector units convert those.
FLEXCCL_INLINE float float_of_small(std::uint32_t value) {
  return static_cast<float>(static_cast<std::int32_t>(value));
}

FLEXCCL_INLINE float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, rest = h & 0x7fffu;
  const std::uint32_t normal = (rest << 13) + 0x38000000u;
  const std::uint32_t special = 0x7f800000u | (rest << 13);  // infinity and NaN
  const std::uint32_t tiny = bits_of(float_of_small(rest) * 0x1p-24f);
  const std::uint32_t finite = if_less(rest, 0x0400u, tiny, normal);
  return float_of(sign | if_less(rest, 0x7c00u, finite, special));
}

FLEXCCL_INLINE std::uint16_t float_to_half(float f) {
  const std::uint32_t bits = bits_of(f);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
  const std::uint32_t normal = (rest + 0xfffu + ((rest >> 13) & 1u) - 0x38000000u) >> 13;
  // Adding 0.5 leaves the half's subnormal bits, rounded, at the end of the float's mantissa.
  const std::uint32_t tiny = bits_of(float_of(rest) + 0.5f) - 0x3f000000u;
  const std::uint32_t finite = if_less(rest, 0x38800000u, tiny, normal);
  const std::uint32_t value = sign | if_less(rest, 0x477ff000u, finite, 0x7c00u);
  return static_cast<std::uint16_t>(if_less(0x7f800000u, rest, 0x7fffu, value));  // CUDA's one NaN
}

FLEXCCL_INLINE float bfloat_to_float(std::uint16_t b) {
  return float_of(static_cast<std::uint32_t>(b) << 16);
}

FLEXCCL_INLINE std::uint16_t float_to_bfloat(float f) {
  const std::uint32_t bits = bits_of(f);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>(if_less(0x7f800000u, bits & 0x7fffffffu, 0x7fffu, rounded));
}

// e4m3 has no infinity: 0x7f is NaN, 0x7e (448) the largest value. e5m2 is a half cut short.
FLEXCCL_INLINE float e4m3_to_float(std::uint8_t v) {
  const std::uint32_t sign = (v & 0x80u) << 24, rest = v & 0x7fu;
  const std::uint32_t normal = (rest << 20) + ((127u - 7u) << 23);
  const std::uint32_t tiny = bits_of(float_of_small(rest) * 0x1p-9f);
  const std::uint32_t finite = sign | if_less(rest, 8u, tiny, normal);
  return float_of(if_less(rest, 0x7fu, finite, 0x7fffffffu));
}

FLEXCCL_INLINE std::uint8_t float_to_e4m3(float f) {
  const std::uint32_t bits = bits_of(f);
  const std::uint32_t sign = (bits >> 24) & 0x80u, rest = bits & 0x7fffffffu;
  const std::uint32_t normal = ((rest + 0x7ffffu + ((rest >> 20) & 1u)) >> 20) - (120u << 3);
  // Adding 2^14 leaves multiples of the smallest subnormal, 2^-9, rounded, at the mantissa's end.
  const std::uint32_t tiny = bits_of(float_of(rest) + 0x1p14f) - bits_of(0x1p14f);
  const std::uint32_t finite = if_less(rest, bits_of(0x1p-6f), tiny, normal);
  const std::uint32_t value = sign | if_less(rest, bits_of(448.0f), finite, 0x7eu);
  return static_cast<std::uint8_t>(if_less(0x7f800000u, rest, 0x7fu, value));
}

FLEXCCL_INLINE float e5m2_to_float(std::uint8_t v) {
  return half_to_float(static_cast<std::uint16_t>(v << 8));
}

// Exact for values that are halves: callers round to half first.
FLEXCCL_INLINE std::uint8_t float_to_e5m2(float f) {
  const std::uint32_t rest = bits_of(f) & 0x7fffffffu, sign = (bits_of(f) >> 24) & 0x80u;
  const std::uint32_t half = float_to_half(float_of(rest));
  const std::uint32_t rounded = (half + 0x7fu + ((half >> 8) & 1u)) >> 8;
  const std::uint32_t value = sign | if_less(rest, bits_of(57344.0f), rounded, 0x7bu);
  return static_cast<std::uint8_t>(if_less(0x7f800000u, rest, 0x7fu, value));
}

}  // namespace flexccl

#endif  // FLEXCCL_REDUCE_FORMATS_H_
