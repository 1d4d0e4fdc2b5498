// Moves, selects and bit manipulation.
#include <utility>

#include "exec/lower.h"

namespace softgpu::exec {

// rd = f(b), lane by lane, vectorised by the compiler where it can.
template <class F>
static const Inst* each_lane(const Inst* in, Warp* w, uint32_t exec, F f) {
  const Row* b = source(w, in->b);
  Row out;
  for (int i = 0; i < kLanes; ++i) out.lane[i] = f(b->lane[i]);
  write(dest(w, in->rd), exec, [&](int h) { return load(&out, h); });
  return in + 1;
}

template <class F>
static const Inst* each_lane3(const Inst* in, Warp* w, uint32_t exec, F f) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  Row out;
  for (int i = 0; i < kLanes; ++i) out.lane[i] = f(a->lane[i], b->lane[i], c->lane[i]);
  write(dest(w, in->rd), exec, [&](int h) { return load(&out, h); });
  return in + 1;
}

// ---- MOV, SEL --------------------------------------------------------------------------------

static const Inst* exec_MOV(const Inst* in, Warp* w, uint32_t exec) {
  const Row* b = source(w, in->b);
  write(dest(w, in->rd), exec, [&](int h) { return load(b, h); });
  return in + 1;
}

static void lower_MOV(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->fn = exec_MOV;
}

static const Inst* exec_SEL(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  const uint32_t take_a = ps0(in, w);
  write(dest(w, in->rd), exec,
        [&](int h) { return choose_mask(half_mask(take_a, h), load(a, h), load(b, h)); });
  return in + 1;
}

static void lower_SEL(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->fn = exec_SEL;
}

// ---- LOP3, PLOP3 -----------------------------------------------------------------------------

template <uint8_t kLut>
static VU lop3(VU a, VU b, VU c) {
#ifdef SOFTGPU_AVX512
  return as<VU>(_mm512_ternarylogic_epi32(as<__m512i>(a), as<__m512i>(b), as<__m512i>(c), kLut));
#else
  VU r = splat(0);
  for (int k = 0; k < 8; ++k) {
    if (kLut >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  }
  return r;
#endif
}

enum Lop3Flags : uint8_t { kPredAnd = 1 };

template <uint8_t kLut>
static const Inst* exec_LOP3(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  if (in->pd0 == kPredTrash) {
    write(dest(w, in->rd), exec,
          [&](int h) { return lop3<kLut>(load(a, h), load(b, h), load(c, h)); });
    return in + 1;
  }
  const VU r[2] = {lop3<kLut>(load(a, 0), load(b, 0), load(c, 0)),
                   lop3<kLut>(load(a, 1), load(b, 1), load(c, 1))};
  const uint32_t nonzero = test([&](int h) { return r[h] != 0u; });
  const uint32_t p = ps0(in, w);
  write(dest(w, in->rd), exec, [&](int h) { return r[h]; });
  set_pred(w, in->pd0, exec, in->flags & kPredAnd ? nonzero & p : nonzero | p);
  return in + 1;
}

template <size_t... kLut>
static Handler pick_LOP3(uint64_t lut, std::index_sequence<kLut...>) {
  static constexpr Handler kHandlers[] = {exec_LOP3<static_cast<uint8_t>(kLut)>...};
  return kHandlers[lut];
}

static void lower_LOP3(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->flags = i.get(isa::LOP3::PAND) ? kPredAnd : 0;
  o->fn = pick_LOP3(i.get(isa::LOP3::LUT), std::make_index_sequence<256>{});
}

static uint32_t plop3(uint8_t lut, uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r = 0;
  for (int k = 0; k < 8; ++k) {
    if (lut >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  }
  return r;
}

static const Inst* exec_PLOP3(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t a = ps0(in, w), b = ps1(in, w), c = ps2(in, w);
  const uint32_t first = plop3(in->op, a, b, c), second = plop3(in->flags, a, b, c);
  set_pred(w, in->pd0, exec, first);
  set_pred(w, in->pd1, exec, second);
  return in + 1;
}

static void lower_PLOP3(Lowering*, const Instr& i, Inst* o) {
  o->op = static_cast<uint8_t>(i.get(isa::PLOP3::LUT0_HI) << 3 | i.get(isa::PLOP3::LUT0_LO));
  o->flags = static_cast<uint8_t>(i.get(isa::PLOP3::LUT1));
  if (i.get(isa::PLOP3::PS2_UNIFORM)) {
    o->ps2 = static_cast<uint8_t>((i.ps2.index & 7) + kPredUniform);
  }
  o->fn = exec_PLOP3;
}

// ---- SHF -------------------------------------------------------------------------------------

static const Inst* exec_SHF_left(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  write(dest(w, in->rd), exec, [&](int h) { return shift_left(load(a, h), load(b, h)); });
  return in + 1;
}

static const Inst* exec_SHF_right(const Inst* in, Warp* w, uint32_t exec) {
  const Row *b = source(w, in->b), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) { return shift_right(load(c, h), load(b, h)); });
  return in + 1;
}

