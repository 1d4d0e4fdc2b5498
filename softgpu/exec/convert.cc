// Conversions: F2F, F2I, I2F, FRND.
//
// The general path goes through double, lane by lane: every source but a 64-bit integer is exact
// in it. The conversions that hot kernels use have vector forms.
#include "exec/half.h"
#include "exec/lanes64.h"
#include "exec/rounding.h"

namespace softgpu::exec {

enum FloatSize : uint8_t { kHalfSize = 1, kSingle = 2, kDouble = 3 };
enum ConvertFlags : uint8_t { kFtz = 1, kSigned = 2 };

using Doubles = Lanes64<double>;

// The source as doubles, with its sign modifiers; Inst::size holds the size of the source.
static void load_source(const Inst* in, Warp* w, Doubles* out) {
  const Row* b = source(w, in->b);
  if (in->size == kDouble) return load_doubles(in, b, 1, out);
  const uint32_t keep = in->mods >> 2 & kModAbs ? ~kSign : kFull;
  const uint32_t flip = in->mods >> 2 & kModNeg ? kSign : 0;
  for (int i = 0; i < kLanes; ++i) {
    uint32_t v = b->lane[i];
    if (in->size == kHalfSize) {
      v = std::bit_cast<uint32_t>(half_to_float(static_cast<uint16_t>(v >> in->imm)));
    }
    v = (v & keep) ^ flip;
    if (in->flags & kFtz && !(v & 0x7f800000u)) v &= kSign;
    out->at[i] = std::bit_cast<float>(v);
  }
}

// ---- to float ----------------------------------------------------------------------------------

static SOFTGPU_NOIPA void narrow(const Doubles& from, Row* to) {
  for (int i = 0; i < kLanes; ++i) {
    to->lane[i] = std::bit_cast<uint32_t>(static_cast<float>(from.at[i]));
  }
}

// Stores doubles as the destination type, rounded in the direction of the instruction.
static const Inst* store_float(const Inst* in, Warp* w, uint32_t exec, Doubles* v) {
  if (in->op == kDouble) {
    canonical_doubles(v);
    store_pairs(dest(w, in->rd), exec, *v);
    return in + 1;
  }
  Row out;
  if (in->op == kSingle) {
    {
      const HostRounding host(in->round);
      narrow(*v, &out);
    }
    for (uint32_t& lane : out.lane) {
      if (std::bit_cast<float>(lane) != std::bit_cast<float>(lane)) lane = kNaN;
      if (in->flags & kFtz && !(lane & 0x7f800000u)) lane &= kSign;
    }
  } else {
    for (int i = 0; i < kLanes; ++i) out.lane[i] = half_from_double(v->at[i], in->round);
  }
  write(dest(w, in->rd), exec, [&](int h) { return load(&out, h); });
  return in + 1;
}

static const Inst* exec_F2F(const Inst* in, Warp* w, uint32_t exec) {
  Doubles v;
  load_source(in, w, &v);
  return store_float(in, w, exec, &v);
}

// F32 to F16, to nearest: half of all conversions in mixed precision.
static const Inst* exec_F2F_half(const Inst* in, Warp* w, uint32_t exec) {
  const Row* b = source(w, in->b);
  const uint32_t keep = in->mods >> 2 & kModAbs ? ~kSign : kFull;
  const uint32_t flip = in->mods >> 2 & kModNeg ? kSign : 0;
  write(dest(w, in->rd), exec,
        [&](int h) { return floats_to_halves(as<VF>((load(b, h) & keep) ^ flip)); });
  return in + 1;
}

static void lower_source(Lowering* l, const Instr& i, Inst* o, uint64_t size, bool ftz) {
  o->size = static_cast<uint8_t>(size);
  o->flags = ftz ? kFtz : 0;
  o->imm = size == kHalfSize ? 16u * i.b.select : 0;
  if (size == kDouble) {
    double_sources(l, i, o);
  } else if (size == kSingle) {
    float_sources(l, i, o);
  } else {
    sources(l, i, o);
    o->mods = static_cast<uint8_t>(((i.b.neg ? kModNeg : 0) | (i.b.abs ? kModAbs : 0)) << 2);
  }
}

static void lower_F2F(Lowering* l, const Instr& i, Inst* o) {
  lower_source(l, i, o, i.get(isa::F2F::SRC), i.get(isa::F2F::FTZ));
  o->op = static_cast<uint8_t>(i.get(isa::F2F::DST));
  o->round = static_cast<uint8_t>(i.get(isa::F2F::RND));
  const bool simple = !o->round && !o->flags && o->size == kSingle && o->op == kHalfSize;
  o->fn = simple ? exec_F2F_half : exec_F2F;
}

// ---- rounding to integral
// ------------------------------------------------------------------------

static double to_integral(double v, uint8_t round) {
  switch (round) {
    case kRoundDown:
      return std::floor(v);
    case kRoundUp:
      return std::ceil(v);
    case kRoundZero:
      return std::trunc(v);
    default:
      return std::nearbyint(v);
  }
}

static const Inst* exec_FRND(const Inst* in, Warp* w, uint32_t exec) {
  Doubles v;
  load_source(in, w, &v);
  for (double& x : v.at) x = to_integral(x, in->round);
  return store_float(in, w, exec, &v);
}

static void lower_FRND(Lowering* l, const Instr& i, Inst* o) {
  lower_source(l, i, o, i.get(isa::FRND::SRC), i.get(isa::FRND::FTZ));
  o->op = static_cast<uint8_t>(i.get(isa::FRND::DST));
  o->round = static_cast<uint8_t>(i.get(isa::FRND::RND));
  o->fn = exec_FRND;
}

// ---- float to integer
// ----------------------------------------------------------------------------

// Saturates. NaN gives 0, or the "indefinite" value when 64 bits are involved (PTX rule).
static uint64_t saturate(double v, int bits, bool is_signed, bool indefinite) {
  if (v != v) return indefinite ? uint64_t{1} << (bits - 1) : 0;
  const double low = is_signed ? -std::ldexp(1.0, bits - 1) : 0.0;
  const double high = std::ldexp(1.0, is_signed ? bits - 1 : bits);  // exclusive
  if (v < low) v = low;
  if (v >= high) return is_signed ? (uint64_t{1} << (bits - 1)) - 1 : ~uint64_t{0} >> (64 - bits);
  return is_signed ? static_cast<uint64_t>(static_cast<int64_t>(v)) : static_cast<uint64_t>(v);
}

static const Inst* exec_F2I(const Inst* in, Warp* w, uint32_t exec) {
  Doubles v;
  load_source(in, w, &v);
  const int bits = 8 << in->op;
  const bool is_signed = in->flags & kSigned, wide = in->op == 3;
  const bool indefinite = wide || in->size == kDouble;
  Lanes64<uint64_t> out;
  for (int i = 0; i < kLanes; ++i) {
    out.at[i] = saturate(to_integral(v.at[i], in->round), bits, is_signed, indefinite);
  }
  if (wide) {
    store_pairs(dest(w, in->rd), exec, out);
    return in + 1;
  }
  Row low;
  for (int i = 0; i < kLanes; ++i) low.lane[i] = static_cast<uint32_t>(out.at[i]);
  write(dest(w, in->rd), exec, [&](int h) { return load(&low, h); });
  return in + 1;
}

#ifdef SOFTGPU_AVX512
// F32 to 32 bits, towards zero: the core of integer division.
template <bool kIsSigned>
static const Inst* exec_F2I_trunc(const Inst* in, Warp* w, uint32_t exec) {
  const Row* b = source(w, in->b);
  const uint32_t keep = in->mods >> 2 & kModAbs ? ~kSign : kFull;
  const uint32_t flip = in->mods >> 2 & kModNeg ? kSign : 0;
  write(dest(w, in->rd), exec, [&](int h) {
    const VU v = (load(b, h) & keep) ^ flip;
    const VF x = as<VF>(v);
    if (kIsSigned) {
      const VU r = as<VU>(_mm512_cvttps_epi32(as<__m512>(x)));  // 0x80000000 when out of range
      return choose(x >= 0x1p31f, splat(0x7fffffffu), choose(x != x, splat(0), r));
    }
    const VU r = as<VU>(_mm512_cvttps_epu32(as<__m512>(x)));  // all ones when out of range
    return choose(x > 0.0f, r, splat(0));
  });
  return in + 1;
}
#endif

static void lower_F2I(Lowering* l, const Instr& i, Inst* o) {
  lower_source(l, i, o, i.get(isa::F2I::SRC), i.get(isa::F2I::FTZ));
  o->op = static_cast<uint8_t>(i.get(isa::F2I::DST));
  o->round = static_cast<uint8_t>(i.get(isa::F2I::RND));
  o->fn = exec_F2I;
#ifdef SOFTGPU_AVX512
  // Flushing a denormal does not matter: it truncates to zero anyway.
  if (o->size == kSingle && o->op == 2 && o->round == kRoundZero) {
    o->fn = i.get(isa::F2I::SIGNED) ? exec_F2I_trunc<true> : exec_F2I_trunc<false>;
  }
#endif
  if (i.get(isa::F2I::SIGNED)) o->flags |= kSigned;
}

// ---- integer to float
// ----------------------------------------------------------------------------

static SOFTGPU_NOIPA void signed_to_floats(const Lanes64<int64_t>& from, Row* to) {
  for (int i = 0; i < kLanes; ++i) {
    to->lane[i] = std::bit_cast<uint32_t>(static_cast<float>(from.at[i]));
  }
}

// Halved with a sticky bit where the top bit is set: right in every rounding direction.
static SOFTGPU_NOIPA void unsigned_to_floats(const Lanes64<uint64_t>& from, Row* to) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t v = from.at[i];
    const bool big = v >> 63;
    const auto x = static_cast<int64_t>(big ? v >> 1 | (v & 1) : v);
    const float f = static_cast<float>(x) * (big ? 2.0f : 1.0f);
    to->lane[i] = std::bit_cast<uint32_t>(f);
  }
}

