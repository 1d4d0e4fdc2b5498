// Thirty-two 64-bit lanes, gathered from and scattered to register pairs.
#ifndef SOFTGPU_EXEC_LANES64_H_
#define SOFTGPU_EXEC_LANES64_H_

#include <bit>

#include "exec/lower.h"

namespace softgpu::exec {

template <class T>
struct alignas(64) Lanes64 {
  static_assert(sizeof(T) == 8);
  T at[kLanes];
};

// What arithmetic makes of a NaN (CUDART_NAN).
inline constexpr uint64_t kNaN64 = 0xfff80000'00000000u;

template <class T>
inline void load_pairs(const Row* row, Lanes64<T>* out) {
  for (int i = 0; i < kLanes; ++i) {
    out->at[i] = std::bit_cast<T>(row[0].lane[i] | uint64_t{row[1].lane[i]} << 32);
  }
}

// With the sign modifiers of the operand at `position`.
inline void load_doubles(const Inst* in, const Row* row, int position, Lanes64<double>* out) {
  const unsigned mods = in->mods >> (2 * position) & 3u;
  const uint32_t keep = mods & kModAbs ? ~kSign : kFull, flip = mods & kModNeg ? kSign : 0;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t high = (row[1].lane[i] & keep) ^ flip;
    out->at[i] = std::bit_cast<double>(row[0].lane[i] | uint64_t{high} << 32);
  }
}

template <class T>
inline void store_pairs(Row* d, uint32_t exec, const Lanes64<T>& value) {
  Row low, high;
  for (int i = 0; i < kLanes; ++i) {
    const auto bits = std::bit_cast<uint64_t>(value.at[i]);
    low.lane[i] = static_cast<uint32_t>(bits);
    high.lane[i] = static_cast<uint32_t>(bits >> 32);
  }
  write(d, exec, [&](int h) { return load(&low, h); });
  write(d + 1, exec, [&](int h) { return load(&high, h); });
}

inline void canonical_doubles(Lanes64<double>* v) {
  for (double& x : v->at) x = x == x ? x : std::bit_cast<double>(kNaN64);
}

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_LANES64_H_
