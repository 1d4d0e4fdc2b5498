// Thirty-two lanes as two vectors of sixteen words.
//
// GCC vector types carry the arithmetic; the few operations they express badly (lane masks, fused
// multiply-add, high products, masked stores) have an AVX-512 form and a portable one that gives
// the same bits.
#ifndef SOFTGPU_EXEC_SIMD_H_
#define SOFTGPU_EXEC_SIMD_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define SOFTGPU_AVX512 1
#include <immintrin.h>
#endif

namespace softgpu::exec {

inline constexpr int kLanes = 32;
inline constexpr int kHalf = 16;  // lanes of one vector
inline constexpr uint32_t kFull = 0xffffffffu;

using VU = uint32_t __attribute__((vector_size(64)));
using VI = int32_t __attribute__((vector_size(64)));
using VF = float __attribute__((vector_size(64)));

// One register, constant or immediate for all lanes.
struct alignas(128) Row {
  uint32_t lane[kLanes];
};

inline VU load(const Row* row, int half) {
  VU v;
  std::memcpy(&v, __builtin_assume_aligned(row->lane + kHalf * half, 64), sizeof v);
  return v;
}

inline void store(Row* row, int half, VU v) {
  std::memcpy(__builtin_assume_aligned(row->lane + kHalf * half, 64), &v, sizeof v);
}

template <class To, class From>
inline To as(From v) {
  static_assert(sizeof(To) == sizeof(From));
  To out;
  std::memcpy(&out, &v, sizeof out);
  return out;
}

inline VU splat(uint32_t value) {
  return VU{} + value;
}
inline VF splat_f(float value) {
  return VF{} + value;
}

inline VU lane_index() {
  return VU{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
}

// All ones in the lanes whose bit is set.
inline VU expand(uint32_t mask16) {
#ifdef SOFTGPU_AVX512
  return as<VU>(_mm512_movm_epi32(static_cast<__mmask16>(mask16)));
#else
  const VU bit = splat(1) << lane_index();
  return as<VU>((splat(mask16) & bit) == bit);
#endif
}

// One bit per lane, from a comparison result (all ones or zero per lane).
inline uint32_t collapse(VI truth) {
#ifdef SOFTGPU_AVX512
  return _mm512_movepi32_mask(as<__m512i>(truth));
#else
  uint32_t mask = 0;
  for (int i = 0; i < kHalf; ++i) mask |= (static_cast<uint32_t>(truth[i]) & 1u) << i;
  return mask;
#endif
}

inline VU choose(VI truth, VU yes, VU no) {
  return (as<VU>(truth) & yes) | (~as<VU>(truth) & no);
}

inline VU choose_mask(uint32_t mask16, VU yes, VU no) {
#ifdef SOFTGPU_AVX512
  return as<VU>(
      _mm512_mask_mov_epi32(as<__m512i>(no), static_cast<__mmask16>(mask16), as<__m512i>(yes)));
#else
  return choose(as<VI>(expand(mask16)), yes, no);
#endif
}

inline void store_masked(Row* row, int half, uint32_t mask16, VU v) {
#ifdef SOFTGPU_AVX512
  _mm512_mask_store_epi32(row->lane + kHalf * half, static_cast<__mmask16>(mask16), as<__m512i>(v));
#else
  store(row, half, choose_mask(mask16, v, load(row, half)));
#endif
}

inline uint32_t half_mask(uint32_t mask, int half) {
  return (mask >> (kHalf * half)) & 0xffffu;
}

// row = f(half) in the lanes of `exec`. Every handler's result goes through here.
template <class F>
inline void write(Row* row, uint32_t exec, F&& f) {
  if (exec == kFull) {
    const VU lo = f(0);
    const VU hi = f(1);
    store(row, 0, lo);
    store(row, 1, hi);
  } else {
    for (int h = 0; h < 2; ++h) store_masked(row, h, half_mask(exec, h), f(h));
  }
}

// A 32-bit lane mask from a comparison of each half.
template <class F>
inline uint32_t test(F&& f) {
  return collapse(f(0)) | collapse(f(1)) << kHalf;
}

// ---- integer -----------------------------------------------------------------------------

inline VU mulhi_u(VU a, VU b) {
#ifdef SOFTGPU_AVX512
  const __m512i x = as<__m512i>(a), y = as<__m512i>(b);
  const __m512i even = _mm512_mul_epu32(x, y);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(y, 32));
  return as<VU>(_mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd));
#else
  VU r;
  for (int i = 0; i < kHalf; ++i) r[i] = static_cast<uint32_t>((uint64_t{a[i]} * b[i]) >> 32);
  return r;
#endif
}

inline VU mulhi_s(VU a, VU b) {
  const VU correct = (as<VU>(as<VI>(a) < 0) & b) + (as<VU>(as<VI>(b) < 0) & a);
  return mulhi_u(a, b) - correct;
}

