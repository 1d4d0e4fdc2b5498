// Integer arithmetic: IADD3, IMAD, LEA, IMNMX, ISETP, IABS.
#include "exec/lower.h"

namespace softgpu::exec {

// ---- sums with carries ---------------------------------------------------------------------

// Negation without .X is "complement plus one inside the sum", so -0 contributes a carry; with .X
// the bit is a plain complement and carries come in.
enum SumFlags : uint8_t { kNegA = 1, kNegB = 2, kNegC = 4, kCarryIn = 8 };

static VU invert_if(VU v, bool invert) {
  return v ^ splat(invert ? kFull : 0u);
}

struct Sum {
  VU value;
  VI carries;  // minus the number of carries
};

static Sum add_counting(VU a, VU b, VU c, VU extra) {
  const VU s1 = a + b;
  const VU s2 = s1 + c;
  const VU s3 = s2 + extra;
  return {s3, (s1 < a) + (s2 < c) + (s3 < extra)};
}

static const Inst* exec_IADD3(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) { return load(a, h) + load(b, h) + load(c, h); });
  return in + 1;
}

static const Inst* exec_IADD3_general(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  const uint8_t f = in->flags;
  const bool x = f & kCarryIn;
  const uint32_t in0 = x ? ps0(in, w) : 0, in1 = x ? ps1(in, w) : 0;
  const uint32_t ones =
      x ? 0u : static_cast<uint32_t>(((f & kNegA) != 0) + ((f & kNegB) != 0) + ((f & kNegC) != 0));
  uint32_t once = 0, twice = 0;
  VU result[2];
  for (int h = 0; h < 2; ++h) {
    const VU extra =
        splat(ones) + (expand(half_mask(in0, h)) & 1u) + (expand(half_mask(in1, h)) & 1u);
    const Sum s = add_counting(invert_if(load(a, h), f & kNegA), invert_if(load(b, h), f & kNegB),
                               invert_if(load(c, h), f & kNegC), extra);
    result[h] = s.value;
    once |= collapse(s.carries <= -1) << (kHalf * h);
    twice |= collapse(s.carries <= -2) << (kHalf * h);
  }
  write(dest(w, in->rd), exec, [&](int h) { return result[h]; });
  set_pred(w, in->pd0, exec, once);
  set_pred(w, in->pd1, exec, twice);
  return in + 1;
}

// Differences, and the upper words of sums: no carry is asked for.
static const Inst* exec_IADD3_no_carry(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  const uint32_t flip_a = in->flags & kNegA ? kFull : 0, flip_b = in->flags & kNegB ? kFull : 0,
                 flip_c = in->flags & kNegC ? kFull : 0;
  const bool x = in->flags & kCarryIn;
  const uint32_t in0 = x ? ps0(in, w) : 0, in1 = x ? ps1(in, w) : 0;
  const uint32_t ones = x ? 0u : (flip_a & 1u) + (flip_b & 1u) + (flip_c & 1u);
  write(dest(w, in->rd), exec, [&](int h) {
    const VU sum = (load(a, h) ^ flip_a) + (load(b, h) ^ flip_b) + (load(c, h) ^ flip_c);
    return sum + ones - expand(half_mask(in0, h)) - expand(half_mask(in1, h));
  });
  return in + 1;
}

// The lower words of sums. The second carry has a predicate of its own, which nothing reads here.
static const Inst* exec_IADD3_carry_out(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  VU result[2];
  const uint32_t carry = test([&](int h) {
    const VU x = load(a, h), z = load(c, h), sum = x + load(b, h);
    result[h] = sum + z;
    return (sum < x) | (result[h] < z);
  });
  write(dest(w, in->rd), exec, [&](int h) { return result[h]; });
  set_pred(w, in->pd0, exec, carry);
  return in + 1;
}

static uint8_t neg_flags(const Instr& i) {
  return static_cast<uint8_t>((i.a.neg ? kNegA : 0) | (i.b.neg ? kNegB : 0) |
                              (i.c.neg ? kNegC : 0));
}

static void lower_IADD3(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->flags = static_cast<uint8_t>(neg_flags(i) | (i.get(isa::IADD3::X) ? kCarryIn : 0));
  const bool no_carry = o->pd0 == kPredTrash && o->pd1 == kPredTrash;
  o->fn = exec_IADD3_general;
  if (no_carry) o->fn = o->flags ? exec_IADD3_no_carry : exec_IADD3;
  if (!no_carry && !o->flags && o->pd1 == kPredTrash) o->fn = exec_IADD3_carry_out;
}

