// Half precision numbers as bits.
#ifndef SOFTGPU_EXEC_HALF_H_
#define SOFTGPU_EXEC_HALF_H_

#include <bit>
#include <cmath>
#include <cstdint>

#include "exec/simd.h"

namespace softgpu::exec {

inline constexpr uint16_t kNaN16 = 0x7fff;

inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16;
  const uint32_t exponent = h >> 10 & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(mantissa ? kNaN : sign | 0x7f800000u);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Rounds to half in the given direction (field encoding: 0 nearest even, 1 down, 2 up, 3 zero).
inline uint16_t half_from_double(double v, uint8_t round = 0) {
  if (v != v) return kNaN16;
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  const double magnitude = std::fabs(v);
  // Away from zero: upwards for positive, downwards for negative numbers.
  const bool away = (round == 2 && !sign) || (round == 1 && sign);
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int unit = std::max(exponent - 11, -24);       // weight of the last mantissa bit
  const double scaled = std::ldexp(magnitude, -unit);  // exact, below 2^53
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  if (round == 0 ? rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) == 1.0) : away && rest > 0) {
    whole += 1;
  }
  const double rounded = std::ldexp(whole, unit);
  if (std::isinf(v) || (rounded > 65504.0 && (round == 0 || away))) return sign | 0x7c00;
  if (rounded > 65504.0) return sign | 0x7bff;
  if (rounded < 0x1p-14)
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(rounded * 0x1p24));
  std::frexp(rounded, &exponent);
  const auto mantissa = static_cast<uint32_t>(std::ldexp(rounded, 11 - exponent));  // 1024..2047
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent + 14) << 10 |
                               (mantissa & 0x3ff));
}

// Sixteen lanes, rounding to nearest; halves in the low 16 bits of each word.
inline VF halves_to_floats(VU v) {
#ifdef SOFTGPU_AVX512
  const __m256i h = _mm512_cvtepi32_epi16(as<__m512i>(v));
  return as<VF>(canonical(as<VF>(_mm512_cvtph_ps(h))));
#else
  VF r;
  for (int i = 0; i < kHalf; ++i) r[i] = half_to_float(static_cast<uint16_t>(v[i]));
  return r;
#endif
}

inline VU floats_to_halves(VF v) {
#ifdef SOFTGPU_AVX512
  const __m256i h = _mm512_cvtps_ph(as<__m512>(v), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return choose(v != v, splat(kNaN16), as<VU>(_mm512_cvtepu16_epi32(h)));
#else
  VU r;
  for (int i = 0; i < kHalf; ++i) r[i] = half_from_double(v[i]);
  return r;
#endif
}

// The same, rounding towards zero.
inline VU floats_to_truncated_halves(VF v) {
#ifdef SOFTGPU_AVX512
  const __m256i h = _mm512_cvtps_ph(as<__m512>(v), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  return choose(v != v, splat(kNaN16), as<VU>(_mm512_cvtepu16_epi32(h)));
#else
  VU r;
  for (int i = 0; i < kHalf; ++i) r[i] = half_from_double(v[i], 3);
  return r;
#endif
}

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_HALF_H_
