// Half precision: HADD2, HMUL2, HFMA2, HSET2, HSETP2.
#include "exec/half.h"

#include "exec/lower.h"

namespace softgpu::exec {

enum HalfFlags : uint8_t { kFtz = 1, kSat = 2, kResultFloat = 4, kBothHalves = 8 };
enum Select : uint8_t { kPacked = 0, kF32 = 1, kLow = 2, kHigh = 3 };

struct Pair {
  VF low, high;
};

inline constexpr float kSmallestHalf = 0x1p-14f, kSmallestFloat = 0x1p-126f;  // normal ones

// Numbers below the smallest normal one become zeros of their sign.
static VF flush(VF v, float smallest) {
  const VF magnitude = as<VF>(as<VU>(v) & ~kSign);
  return as<VF>(choose(magnitude < smallest, as<VU>(v) & kSign, as<VU>(v)));
}

// The two values of an operand as floats; arithmetic in float and one rounding to half gives the
// correctly rounded half, since float has more than twice its precision. A float counts as the half
// that it is truncated to: compilers write cvt.rz.f16.f32 as the operand of what follows.
static Pair operand(const Inst* in, const Row* row, int h, int position) {
  const VU v = load(row, h);
  const unsigned select = in->size >> (2 * position) & 3u;
  const unsigned mods = in->mods >> (2 * position) & 3u;
  Pair p;
  if (select == kF32) {
    p.low = p.high = halves_to_floats(floats_to_truncated_halves(as<VF>(v)));
  } else {
    p.low = halves_to_floats(select == kHigh ? v >> 16 : v & 0xffffu);
    p.high = halves_to_floats(select == kLow ? v & 0xffffu : v >> 16);
  }
  if (in->flags & kFtz) {
    p.low = flush(p.low, kSmallestHalf);
    p.high = flush(p.high, kSmallestHalf);
  }
  const uint32_t keep = mods & kModAbs ? ~kSign : kFull, flip = mods & kModNeg ? kSign : 0;
  p.low = as<VF>((as<VU>(p.low) & keep) ^ flip);
  p.high = as<VF>((as<VU>(p.high) & keep) ^ flip);
  return p;
}

static VF saturate(VF v) {
  const VU one = as<VU>(splat_f(1.0f));
  return as<VF>(choose(v > 0.0f, choose(v < 1.0f, as<VU>(v), one), splat(0)));
}

static VU flush_half(VU v) {
  return choose((v & 0x7c00u) == 0u, v & 0x8000u, v);
}

static VU finish(const Inst* in, VF low, VF high) {
  if (in->flags & kSat) {
    low = saturate(low);
    high = saturate(high);
  }
  if (in->flags & kResultFloat) {
    return canonical(in->flags & kFtz ? flush(low, kSmallestFloat) : low);
  }
  VU l = floats_to_halves(low), h = floats_to_halves(high);
  if (in->flags & kFtz) {
    l = flush_half(l);
    h = flush_half(h);
  }
  return l | h << 16;
}

static const Inst* exec_HADD2(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  write(dest(w, in->rd), exec, [&](int h) {
    const Pair x = operand(in, a, h, 0), y = operand(in, b, h, 1);
    return finish(in, x.low + y.low, x.high + y.high);
  });
  return in + 1;
}

static const Inst* exec_HMUL2(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  write(dest(w, in->rd), exec, [&](int h) {
    const Pair x = operand(in, a, h, 0), y = operand(in, b, h, 1);
    return finish(in, x.low * y.low, x.high * y.high);
  });
  return in + 1;
}

// a * b + c for factors that are halves, rounded to odd: a second rounding, to half, then gives
// what one rounding of the exact sum would have given.
static VF fma_to_odd(VF a, VF b, VF c) {
  const VF product = a * b;  // exact
  const VF sum = product + c;
  const VF part = sum - product;
  const VF error = (product - (sum - part)) + (c - part);
  const VU bits = as<VU>(sum);
  const VI away = VI((error > 0.0f) == (sum > 0.0f));
  const VU odd = choose(away, bits + 1u, bits - 1u);
  const VI adjust = ((error > 0.0f) | (error < 0.0f)) & VI((bits & 1u) == 0u);
  return as<VF>(choose(adjust, odd, bits));
}

static const Inst* exec_HFMA2(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) {
    const Pair x = operand(in, a, h, 0), y = operand(in, b, h, 1), z = operand(in, c, h, 2);
    if (in->flags & kResultFloat) {
      return finish(in, fma(x.low, y.low, z.low), fma(x.high, y.high, z.high));
    }
    return finish(in, fma_to_odd(x.low, y.low, z.low), fma_to_odd(x.high, y.high, z.high));
  });
  return in + 1;
}