// ---- multiply-add --------------------------------------------------------------------------

static const Inst* exec_IMAD(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) { return load(a, h) * load(b, h) + load(c, h); });
  return in + 1;
}

// The aliases that ptxas prefers on one pipe: IMAD.MOV and IMAD.IADD.
static const Inst* exec_IMAD_MOV(const Inst* in, Warp* w, uint32_t exec) {
  const Row* c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) { return load(c, h); });
  return in + 1;
}

static const Inst* exec_IMAD_IADD(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) { return load(a, h) + load(c, h); });
  return in + 1;
}

static const Inst* exec_IMAD_general(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  const bool x = in->flags & kCarryIn, neg = in->flags & kNegC;
  const uint32_t carry = x ? ps0(in, w) : 0;
  write(dest(w, in->rd), exec, [&](int h) {
    const VU extra = (expand(half_mask(carry, h)) & 1u) + (neg && !x ? 1u : 0u);
    return load(a, h) * load(b, h) + invert_if(load(c, h), neg) + extra;
  });
  return in + 1;
}

static bool is_zero(const Operand& o) {
  return (o.kind == OperandKind::kReg && o.index == kRZ) ||
         (o.kind == OperandKind::kUReg && o.index == kURZ) ||
         (o.kind == OperandKind::kImm && o.value == 0);
}

static void lower_IMAD(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->flags = static_cast<uint8_t>((i.c.neg ? kNegC : 0) | (i.get(isa::IMAD::X) ? kCarryIn : 0));
  o->fn = exec_IMAD;
  if (o->flags) {
    o->fn = exec_IMAD_general;
  } else if (is_zero(i.a) || is_zero(i.b)) {
    o->fn = exec_IMAD_MOV;
  } else if (i.b.kind == OperandKind::kImm && i.b.value == 1) {
    o->fn = exec_IMAD_IADD;
  }
}

struct Wide {
  VU lo, hi;
  VI carry;  // minus one where the 64-bit sum overflowed
};

// a * b + {hi,lo} + extra in 64 bits; extra is 0 or 1.
template <bool kSigned>
static Wide wide_mad(VU a, VU b, VU lo, VU hi, VU extra) {
  const VU p_lo = a * b;
  const VU p_hi = kSigned ? mulhi_s(a, b) : mulhi_u(a, b);
  const VU s1 = p_lo + lo;
  const VU s2 = s1 + extra;
  const VI low_carry = (s1 < lo) + (s2 < extra);
  const VU t1 = p_hi + hi;
  const VU t2 = t1 - as<VU>(low_carry);
  const VI carry = (t1 < hi) | (t2 < t1);
  return {s2, t2, carry};
}

template <bool kSigned, bool kHighOnly>
static const Inst* exec_IMAD_WIDE(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  const bool x = in->flags & kCarryIn, neg = in->flags & kNegC;
  const uint32_t carry_in = x ? ps0(in, w) : 0;
  Row* d = dest(w, in->rd);
  Wide result[2];
  for (int h = 0; h < 2; ++h) {
    const VU extra = (expand(half_mask(carry_in, h)) & 1u) + (neg && !x ? 1u : 0u);
    result[h] = wide_mad<kSigned>(load(a, h), load(b, h), invert_if(load(c, h), neg),
                                  invert_if(load(c + 1, h), neg), extra);
  }
  if (kHighOnly) {
    write(d, exec, [&](int h) { return result[h].hi; });
  } else {
    write(d, exec, [&](int h) { return result[h].lo; });
    write(d + 1, exec, [&](int h) { return result[h].hi; });
  }
  set_pred(w, in->pd0, exec, test([&](int h) { return result[h].carry; }));
  return in + 1;
}