static const Inst* exec_SHF_right_signed(const Inst* in, Warp* w, uint32_t exec) {
  const Row *b = source(w, in->b), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) { return shift_right_signed(load(c, h), load(b, h)); });
  return in + 1;
}

enum ShfFlags : uint8_t { kShfRight = 1, kShfHi = 2, kShfWrap = 4, kShfSigned = 8, kShf64 = 16 };

static const Inst* exec_SHF_general(const Inst* in, Warp* w, uint32_t exec) {
  const uint8_t f = in->flags;
  const uint32_t limit = f & kShf64 ? 64 : 32;
  return each_lane3(in, w, exec, [=](uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t x = uint64_t{c} << 32 | a;
    const uint32_t s = f & kShfWrap ? b & (limit - 1) : std::min(b, limit);
    uint64_t r;
    if (!(f & kShfRight)) {
      r = s < 64 ? x << s : 0;
    } else if (f & kShfSigned) {
      r = static_cast<uint64_t>(static_cast<int64_t>(x) >> std::min(s, 63u));
    } else {
      r = s < 64 ? x >> s : 0;
    }
    return static_cast<uint32_t>(f & kShfHi ? r >> 32 : r);
  });
}

static bool is_rz(const Operand& o) {
  return (o.kind == OperandKind::kReg && o.index == kRZ) ||
         (o.kind == OperandKind::kUReg && o.index == kURZ);
}

static void lower_SHF(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  const uint64_t type = i.get(isa::SHF::TYPE);  // 0 S64, 1 U64, 2 S32, 3 U32
  const bool right = i.get(isa::SHF::R), wrap = i.get(isa::SHF::W), hi = i.get(isa::SHF::HI);
  const bool is_signed = type == 0 || type == 2, is_64 = type < 2;
  o->flags =
      static_cast<uint8_t>((right ? kShfRight : 0) | (hi ? kShfHi : 0) | (wrap ? kShfWrap : 0) |
                           (is_signed ? kShfSigned : 0) | (is_64 ? kShf64 : 0));
  o->fn = exec_SHF_general;
  if (wrap || is_64) return;
  // A 32-bit shift of the high word by at most 32 does not see the low one when that is zero.
  if (right && hi && is_rz(i.a)) o->fn = is_signed ? exec_SHF_right_signed : exec_SHF_right;
  if (!right && !hi) o->fn = exec_SHF_left;
}

// ---- PRMT ------------------------------------------------------------------------------------

// Modes but the first choose all four bytes by two or three bits of B. The same as a selector of
// the first mode.
static uint32_t prmt_selector(uint8_t mode, uint32_t b) {
  uint32_t selector = 0;
  for (uint32_t k = 0; k < 4; ++k) {
    uint32_t byte = 0;
    if (mode == isa::prmt::kF4E) byte = (b & 3) + k;
    if (mode == isa::prmt::kB4E) byte = ((b & 3) - k) & 7;
    if (mode == isa::prmt::kRC8) byte = b & 3;
    if (mode == isa::prmt::kECL) byte = std::max(k, b & 3);
    if (mode == isa::prmt::kECR) byte = std::min(k, b & 3);
    if (mode == isa::prmt::kRC16) byte = (b & 1) * 2 + (k & 1);
    selector |= byte << (4 * k);
  }
  return mode == isa::prmt::kIDX ? b : selector;
}