static uint8_t mods_of(const Instr& i) {
  const auto bits = [](const Operand& o) {
    return (o.neg ? kModNeg : 0u) | (o.abs ? kModAbs : 0u);
  };
  return static_cast<uint8_t>(bits(i.a) | bits(i.b) << 2 | bits(i.c) << 4);
}

static void half_sources(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->mods = mods_of(i);
  o->size = static_cast<uint8_t>((i.a.select & 3) | (i.b.select & 3) << 2 | (i.c.select & 3) << 4);
}

template <Handler kHandler>
static void lower_arithmetic(Lowering* l, const Instr& i, Inst* o) {
  half_sources(l, i, o);
  o->flags = static_cast<uint8_t>((i.get(isa::HADD2::FTZ) ? kFtz : 0) |
                                  (i.get(isa::HADD2::SAT) ? kSat : 0) |
                                  (i.get(isa::HADD2::F32) ? kResultFloat : 0));
  o->fn = kHandler;
}

// ---- comparison --------------------------------------------------------------------------------

static VI compare(uint8_t cmp, VF a, VF b) {
  VI r{};
  if (cmp & 1) r |= a < b;
  if (cmp & 2) r |= a == b;
  if (cmp & 4) r |= a > b;
  if (cmp & 8) r |= (a != a) | (b != b);
  return r;
}

static uint32_t combine(uint8_t op, uint32_t value, uint32_t accumulator) {
  if (op == 0) return value & accumulator;
  return op == 1 ? value | accumulator : value ^ accumulator;
}

// One bit per lane: does the comparison of the low and of the high halves hold?
struct Truth {
  uint32_t low = 0, high = 0;
};

static Truth compare_halves(const Inst* in, Warp* w) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  Truth t;
  for (int h = 0; h < 2; ++h) {
    const Pair x = operand(in, a, h, 0), y = operand(in, b, h, 1);
    t.low |= collapse(compare(in->op, x.low, y.low)) << (kHalf * h);
    t.high |= collapse(compare(in->op, x.high, y.high)) << (kHalf * h);
  }
  return t;
}

static const Inst* exec_HSETP2(const Inst* in, Warp* w, uint32_t exec) {
  Truth t = compare_halves(in, w);
  if (in->flags & kBothHalves) {
    t.low &= t.high;
    t.high = ~t.low;
  }
  const uint32_t accumulator = ps0(in, w);
  set_pred(w, in->pd0, exec, combine(in->round, t.low, accumulator));
  set_pred(w, in->pd1, exec, combine(in->round, t.high, accumulator));
  return in + 1;
}

// Inst::imm is what a half becomes where the comparison holds.
static const Inst* exec_HSET2(const Inst* in, Warp* w, uint32_t exec) {
  const Truth t = compare_halves(in, w);
  const uint32_t accumulator = ps0(in, w);
  const uint32_t low = combine(in->round, t.low, accumulator);
  const uint32_t high = combine(in->round, t.high, accumulator);
  write(dest(w, in->rd), exec, [&](int h) {
    return (expand(half_mask(low, h)) & in->imm) | (expand(half_mask(high, h)) & in->imm << 16);
  });
  return in + 1;
}

static void lower_comparison(Lowering* l, const Instr& i, Inst* o) {
  half_sources(l, i, o);
  o->op = static_cast<uint8_t>(i.get(isa::HSETP2::CMP));
  o->round = static_cast<uint8_t>(i.get(isa::HSETP2::BOOL));
  o->flags = i.get(isa::HSETP2::FTZ) ? kFtz : 0;
}

static void lower_HSETP2(Lowering* l, const Instr& i, Inst* o) {
  lower_comparison(l, i, o);
  if (i.get(isa::HSETP2::H_AND)) o->flags |= kBothHalves;
  o->fn = exec_HSETP2;
}

static void lower_HSET2(Lowering* l, const Instr& i, Inst* o) {
  lower_comparison(l, i, o);
  o->imm = i.get(isa::HSET2::BF) ? 0x3c00u : 0xffffu;
  o->fn = exec_HSET2;
}

void register_half(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::HADD2, lower_arithmetic<exec_HADD2>);
  set(Op::HMUL2, lower_arithmetic<exec_HMUL2>);
  set(Op::HFMA2, lower_arithmetic<exec_HFMA2>);
  set(Op::HSET2, lower_HSET2);
  set(Op::HSETP2, lower_HSETP2);
}

}  // namespace softgpu::exec
