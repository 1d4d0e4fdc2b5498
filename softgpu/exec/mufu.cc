// MUFU: the approximations of the special function unit.
//
// Silicon's low bits are not known. These are vector polynomials with at most about one unit in
// the last place of error (measured in tests/softgpu/exec); RCP is correctly rounded. Denormal
// inputs count as zero and denormal results become zero (assumption of the fact sheet). The code
// uses fused operations in a fixed order, so every host gives the same bits.
#include "exec/half.h"
#include "exec/lower.h"

namespace softgpu::exec {

enum Function : uint8_t { kCos, kSin, kEx2, kLg2, kRcp, kRsq, kRcp64h, kRsq64h, kSqrt, kTanh };

template <size_t kTerms>
static VF polynomial(VF x, const float (&c)[kTerms]) {
  VF r = splat_f(c[kTerms - 1]);
  for (size_t k = kTerms - 1; k-- > 0;) r = fma(r, x, splat_f(c[k]));
  return r;
}

static VF select(VI truth, VF yes, VF no) {
  return as<VF>(choose(truth, as<VU>(yes), as<VU>(no)));
}

static VF infinity() {
  return as<VF>(splat(0x7f800000u));
}

static VF reciprocal(VF x) {
  return 1.0f / x;
}

static VF reciprocal_root(VF x) {
  // One Newton step with the exact residual 1 - x r^2 makes up for the two roundings.
  const VF r = 1.0f / sqrt(x);
  const VF h = x * r;
  const VF residual = fma(-h, r, splat_f(1.0f)) - fma(x, r, -h) * r;
  const VF better = fma(0.5f * r, residual, r);
  // Zeros keep their sign; infinity has no residual.
  return select(x == 0.0f, 1.0f / x, select(x == infinity(), splat_f(0.0f), better));
}

// (2^f - 1) / f for |f| <= 1/2; relative error 2^-33.
static constexpr float kExp2[] = {0x1.62e43p-1f,   0x1.ebfbep-3f,   0x1.c6b08ep-5f, 0x1.3b29f2p-7f,
                                  0x1.5d8724p-10f, 0x1.445e52p-13f, 0x1.00f11ep-16f};

static VF exp2_lanes(VF x) {
  const VF limited = select(x > 200.0f, splat_f(200.0f), select(x < -200.0f, splat_f(-200.0f), x));
  const VF n = round_even(limited);
  const VF f = limited - n;
  const VF m = fma(f, polynomial(f, kExp2), splat_f(1.0f));
  const VI e = __builtin_convertvector(n, VI);
  // Two steps: 2^n alone may leave the range although m * 2^n does not.
  const VI half = e >> 1;
  const VF s1 = as<VF>(as<VU>((half + 127) << 23)), s2 = as<VF>(as<VU>((e - half + 127) << 23));
  return select(x != x, x, m * s1 * s2);
}

// log2(1 + t) / t for sqrt(1/2) - 1 <= t <= sqrt(2) - 1; relative error 2^-27.
static constexpr float kLog2[] = {0x1.715476p+0f, -0x1.71547p-1f,  0x1.ec708p-2f,  -0x1.715a68p-2f,
                                  0x1.2782e6p-2f, -0x1.eac696p-3f, 0x1.a265f6p-3f, -0x1.865fecp-3f,
                                  0x1.80ab32p-3f, -0x1.cebe9p-4f};

static VF log2_lanes(VF x) {
  const VU bits = as<VU>(x);
  // Exponent such that the mantissa lies in [sqrt(1/2), sqrt(2)).
  const VI e = as<VI>(bits - 0x3f3504f3u) >> 23;
  const VF m = as<VF>(bits - as<VU>(e << 23));
  const VF t = m - 1.0f;
  VF r = fma(t, polynomial(t, kLog2), __builtin_convertvector(e, VF));
  r = select(x == infinity(), x, r);
  r = select(x == 0.0f, -infinity(), r);
  return select((x < 0.0f) | (x != x), as<VF>(splat(kNaN)), r);
}

// sin(2 pi r) / r and (cos(2 pi r) - 1) / r^2 in u = r^2, |r| <= 1/8.
static constexpr float kSinTurns[] = {0x1.921fb6p+2f, -0x1.4abbcep+5f, 0x1.466bbap+6f,
                                      -0x1.32ca9ep+6f, 0x1.4bc89ap+5f};
static constexpr float kCosTurns[] = {-0x1.3bd3ccp+4f, 0x1.03c1ep+6f, -0x1.55c686p+6f,
                                      0x1.da0016p+5f};

// The angle is in turns: result = sin(2 pi x), with `quarters` added.
static VF sine_turns(VF x, int quarters) {
  const VF k = round_even(x * 4.0f);
  const VF r = fma(k, splat_f(-0.25f), x);
  const VF u = r * r;
  const VF s = r * polynomial(u, kSinTurns);
  const VF c = fma(u, polynomial(u, kCosTurns), splat_f(1.0f));
  // Beyond 2^31 the count of quarters is a multiple of four; its conversion gives 0 in those bits.
  const VU q = as<VU>(__builtin_convertvector(k, VI)) + static_cast<uint32_t>(quarters);
  const VU v = choose((q & 1u) != 0u, as<VU>(c), as<VU>(s));
  const VU signed_v = v ^ ((q & 2u) << 30);
  return select((x - x) == 0.0f, as<VF>(signed_v), as<VF>(splat(kNaN)));
}

// tanh(x) / x in u = x^2 for |x| <= 1/4; the next term is below 2^-26.
static constexpr float kTanhNearZero[] = {1.0f, -0x1.555556p-2f, 0x1.111112p-3f, -0x1.ba1ba2p-5f,
                                          0x1.664f48p-6f};

static VF tanh_lanes(VF x) {
  const VF magnitude = as<VF>(as<VU>(x) & ~kSign);
  const VF limited = select(magnitude > 16.0f, splat_f(16.0f), magnitude);  // 1 from 10 on
  const VF e = exp2_lanes(limited * 0x1.715476p+1f);                        // exp(2 |x|)
  const VF far = (e - 1.0f) / (e + 1.0f);
  const VF near = magnitude * polynomial(x * x, kTanhNearZero);
  const VU r = as<VU>(select(magnitude < 0.25f, near, far)) | (as<VU>(x) & kSign);
  return select(x != x, x, as<VF>(r));
}

template <int kFunction>
static VF evaluate(VF x) {
  if constexpr (kFunction == kCos) return sine_turns(x, 1);
  if constexpr (kFunction == kSin) return sine_turns(x, 0);
  if constexpr (kFunction == kEx2) return exp2_lanes(x);
  if constexpr (kFunction == kLg2) return log2_lanes(x);
  if constexpr (kFunction == kRcp) return reciprocal(x);
  if constexpr (kFunction == kSqrt) return sqrt(x);
  if constexpr (kFunction == kTanh) return tanh_lanes(x);
  return reciprocal_root(x);
}

template <int kFunction>
static const Inst* exec_MUFU(const Inst* in, Warp* w, uint32_t exec) {
  const Row* b = source(w, in->b);
  const uint32_t keep = in->mods >> 2 & kModAbs ? ~kSign : kFull;
  const uint32_t flip = in->mods >> 2 & kModNeg ? kSign : 0u;
  write(dest(w, in->rd), exec, [&](int h) {
    const VU x = flush((load(b, h) & keep) ^ flip);
    return flush(canonical(evaluate<kFunction>(as<VF>(x))));
  });
  return in + 1;
}

// On one half of the source; the result is a half, with zero above it. Halves have no flushing.
template <int kFunction>
static const Inst* exec_MUFU_16(const Inst* in, Warp* w, uint32_t exec) {
  const Row* b = source(w, in->b);
  const uint32_t keep = in->mods >> 2 & kModAbs ? ~kSign : kFull;
  const uint32_t flip = in->mods >> 2 & kModNeg ? kSign : 0u;
  write(dest(w, in->rd), exec, [&](int h) {
    const VF x = halves_to_floats(load(b, h) >> in->imm & 0xffffu);
    return floats_to_halves(evaluate<kFunction>(as<VF>((as<VU>(x) & keep) ^ flip)));
  });
  return in + 1;
}

static void lower_MUFU_16(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->mods = static_cast<uint8_t>(((i.b.neg ? kModNeg : 0) | (i.b.abs ? kModAbs : 0)) << 2);
  o->imm = 16u * i.b.select;
  o->fn = i.get(isa::MUFU::FUNC) == kEx2 ? exec_MUFU_16<kEx2> : exec_MUFU_16<kTanh>;
}

static double high_word_double(uint32_t high) {
  return std::bit_cast<double>(uint64_t{high} << 32);
}

// The high word of a double goes in and out; the low word counts as zero.
template <bool kRoot>
static const Inst* exec_MUFU_64H(const Inst* in, Warp* w, uint32_t exec) {
  const Row* b = source(w, in->b);
  const uint32_t keep = in->mods >> 2 & kModAbs ? ~kSign : kFull;
  const uint32_t flip = in->mods >> 2 & kModNeg ? kSign : 0u;
  Row out;
  for (int i = 0; i < kLanes; ++i) {
    uint32_t v = (b->lane[i] & keep) ^ flip;
    if (!(v & 0x7ff00000u)) v &= kSign;
    const double x = high_word_double(v);
    const double r = !kRoot || x == 0 ? 1.0 / x : 1.0 / std::sqrt(x);
    auto high = static_cast<uint32_t>(std::bit_cast<uint64_t>(r) >> 32);
    if (r != r) high = kNaN;
    if (!(high & 0x7ff00000u)) high &= kSign;
    out.lane[i] = high;
  }
  write(dest(w, in->rd), exec, [&](int h) { return load(&out, h); });
  return in + 1;
}

static void lower_MUFU(Lowering* l, const Instr& i, Inst* o) {
  static constexpr Handler kHandlers[16] = {
      exec_MUFU<kCos>,  exec_MUFU<kSin>, exec_MUFU<kEx2>,      exec_MUFU<kLg2>,
      exec_MUFU<kRcp>,  exec_MUFU<kRsq>, exec_MUFU_64H<false>, exec_MUFU_64H<true>,
      exec_MUFU<kSqrt>, exec_MUFU<kTanh>};
  if (i.get(isa::MUFU::F16)) return lower_MUFU_16(l, i, o);
  float_sources(l, i, o);
  o->fn = kHandlers[i.get(isa::MUFU::FUNC)];
}

void register_mufu(LowerTable* table) {
  (*table)[static_cast<size_t>(Op::MUFU)] = lower_MUFU;
}

}  // namespace softgpu::exec
