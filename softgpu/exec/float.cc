// Single precision: FADD, FMUL, FFMA, FMNMX, FSETP, FSET, FSEL, FCHK.
#include "exec/lower.h"
#include "exec/rounding.h"

namespace softgpu::exec {

enum FloatFlags : uint8_t { kFtz = 1, kSat = 2 };

#ifndef SOFTGPU_AVX512
SOFTGPU_NOIPA void fma_lanes(const VF* a, const VF* b, const VF* c, VF* r) {
  *r = fma(*a, *b, *c);
}
SOFTGPU_NOIPA void mul_lanes(const VF* a, const VF* b, VF* r) {
  *r = *a * *b;
}
SOFTGPU_NOIPA void add_lanes(const VF* a, const VF* b, VF* r) {
  *r = *a + *b;
}
#endif

// A source with its sign modifiers, as a float.
static VU apply_mods(VU v, unsigned mods) {
  const uint32_t keep = mods & kModAbs ? ~kSign : kFull;
  return (v & keep) ^ (mods & kModNeg ? kSign : 0u);
}

static VF operand(const Inst* in, const Row* row, int h, int position) {
  VU v = apply_mods(load(row, h), in->mods >> (2 * position) & 3u);
  if (in->flags & kFtz) v = flush(v);
  return as<VF>(v);
}

// What happens to every general float result: flush, saturate, canonical NaN.
static VU finish(const Inst* in, VF v) {
  VU r = canonical(v);
  if (in->flags & kFtz) r = flush(r);
  if (in->flags & kSat) {
    const VF x = as<VF>(r);
    r = choose(x > 0.0f, choose(x < 1.0f, r, as<VU>(splat_f(1.0f))), splat(0));
  }
  return r;
}

// ---- arithmetic ------------------------------------------------------------------------------

static const Inst* exec_FADD(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  write(dest(w, in->rd), exec,
        [&](int h) { return canonical(as<VF>(load(a, h)) + as<VF>(load(b, h))); });
  return in + 1;
}

static const Inst* exec_FADD_general(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  write(dest(w, in->rd), exec, [&](int h) {
    return finish(in, add_rounded(in->round, operand(in, a, h, 0), operand(in, b, h, 1)));
  });
  return in + 1;
}

static const Inst* exec_FMUL(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  write(dest(w, in->rd), exec,
        [&](int h) { return canonical(as<VF>(load(a, h)) * as<VF>(load(b, h))); });
  return in + 1;
}

// The scale, a power of two, is applied to the rounded product: exact but for results that leave
// the normal range, where the hardware's order is unknown.
static const Inst* exec_FMUL_general(const Inst* in, Warp* w, uint32_t exec) {
  constexpr float kScales[] = {1.0f, 0.125f, 0.25f, 0.5f, 1.0f, 2.0f, 4.0f, 8.0f};
  const Row *a = source(w, in->a), *b = source(w, in->b);
  const VF scale = splat_f(kScales[in->op]);
  write(dest(w, in->rd), exec, [&](int h) {
    VF product = mul_rounded(in->round, operand(in, a, h, 0), operand(in, b, h, 1));
    if (in->op != 4) product = mul_rounded(in->round, product, scale);
    return finish(in, product);
  });
  return in + 1;
}

static const Inst* exec_FFMA(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) {
    return canonical(fma(as<VF>(load(a, h)), as<VF>(load(b, h)), as<VF>(load(c, h))));
  });
  return in + 1;
}

// Negated product or addend, rounding to nearest: the common general case.
static const Inst* exec_FFMA_mods(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) {
    return canonical(fma(as<VF>(apply_mods(load(a, h), in->mods & 3u)),
                         as<VF>(apply_mods(load(b, h), in->mods >> 2 & 3u)),
                         as<VF>(apply_mods(load(c, h), in->mods >> 4 & 3u))));
  });
  return in + 1;
}

