// Directed rounding, exact: by instruction where the host has it, else by the host's rounding mode
// around a function the compiler cannot look into.
#ifndef SOFTGPU_EXEC_ROUNDING_H_
#define SOFTGPU_EXEC_ROUNDING_H_

#include <cfenv>
#include <cstdint>

#include "exec/simd.h"

namespace softgpu::exec {

enum Round : uint8_t { kRoundNearest = 0, kRoundDown = 1, kRoundUp = 2, kRoundZero = 3 };

inline int host_rounding(uint8_t round) {
  constexpr int kModes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
  return kModes[round & 3];
}

// For the lifetime of the object the host rounds like this. Only calls to functions marked noipa
// are safe inside: the compiler moves other arithmetic across the change of mode.
class HostRounding {
 public:
  explicit HostRounding(uint8_t round) : changed_(round != kRoundNearest) {
    if (changed_) std::fesetround(host_rounding(round));
  }
  ~HostRounding() {
    if (changed_) std::fesetround(FE_TONEAREST);
  }
  HostRounding(const HostRounding&) = delete;
  HostRounding& operator=(const HostRounding&) = delete;

 private:
  bool changed_;
};

#define SOFTGPU_NOIPA __attribute__((noipa))

#ifdef SOFTGPU_AVX512
// _MM_FROUND_TO_NEG_INF.. have the values of Round.
#define SOFTGPU_BY_ROUND(round, CALL)                             \
  switch (round) {                                                \
    case kRoundDown:                                              \
      return CALL(_MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);     \
    case kRoundUp:                                                \
      return CALL(_MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);     \
    case kRoundZero:                                              \
      return CALL(_MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);        \
    default:                                                      \
      return CALL(_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); \
  }

inline VF fma_rounded(uint8_t round, VF a, VF b, VF c) {
#define SOFTGPU_CALL(mode) \
  as<VF>(_mm512_fmadd_round_ps(as<__m512>(a), as<__m512>(b), as<__m512>(c), mode))
  SOFTGPU_BY_ROUND(round, SOFTGPU_CALL)
#undef SOFTGPU_CALL
}

inline VF mul_rounded(uint8_t round, VF a, VF b) {
#define SOFTGPU_CALL(mode) as<VF>(_mm512_mul_round_ps(as<__m512>(a), as<__m512>(b), mode))
  SOFTGPU_BY_ROUND(round, SOFTGPU_CALL)
#undef SOFTGPU_CALL
}

inline VF add_rounded(uint8_t round, VF a, VF b){
#define SOFTGPU_CALL(mode) as<VF>(_mm512_add_round_ps(as<__m512>(a), as<__m512>(b), mode))
    SOFTGPU_BY_ROUND(round, SOFTGPU_CALL)
#undef SOFTGPU_CALL
}
#else
SOFTGPU_NOIPA void fma_lanes(const VF* a, const VF* b, const VF* c, VF* r);
SOFTGPU_NOIPA void mul_lanes(const VF* a, const VF* b, VF* r);
SOFTGPU_NOIPA void add_lanes(const VF* a, const VF* b, VF* r);

inline VF fma_rounded(uint8_t round, VF a, VF b, VF c) {
  const HostRounding host(round);
  VF r;
  fma_lanes(&a, &b, &c, &r);
  return r;
}
inline VF mul_rounded(uint8_t round, VF a, VF b) {
  const HostRounding host(round);
  VF r;
  mul_lanes(&a, &b, &r);
  return r;
}
inline VF add_rounded(uint8_t round, VF a, VF b) {
  const HostRounding host(round);
  VF r;
  add_lanes(&a, &b, &r);
  return r;
}
#endif

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_ROUNDING_H_