static void lower_wide(Lowering* l, const Instr& i, Inst* o, bool x, bool is_signed, bool high) {
  sources(l, i, o);
  // An immediate C is a sign-extended word here, not the high word as for doubles.
  o->c = i.c.kind == OperandKind::kConst ? l->pair(i.c, false, nullptr) : l->row(i.c);
  if (i.c.kind == OperandKind::kImm) {
    o->c = l->immediate_pair(i.c.value, is_signed && (i.c.value & kSign) ? kFull : 0u);
  }
  o->flags = static_cast<uint8_t>((i.c.neg ? kNegC : 0) | (x ? kCarryIn : 0));
  if (high) {
    o->fn = is_signed ? exec_IMAD_WIDE<true, true> : exec_IMAD_WIDE<false, true>;
  } else {
    o->fn = is_signed ? exec_IMAD_WIDE<true, false> : exec_IMAD_WIDE<false, false>;
  }
}

static void lower_IMAD_WIDE(Lowering* l, const Instr& i, Inst* o) {
  lower_wide(l, i, o, i.get(isa::IMAD_WIDE::X), i.get(isa::IMAD_WIDE::SIGNED), false);
}
static void lower_IMAD_HI(Lowering* l, const Instr& i, Inst* o) {
  lower_wide(l, i, o, i.get(isa::IMAD_HI::X), i.get(isa::IMAD_HI::SIGNED), true);
}

// ---- LEA -------------------------------------------------------------------------------------

enum LeaFlags : uint8_t { kLeaHi = 16, kLeaSx32 = 32 };

static const Inst* exec_LEA(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  const uint32_t s = in->imm;
  write(dest(w, in->rd), exec, [&](int h) { return (load(a, h) << s) + load(b, h); });
  return in + 1;
}

static VU lea_term(const Inst* in, VU a, VU c) {
  if (!(in->flags & kLeaHi)) return a << in->imm;
  const VU high = in->flags & kLeaSx32 ? as<VU>(as<VI>(a) >> 31) : c;
  return in->imm ? (high << in->imm) | (a >> (32 - in->imm)) : high;
}

static const Inst* exec_LEA_general(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  const uint8_t f = in->flags;
  const bool x = f & kCarryIn;
  const uint32_t carry_in = x ? ps0(in, w) : 0;
  const uint32_t ones = x ? 0u : static_cast<uint32_t>(((f & kNegA) != 0) + ((f & kNegB) != 0));
  uint32_t carry = 0;
  VU result[2];
  for (int h = 0; h < 2; ++h) {
    const VU extra = splat(ones) + (expand(half_mask(carry_in, h)) & 1u);
    const VU t = invert_if(lea_term(in, load(a, h), load(c, h)), f & kNegA);
    const Sum s = add_counting(t, invert_if(load(b, h), f & kNegB), splat(0), extra);
    result[h] = s.value;
    carry |= collapse(s.carries != 0) << (kHalf * h);
  }
  write(dest(w, in->rd), exec, [&](int h) { return result[h]; });
  set_pred(w, in->pd0, exec, carry);
  return in + 1;
}

static void lower_LEA(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->imm = static_cast<uint32_t>(i.get(isa::LEA::SHIFT));
  o->flags = static_cast<uint8_t>(
      (i.a.neg ? kNegA : 0) | (i.b.neg ? kNegB : 0) | (i.get(isa::LEA::X) ? kCarryIn : 0) |
      (i.get(isa::LEA::HI) ? kLeaHi : 0) | (i.get(isa::LEA::SX32) ? kLeaSx32 : 0));
  o->fn = !o->flags && o->pd0 == kPredTrash ? exec_LEA : exec_LEA_general;
}

// ---- comparisons -----------------------------------------------------------------------------

template <class V>
static VI compare(uint8_t cmp, V a, V b) {
  switch (cmp) {
    case 1:
      return a < b;
    case 2:
      return a == b;
    case 3:
      return a <= b;
    case 4:
      return a > b;
    case 5:
      return a != b;
    case 6:
      return a >= b;
    case 7:
      return ~VI{};
    default:
      return VI{};
  }
}

static uint32_t combine(uint8_t op, uint32_t value, uint32_t accumulator) {
  if (op == 0) return value & accumulator;
  return op == 1 ? value | accumulator : value ^ accumulator;
}

template <int kCmp, bool kSigned>
static const Inst* exec_ISETP(const Inst* in, Warp* w, uint32_t exec) {
  using V = std::conditional_t<kSigned, VI, VU>;
  const Row *a = source(w, in->a), *b = source(w, in->b);
  const uint32_t r =
      test([&](int h) { return compare(kCmp, as<V>(load(a, h)), as<V>(load(b, h))); });
  const uint32_t accumulator = ps0(in, w);
  set_pred(w, in->pd0, exec, combine(in->op, r, accumulator));
  set_pred(w, in->pd1, exec, combine(in->op, ~r, accumulator));
  return in + 1;
}