static const Inst* exec_FFMA_general(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) {
    return finish(in, fma_rounded(in->round, operand(in, a, h, 0), operand(in, b, h, 1),
                                  operand(in, c, h, 2)));
  });
  return in + 1;
}

static uint8_t float_flags(uint64_t ftz, uint64_t sat) {
  return static_cast<uint8_t>((ftz ? kFtz : 0) | (sat ? kSat : 0));
}

static void lower_FADD(Lowering* l, const Instr& i, Inst* o) {
  float_sources(l, i, o);
  o->round = static_cast<uint8_t>(i.get(isa::FADD::RND));
  o->flags = float_flags(i.get(isa::FADD::FTZ), i.get(isa::FADD::SAT));
  o->fn = o->round || o->flags || o->mods ? exec_FADD_general : exec_FADD;
}

static void lower_FMUL(Lowering* l, const Instr& i, Inst* o) {
  float_sources(l, i, o);
  o->round = static_cast<uint8_t>(i.get(isa::FMUL::RND));
  o->flags = float_flags(i.get(isa::FMUL::FTZ), i.get(isa::FMUL::SAT));
  o->op = static_cast<uint8_t>(i.get(isa::FMUL::SCALE));
  o->fn = o->round || o->flags || o->mods || o->op != 4 ? exec_FMUL_general : exec_FMUL;
}

static void lower_FFMA(Lowering* l, const Instr& i, Inst* o) {
  float_sources(l, i, o);
  o->round = static_cast<uint8_t>(i.get(isa::FFMA::RND));
  o->flags = float_flags(i.get(isa::FFMA::FTZ), i.get(isa::FFMA::SAT));
  o->fn = o->round || o->flags ? exec_FFMA_general : o->mods ? exec_FFMA_mods : exec_FFMA;
}

// One NaN: the other operand; -0 is less than +0.
static const Inst* exec_FMNMX(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  const uint32_t minimum = ps0(in, w);
  write(dest(w, in->rd), exec, [&](int h) {
    const VF x = operand(in, a, h, 0), y = operand(in, b, h, 1);
    const VU xu = as<VU>(x), yu = as<VU>(y);
    const VI less = (x < y) | ((x == y) & as<VI>(as<VI>(xu) < 0));
    const VU r = choose_mask(half_mask(minimum, h), choose(less, xu, yu), choose(less, yu, xu));
    return canonical(as<VF>(choose(x != x, yu, choose(y != y, xu, r))));
  });
  return in + 1;
}

static void lower_FMNMX(Lowering* l, const Instr& i, Inst* o) {
  float_sources(l, i, o);
  o->flags = float_flags(i.get(isa::FMNMX::FTZ), 0);
  o->fn = exec_FMNMX;
}

static const Inst* exec_FSEL(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  const uint32_t take_a = ps0(in, w);
  write(dest(w, in->rd), exec, [&](int h) {
    return choose_mask(half_mask(take_a, h), as<VU>(operand(in, a, h, 0)),
                       as<VU>(operand(in, b, h, 1)));
  });
  return in + 1;
}

static void lower_FSEL(Lowering* l, const Instr& i, Inst* o) {
  float_sources(l, i, o);
  o->flags = float_flags(i.get(isa::FSEL::FTZ), 0);
  o->fn = exec_FSEL;
}

// ---- comparisons -----------------------------------------------------------------------------

template <int kCmp>
static VI compare(VF a, VF b) {
  const VI unordered = (a != a) | (b != b);
  if constexpr (kCmp == 0) return VI{};
  if constexpr (kCmp == 1) return a < b;
  if constexpr (kCmp == 2) return a == b;
  if constexpr (kCmp == 3) return a <= b;
  if constexpr (kCmp == 4) return a > b;
  if constexpr (kCmp == 5) return (a != b) & ~unordered;
  if constexpr (kCmp == 6) return a >= b;
  if constexpr (kCmp == 7) return ~unordered;
  if constexpr (kCmp == 8) return unordered;
  if constexpr (kCmp == 9) return ~VI(a >= b);
  if constexpr (kCmp == 10) return (a == b) | unordered;
  if constexpr (kCmp == 11) return ~VI(a > b);
  if constexpr (kCmp == 12) return ~VI(a <= b);
  if constexpr (kCmp == 13) return a != b;
  if constexpr (kCmp == 14) return ~VI(a < b);
  return ~VI{};
}