static const Inst* exec_PRMT(const Inst* in, Warp* w, uint32_t exec) {
  const uint8_t mode = in->op;
  return each_lane3(in, w, exec, [mode](uint32_t a, uint32_t b, uint32_t c) {
    if (mode != isa::prmt::kIDX) b = prmt_selector(mode, b);
    const uint64_t x = uint64_t{c} << 32 | a;
    uint32_t r = 0;
    for (int k = 0; k < 4; ++k) {
      const uint32_t nibble = b >> (4 * k) & 15;
      const auto byte = static_cast<uint32_t>(x >> (8 * (nibble & 7)) & 255);
      const uint32_t sign = byte & 128 ? 255u : 0u;
      r |= (nibble & 8 ? sign : byte) << (8 * k);
    }
    return r;
  });
}

// The selector is the same for all lanes: shifts by scalar amounts.
static const Inst* exec_PRMT_fixed(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) {
    const VU x = load(a, h), y = load(c, h);
    VU r = splat(0);
    for (int k = 0; k < 4; ++k) {
      const uint32_t nibble = in->imm >> (4 * k) & 15;
      const VU word = nibble & 4 ? y : x;
      const uint32_t position = 8 * (nibble & 3);
      const VU byte = nibble & 8 ? as<VU>(as<VI>(word << (24 - position)) >> 31) : word >> position;
      r |= (byte & 255u) << (8 * k);
    }
    return r;
  });
  return in + 1;
}

static void lower_PRMT(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->op = static_cast<uint8_t>(i.get(isa::PRMT::MODE));
  o->fn = exec_PRMT;
  if (i.b.kind == OperandKind::kImm) {
    o->imm = prmt_selector(o->op, i.b.value);
    o->fn = exec_PRMT_fixed;
  }
}

// ---- single-source bit operations ------------------------------------------------------------

static uint32_t reverse(uint32_t v) {
  v = (v >> 1 & 0x55555555) | (v & 0x55555555) << 1;
  v = (v >> 2 & 0x33333333) | (v & 0x33333333) << 2;
  v = (v >> 4 & 0x0f0f0f0f) | (v & 0x0f0f0f0f) << 4;
  return __builtin_bswap32(v);
}

static const Inst* exec_BREV(const Inst* in, Warp* w, uint32_t exec) {
  return each_lane(in, w, exec, reverse);
}

static const Inst* exec_POPC(const Inst* in, Warp* w, uint32_t exec) {
  const uint32_t invert = in->imm;
  return each_lane(in, w, exec, [invert](uint32_t v) {
    return static_cast<uint32_t>(std::popcount(v ^ invert));
  });
}

enum FloFlags : uint8_t { kFloSigned = 1, kFloShift = 2 };

static const Inst* exec_FLO(const Inst* in, Warp* w, uint32_t exec) {
  const uint8_t f = in->flags;
  const uint32_t invert = in->imm;
  return each_lane(in, w, exec, [=](uint32_t v) {
    v ^= invert;
    if (f & kFloSigned && v & kSign) v = ~v;
    if (!v) return kFull;
    const auto zeros = static_cast<uint32_t>(std::countl_zero(v));
    return f & kFloShift ? zeros : 31 - zeros;
  });
}

static void lower_BREV(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->fn = exec_BREV;
}

static void lower_POPC(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->imm = i.b.neg ? kFull : 0;
  o->fn = exec_POPC;
}

static void lower_FLO(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->imm = i.b.neg ? kFull : 0;
  o->flags = static_cast<uint8_t>((i.get(isa::FLO::SIGNED) ? kFloSigned : 0) |
                                  (i.get(isa::FLO::SH) ? kFloShift : 0));
  o->fn = exec_FLO;
}

