// Double precision: DADD, DMUL, DFMA, DSETP.
#include "exec/lanes64.h"
#include "exec/rounding.h"

namespace softgpu::exec {

using Doubles = Lanes64<double>;

// Opaque to the optimiser, since they run under a changed rounding mode.
static SOFTGPU_NOIPA void add_doubles(const Doubles& a, const Doubles& b, Doubles* r) {
  for (int i = 0; i < kLanes; ++i) r->at[i] = a.at[i] + b.at[i];
}
static SOFTGPU_NOIPA void mul_doubles(const Doubles& a, const Doubles& b, Doubles* r) {
  for (int i = 0; i < kLanes; ++i) r->at[i] = a.at[i] * b.at[i];
}
static SOFTGPU_NOIPA void fma_doubles(const Doubles& a, const Doubles& b, const Doubles& c,
                                      Doubles* r) {
  for (int i = 0; i < kLanes; ++i) r->at[i] = std::fma(a.at[i], b.at[i], c.at[i]);
}

static const Inst* finish(const Inst* in, Warp* w, uint32_t exec, Doubles* r) {
  canonical_doubles(r);
  store_pairs(dest(w, in->rd), exec, *r);
  return in + 1;
}

static const Inst* exec_DADD(const Inst* in, Warp* w, uint32_t exec) {
  Doubles a, b, r;
  load_doubles(in, source(w, in->a), 0, &a);
  load_doubles(in, source(w, in->b), 1, &b);
  {
    const HostRounding host(in->round);
    add_doubles(a, b, &r);
  }
  return finish(in, w, exec, &r);
}

static const Inst* exec_DMUL(const Inst* in, Warp* w, uint32_t exec) {
  Doubles a, b, r;
  load_doubles(in, source(w, in->a), 0, &a);
  load_doubles(in, source(w, in->b), 1, &b);
  {
    const HostRounding host(in->round);
    mul_doubles(a, b, &r);
  }
  return finish(in, w, exec, &r);
}

static const Inst* exec_DFMA(const Inst* in, Warp* w, uint32_t exec) {
  Doubles a, b, c, r;
  load_doubles(in, source(w, in->a), 0, &a);
  load_doubles(in, source(w, in->b), 1, &b);
  load_doubles(in, source(w, in->c), 2, &c);
  {
    const HostRounding host(in->round);
    fma_doubles(a, b, c, &r);
  }
  return finish(in, w, exec, &r);
}

static void lower_DADD(Lowering* l, const Instr& i, Inst* o) {
  double_sources(l, i, o);
  o->round = static_cast<uint8_t>(i.get(isa::DADD::RND));
  o->fn = exec_DADD;
}
static void lower_DMUL(Lowering* l, const Instr& i, Inst* o) {
  double_sources(l, i, o);
  o->round = static_cast<uint8_t>(i.get(isa::DMUL::RND));
  o->fn = exec_DMUL;
}
static void lower_DFMA(Lowering* l, const Instr& i, Inst* o) {
  double_sources(l, i, o);
  o->round = static_cast<uint8_t>(i.get(isa::DFMA::RND));
  o->fn = exec_DFMA;
}

// ---- comparison --------------------------------------------------------------------------------

enum Special : uint8_t { kMin = 0, kMax = 15 };

// MIN and MAX ask "take A". -0 is less than +0 there, as PTX demands of min.f64 and max.f64.
static bool takes_first(uint8_t cmp, double a, double b) {
  if (a != a || b != b) return b != b && a == a;
  if (a == b) return std::signbit(cmp == kMin ? a : b);
  return cmp == kMin ? a < b : a > b;
}

// Bits of `cmp`: less, equal, greater, unordered.
static bool compare(uint8_t cmp, double a, double b) {
  if (cmp == kMin || cmp == kMax) return takes_first(cmp, a, b);
  const bool unordered = a != a || b != b;
  return (cmp & 1 && a < b) || (cmp & 2 && a == b) || (cmp & 4 && a > b) || (cmp & 8 && unordered);
}

static uint32_t combine(uint8_t op, uint32_t value, uint32_t accumulator) {
  if (op == 0) return value & accumulator;
  return op == 1 ? value | accumulator : value ^ accumulator;
}

static const Inst* exec_DSETP(const Inst* in, Warp* w, uint32_t exec) {
  Doubles a, b;
  load_doubles(in, source(w, in->a), 0, &a);
  load_doubles(in, source(w, in->b), 1, &b);
  const bool selects = in->op == kMin || in->op == kMax;
  uint32_t r = 0, both_nan = 0;
  for (int i = 0; i < kLanes; ++i) {
    r |= static_cast<uint32_t>(compare(in->op, a.at[i], b.at[i])) << i;
    both_nan |= static_cast<uint32_t>(a.at[i] != a.at[i] && b.at[i] != b.at[i]) << i;
  }
  const uint32_t accumulator = ps0(in, w);
  set_pred(w, in->pd0, exec, combine(in->flags, r, accumulator));
  set_pred(w, in->pd1, exec, combine(in->flags, selects ? both_nan : ~r, accumulator));
  return in + 1;
}

static void lower_DSETP(Lowering* l, const Instr& i, Inst* o) {
  double_sources(l, i, o);
  o->op = static_cast<uint8_t>(i.get(isa::DSETP::CMP));
  o->flags = static_cast<uint8_t>(i.get(isa::DSETP::BOOL));
  o->fn = exec_DSETP;
}

void register_double(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::DADD, lower_DADD);
  set(Op::DMUL, lower_DMUL);
  set(Op::DFMA, lower_DFMA);
  set(Op::DSETP, lower_DSETP);
}

}  // namespace softgpu::exec