static uint32_t combine(uint8_t op, uint32_t value, uint32_t accumulator) {
  if (op == 0) return value & accumulator;
  return op == 1 ? value | accumulator : value ^ accumulator;
}

template <int kCmp>
static uint32_t compare_rows(const Inst* in, Warp* w) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  if (!in->mods && !in->flags) {
    return test([&](int h) { return compare<kCmp>(as<VF>(load(a, h)), as<VF>(load(b, h))); });
  }
  return test([&](int h) { return compare<kCmp>(operand(in, a, h, 0), operand(in, b, h, 1)); });
}

template <int kCmp>
static const Inst* exec_FSETP(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t r = compare_rows<kCmp>(in, w), accumulator = ps0(in, w);
  set_pred(w, in->pd0, exec, combine(in->op, r, accumulator));
  set_pred(w, in->pd1, exec, combine(in->op, ~r, accumulator));
  return in + 1;
}

template <int kCmp>
static const Inst* exec_FSET(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t r = combine(in->op, compare_rows<kCmp>(in, w), ps0(in, w));
  write(dest(w, in->rd), exec,
        [&](int h) { return expand(half_mask(r, h)) & as<VU>(splat_f(1.0f)); });
  return in + 1;
}

template <int... kCmp>
static Handler pick_compare(bool set, uint64_t cmp, std::integer_sequence<int, kCmp...>) {
  static constexpr Handler kPredicate[] = {exec_FSETP<kCmp>...};
  static constexpr Handler kRegister[] = {exec_FSET<kCmp>...};
  return set ? kRegister[cmp] : kPredicate[cmp];
}

static void lower_FSETP(Lowering* l, const Instr& i, Inst* o) {
  float_sources(l, i, o);
  o->op = static_cast<uint8_t>(i.get(isa::FSETP::BOOL));
  o->flags = float_flags(i.get(isa::FSETP::FTZ), 0);
  o->fn = pick_compare(false, i.get(isa::FSETP::CMP), std::make_integer_sequence<int, 16>{});
}

static void lower_FSET(Lowering* l, const Instr& i, Inst* o) {
  float_sources(l, i, o);
  o->op = static_cast<uint8_t>(i.get(isa::FSET::BOOL));
  o->flags = float_flags(i.get(isa::FSET::FTZ), 0);
  o->fn = pick_compare(true, i.get(isa::FSET::CMP), std::make_integer_sequence<int, 16>{});
}

// Does a / b need the slow path? Conservative: the exact condition of the hardware is unknown, and
// the slow path is right for all operands.
static const Inst* exec_FCHK(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  const uint32_t slow = test([&](int h) {
    const VI ea = as<VI>(load(a, h) >> 23 & 255u), eb = as<VI>(load(b, h) >> 23 & 255u);
    const VI difference = ea - eb;
    return (ea == 255) | (eb == 255) | (eb == 0) | (ea <= 24) | (eb >= 253) | (difference >= 126) |
           (difference <= -125);
  });
  set_pred(w, in->pd0, exec, slow);
  return in + 1;
}

static void lower_FCHK(Lowering* l, const Instr& i, Inst* o) {
  float_sources(l, i, o);
  o->fn = exec_FCHK;
}

void register_float(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::FADD, lower_FADD);
  set(Op::FMUL, lower_FMUL);
  set(Op::FFMA, lower_FFMA);
  set(Op::FMNMX, lower_FMNMX);
  set(Op::FSEL, lower_FSEL);
  set(Op::FSETP, lower_FSETP);
  set(Op::FSET, lower_FSET);
  set(Op::FCHK, lower_FCHK);
}

}  // namespace softgpu::exec