// The high words of a 64-bit comparison; ps2 is the result for the low words.
template <int kCmp, bool kSigned>
static const Inst* exec_ISETP_EX(const Inst* in, Warp* w, uint32_t exec) {
  using V = std::conditional_t<kSigned, VI, VU>;
  const Row *a = source(w, in->a), *b = source(w, in->b);
  const uint32_t equal = test([&](int h) { return load(a, h) == load(b, h); });
  // Strict comparison of the high words decides unless they are equal.
  constexpr int kStrict = kCmp == 3 ? 1 : kCmp == 6 ? 4 : kCmp;
  uint32_t r = test([&](int h) { return compare(kStrict, as<V>(load(a, h)), as<V>(load(b, h))); });
  if (kCmp == 2) {
    r &= ps2(in, w);
  } else if (kCmp != 0 && kCmp != 7) {
    r |= equal & ps2(in, w);
  }
  const uint32_t accumulator = ps0(in, w);
  set_pred(w, in->pd0, exec, combine(in->op, r, accumulator));
  set_pred(w, in->pd1, exec, combine(in->op, ~r, accumulator));
  return in + 1;
}

template <bool kSigned, int... kCmp>
static Handler pick_ISETP(uint64_t cmp, bool ex, std::integer_sequence<int, kCmp...>) {
  static constexpr Handler kPlain[] = {exec_ISETP<kCmp, kSigned>...};
  static constexpr Handler kEx[] = {exec_ISETP_EX<kCmp, kSigned>...};
  return ex ? kEx[cmp] : kPlain[cmp];
}

static void lower_ISETP(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->op = static_cast<uint8_t>(i.get(isa::ISETP::BOOL));
  const uint64_t cmp = i.get(isa::ISETP::CMP);
  const bool ex = i.get(isa::ISETP::EX);
  const auto all = std::make_integer_sequence<int, 8>{};
  o->fn =
      i.get(isa::ISETP::SIGNED) ? pick_ISETP<true>(cmp, ex, all) : pick_ISETP<false>(cmp, ex, all);
}

template <bool kSigned>
static const Inst* exec_IMNMX(const Inst* in, Warp* w, uint32_t exec) {
  using V = std::conditional_t<kSigned, VI, VU>;
  const Row *a = source(w, in->a), *b = source(w, in->b);
  const uint32_t minimum = ps0(in, w);
  write(dest(w, in->rd), exec, [&](int h) {
    const VU x = load(a, h), y = load(b, h);
    const VI less = as<V>(x) < as<V>(y);
    return choose_mask(half_mask(minimum, h), choose(less, x, y), choose(less, y, x));
  });
  return in + 1;
}

static void lower_IMNMX(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->fn = i.get(isa::IMNMX::SIGNED) ? exec_IMNMX<true> : exec_IMNMX<false>;
}

// ---- rare ------------------------------------------------------------------------------------

static const Inst* exec_IABS(const Inst* in, Warp* w, uint32_t exec) {
  const Row* b = source(w, in->b);
  write(dest(w, in->rd), exec, [&](int h) {
    const VU x = load(b, h), sign = as<VU>(as<VI>(x) >> 31);
    return (x ^ sign) - sign;
  });
  return in + 1;
}

static void lower_IABS(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->fn = exec_IABS;
}

void register_integer(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::IADD3, lower_IADD3);
  set(Op::IMAD, lower_IMAD);
  set(Op::IMAD_WIDE, lower_IMAD_WIDE);
  set(Op::IMAD_HI, lower_IMAD_HI);
  set(Op::LEA, lower_LEA);
  set(Op::ISETP, lower_ISETP);
  set(Op::IMNMX, lower_IMNMX);
  set(Op::IABS, lower_IABS);
  set(Op::UIADD3, uniform<lower_IADD3>);
  set(Op::UIMAD, uniform<lower_IMAD>);
  set(Op::UIMAD_WIDE, uniform<lower_IMAD_WIDE>);
  set(Op::ULEA, uniform<lower_LEA>);
  set(Op::UISETP, uniform<lower_ISETP>);
}

}  // namespace softgpu::exec