// Shifts by amounts of 32 and more give 0 (or the sign), as the GPU's clamped shifts do.
inline VU shift_left(VU a, VU s) {
#ifdef SOFTGPU_AVX512
  return as<VU>(_mm512_sllv_epi32(as<__m512i>(a), as<__m512i>(s)));
#else
  return choose(s < 32u, a << (s & 31u), splat(0));
#endif
}

inline VU shift_right(VU a, VU s) {
#ifdef SOFTGPU_AVX512
  return as<VU>(_mm512_srlv_epi32(as<__m512i>(a), as<__m512i>(s)));
#else
  return choose(s < 32u, a >> (s & 31u), splat(0));
#endif
}

inline VU shift_right_signed(VU a, VU s) {
#ifdef SOFTGPU_AVX512
  return as<VU>(_mm512_srav_epi32(as<__m512i>(a), as<__m512i>(s)));
#else
  const VU clamped = choose(s < 32u, s, splat(31));
  return as<VU>(as<VI>(a) >> as<VI>(clamped));
#endif
}

// ---- interleaving: elements of several words in memory <-> rows --------------------------------

// Sixteen pairs (a0 b0 a1 b1 ..) in z[0..1] <-> a, b.
inline void split2(const VU* z, VU* a, VU* b) {
  *a = __builtin_shufflevector(z[0], z[1], 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                               30);
  *b = __builtin_shufflevector(z[0], z[1], 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,
                               31);
}
inline void join2(VU a, VU b, VU* z) {
  z[0] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  z[1] =
      __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
// Sixteen quads in z[0..3] <-> four vectors. Even and odd words are pairs of pairs.
inline void split4(const VU* z, VU* r) {
  VU even[2], odd[2];
  split2(z, &even[0], &odd[0]);
  split2(z + 2, &even[1], &odd[1]);
  split2(even, &r[0], &r[2]);
  split2(odd, &r[1], &r[3]);
}
inline void join4(const VU* r, VU* z) {
  VU even[2], odd[2];
  join2(r[0], r[2], even);
  join2(r[1], r[3], odd);
  join2(even[0], odd[0], z);
  join2(even[1], odd[1], z + 2);
}

// Smallest and largest word among the lanes of a mask; the largest is 0 if there are none.
inline void bounds(const Row* row, uint32_t mask, uint32_t* low, uint32_t* high) {
  VU smallest = splat(kFull), largest = splat(0);
  for (int h = 0; h < 2; ++h) {
    const VU in = expand((mask >> (kHalf * h)) & 0xffffu), v = load(row, h);
    const VU up = v | ~in, down = v & in;
    smallest = up < smallest ? up : smallest;
    largest = down > largest ? down : largest;
  }
#ifdef SOFTGPU_AVX512
  *low = _mm512_reduce_min_epu32(as<__m512i>(smallest));
  *high = _mm512_reduce_max_epu32(as<__m512i>(largest));
#else
  *low = kFull;
  *high = 0;
  for (int i = 0; i < kHalf; ++i) {
    *low = smallest[i] < *low ? smallest[i] : *low;
    *high = largest[i] > *high ? largest[i] : *high;
  }
#endif
}

// ---- float -------------------------------------------------------------------------------

inline VF fma(VF a, VF b, VF c) {
#ifdef SOFTGPU_AVX512
  return as<VF>(_mm512_fmadd_ps(as<__m512>(a), as<__m512>(b), as<__m512>(c)));
#else
  VF r;
  for (int i = 0; i < kHalf; ++i) r[i] = std::fma(a[i], b[i], c[i]);
  return r;
#endif
}

inline VF sqrt(VF a) {
#ifdef SOFTGPU_AVX512
  return as<VF>(_mm512_sqrt_ps(as<__m512>(a)));
#else
  VF r;
  for (int i = 0; i < kHalf; ++i) r[i] = std::sqrt(a[i]);
  return r;
#endif
}

// Nearest integer, ties to even.
inline VF round_even(VF a) {
#ifdef SOFTGPU_AVX512
  return as<VF>(_mm512_roundscale_ps(as<__m512>(a), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  VF r;
  for (int i = 0; i < kHalf; ++i) r[i] = std::nearbyint(a[i]);
  return r;
#endif
}

inline constexpr uint32_t kNaN = 0x7fffffffu;  // what every arithmetic instruction makes of a NaN
inline constexpr uint32_t kSign = 0x80000000u;

inline VU canonical(VF v) {
#ifdef SOFTGPU_AVX512
  const __m512 x = as<__m512>(v);
  return as<VU>(_mm512_mask_mov_epi32(as<__m512i>(v), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                                      _mm512_set1_epi32(static_cast<int>(kNaN))));
#else
  return choose(v != v, splat(kNaN), as<VU>(v));
#endif
}

// Denormals become zeros of the same sign.
inline VU flush(VU v) {
  return choose((v & 0x7f800000u) == 0u, v & kSign, v);
}

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_SIMD_H_