static SOFTGPU_NOIPA void signed_to_doubles(const Lanes64<int64_t>& from, Doubles* to) {
  for (int i = 0; i < kLanes; ++i) to->at[i] = static_cast<double>(from.at[i]);
}

static SOFTGPU_NOIPA void unsigned_to_doubles(const Lanes64<uint64_t>& from, Doubles* to) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t v = from.at[i];
    const bool big = v >> 63;
    const auto x = static_cast<int64_t>(big ? v >> 1 | (v & 1) : v);
    to->at[i] = static_cast<double>(x) * (big ? 2.0 : 1.0);
  }
}

// The integer source, sign- or zero-extended; Inst::imm holds the shift of the byte or half.
static void load_integers(const Inst* in, Warp* w, Lanes64<uint64_t>* out) {
  const Row* b = source(w, in->b);
  if (in->size == 3) return load_pairs(b, out);
  const int unused = 64 - (8 << in->size);
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t top = uint64_t{b->lane[i] >> in->imm} << unused;
    out->at[i] = in->flags & kSigned ? static_cast<uint64_t>(static_cast<int64_t>(top) >> unused)
                                     : top >> unused;
  }
}

static const Inst* exec_I2F(const Inst* in, Warp* w, uint32_t exec) {
  Lanes64<uint64_t> v;
  load_integers(in, w, &v);
  const auto* s = reinterpret_cast<const Lanes64<int64_t>*>(&v);
  const bool is_signed = in->flags & kSigned;
  if (in->op == kSingle) {
    Row out;
    {
      const HostRounding host(in->round);
      is_signed ? signed_to_floats(*s, &out) : unsigned_to_floats(v, &out);
    }
    write(dest(w, in->rd), exec, [&](int h) { return load(&out, h); });
    return in + 1;
  }
  Doubles d;
  {
    // A half is rounded from the double: directed towards zero first, so that one rounding decides
    // (integers beyond 2^53 are far outside the range of a half anyway).
    const HostRounding host(in->op == kDouble ? in->round : uint8_t{kRoundZero});
    is_signed ? signed_to_doubles(*s, &d) : unsigned_to_doubles(v, &d);
  }
  return store_float(in, w, exec, &d);
}