static const Inst* exec_BMSK(const Inst* in, Warp* w, uint32_t exec) {
  const bool wrap = in->flags;
  return each_lane3(in, w, exec, [wrap](uint32_t a, uint32_t b, uint32_t) {
    const uint32_t position = wrap ? a & 31 : std::min(a, 32u);
    const uint32_t width = wrap ? b & 31 : std::min(b, 32u);
    return static_cast<uint32_t>(((uint64_t{1} << width) - 1) << position);
  });
}

static const Inst* exec_SGXT(const Inst* in, Warp* w, uint32_t exec) {
  const bool is_signed = in->flags & 1, wrap = in->flags & 2;
  return each_lane3(in, w, exec, [=](uint32_t a, uint32_t b, uint32_t) {
    if (wrap) b &= 31;
    if (b >= 32) return a;
    if (b == 0) return 0u;
    const uint32_t top = a << (32 - b);
    return is_signed ? static_cast<uint32_t>(static_cast<int32_t>(top) >> (32 - b))
                     : top >> (32 - b);
  });
}

static void lower_BMSK(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->flags = static_cast<uint8_t>(i.get(isa::BMSK::W));
  o->fn = exec_BMSK;
}

static void lower_SGXT(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->flags = static_cast<uint8_t>(i.get(isa::SGXT::SIGNED) | i.get(isa::SGXT::W) << 1);
  o->fn = exec_SGXT;
}

// ---- predicates <-> register -----------------------------------------------------------------

static const Inst* exec_P2R(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  const uint32_t shift = in->imm;
  write(dest(w, in->rd), exec, [&](int h) {
    VU bits = splat(0);
    for (int k = 0; k < 7; ++k) bits |= expand(half_mask(w->pred[k], h)) & (1u << k);
    const VU mask = load(b, h) << shift;
    return (load(a, h) & ~mask) | ((bits << shift) & mask);
  });
  return in + 1;
}

static const Inst* exec_R2P(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  const uint32_t mask = b->lane[0];
  for (uint8_t k = 0; k < 7; ++k) {
    if (!(mask >> k & 1)) continue;
    const uint32_t bit = 1u << (k + in->imm);
    set_pred(w, k, exec, test([&](int h) { return (load(a, h) & bit) != 0u; }));
  }
  return in + 1;
}

static void lower_P2R(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->imm = static_cast<uint32_t>(i.get(isa::P2R::BYTE)) * 8;
  o->fn = exec_P2R;
}

static void lower_R2P(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->imm = static_cast<uint32_t>(i.get(isa::R2P::BYTE)) * 8;
  o->fn = exec_R2P;
}

void register_bits(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::MOV, lower_MOV);
  set(Op::SEL, lower_SEL);
  set(Op::LOP3, lower_LOP3);
  set(Op::PLOP3, lower_PLOP3);
  set(Op::SHF, lower_SHF);
  set(Op::PRMT, lower_PRMT);
  set(Op::BREV, lower_BREV);
  set(Op::POPC, lower_POPC);
  set(Op::FLO, lower_FLO);
  set(Op::BMSK, lower_BMSK);
  set(Op::SGXT, lower_SGXT);
  set(Op::P2R, lower_P2R);
  set(Op::R2P, lower_R2P);
  set(Op::UMOV, uniform<lower_MOV>);
  set(Op::USEL, uniform<lower_SEL>);
  set(Op::ULOP3, uniform<lower_LOP3>);
  set(Op::UPLOP3, uniform<lower_PLOP3>);
  set(Op::USHF, uniform<lower_SHF>);
  set(Op::UPRMT, uniform<lower_PRMT>);
  set(Op::UBMSK, uniform<lower_BMSK>);
  set(Op::USGXT, uniform<lower_SGXT>);
  set(Op::UBREV, uniform<lower_BREV>);
  set(Op::UPOPC, uniform<lower_POPC>);
  set(Op::UFLO, uniform<lower_FLO>);
}

}  // namespace softgpu::exec