#ifdef SOFTGPU_AVX512
template <bool kIsSigned>
static const Inst* exec_I2F_32(const Inst* in, Warp* w, uint32_t exec) {
  const Row* b = source(w, in->b);
  const bool up = in->round == kRoundUp;
  write(dest(w, in->rd), exec, [&](int h) {
    const __m512i v = as<__m512i>(load(b, h));
    constexpr int kUp = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
    if (kIsSigned) {
      return as<VU>(up ? _mm512_cvt_roundepi32_ps(v, kUp) : _mm512_cvtepi32_ps(v));
    }
    return as<VU>(up ? _mm512_cvt_roundepu32_ps(v, kUp) : _mm512_cvtepu32_ps(v));
  });
  return in + 1;
}
#endif

static void lower_I2F(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->size = static_cast<uint8_t>(i.get(isa::I2F::SRC));
  if (o->size == 3) o->b = l->pair(i.b, false, nullptr);
  o->op = static_cast<uint8_t>(i.get(isa::I2F::DST));
  o->round = static_cast<uint8_t>(i.get(isa::I2F::RND));
  o->flags = i.get(isa::I2F::SIGNED) ? kSigned : 0;
  // .B0 .. .B3 of bytes, .H0 and .H1 of halves.
  o->imm = o->size == 0 ? 8u * i.b.select : o->size == 1 ? 16u * i.b.select : 0;
  o->fn = exec_I2F;
#ifdef SOFTGPU_AVX512
  const bool direction = o->round == kRoundNearest || o->round == kRoundUp;
  if (o->size == 2 && o->op == kSingle && direction) {
    o->fn = o->flags & kSigned ? exec_I2F_32<true> : exec_I2F_32<false>;
  }
#endif
}

void register_convert(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::F2F, lower_F2F);
  set(Op::FRND, lower_FRND);
  set(Op::F2I, lower_F2I);
  set(Op::I2F, lower_I2F);
}

}  // namespace softgpu::exec
