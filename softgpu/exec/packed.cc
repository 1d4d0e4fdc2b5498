// Arithmetic on the bytes and halves of words: IDP, VABSDIFF, VABSDIFF4, I2I, I2IP.
#include "exec/lower.h"

namespace softgpu::exec {

// Bits [first, first + width) as a number.
static VU part(VU v, int first, int width, bool is_signed) {
  const VU top = v << (32 - width - first);
  return is_signed ? as<VU>(as<VI>(top) >> (32 - width)) : top >> (32 - width);
}

enum DotFlags : uint8_t { kASigned = 1, kBSigned = 2, kHighBytes = 4 };

static const Inst* exec_IDP_4A(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) {
    VU sum = load(c, h);
    for (int k = 0; k < 4; ++k) {
      sum += part(load(a, h), 8 * k, 8, in->flags & kASigned) *
             part(load(b, h), 8 * k, 8, in->flags & kBSigned);
    }
    return sum;
  });
  return in + 1;
}

// Halves of A times two bytes of B.
static const Inst* exec_IDP_2A(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  const int first = in->flags & kHighBytes ? 16 : 0;
  write(dest(w, in->rd), exec, [&](int h) {
    VU sum = load(c, h);
    for (int k = 0; k < 2; ++k) {
      sum += part(load(a, h), 16 * k, 16, in->flags & kASigned) *
             part(load(b, h), first + 8 * k, 8, in->flags & kBSigned);
    }
    return sum;
  });
  return in + 1;
}

static void lower_IDP(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->flags = static_cast<uint8_t>((i.get(isa::IDP::A_SIGNED) ? kASigned : 0) |
                                  (i.get(isa::IDP::B_SIGNED) ? kBSigned : 0) |
                                  (i.get(isa::IDP::HI) ? kHighBytes : 0));
  o->fn = i.get(isa::IDP::TWO) ? exec_IDP_2A : exec_IDP_4A;
}

// ---- absolute differences ----------------------------------------------------------------------

static VU distance(VU a, VU b, bool is_signed) {
  const VI less = is_signed ? as<VI>(a) < as<VI>(b) : VI(a < b);
  return choose(less, b - a, a - b);
}

static const Inst* exec_VABSDIFF(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  write(dest(w, in->rd), exec,
        [&](int h) { return distance(load(a, h), load(b, h), in->flags) + load(c, h); });
  return in + 1;
}

template <bool kSum>
static const Inst* exec_VABSDIFF4(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  write(dest(w, in->rd), exec, [&](int h) {
    VU result = kSum ? load(c, h) : splat(0);
    for (int k = 0; k < 4; ++k) {
      const VU x = part(load(a, h), 8 * k, 8, in->flags);
      const VU y = part(load(b, h), 8 * k, 8, in->flags);
      result += distance(x, y, true) << (kSum ? 0 : 8 * k);
    }
    return result;
  });
  return in + 1;
}

static void lower_VABSDIFF(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->flags = static_cast<uint8_t>(i.get(isa::VABSDIFF::SIGNED));
  o->fn = exec_VABSDIFF;
}

static void lower_VABSDIFF4(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->flags = static_cast<uint8_t>(i.get(isa::VABSDIFF4::SIGNED));
  o->fn = i.get(isa::VABSDIFF4::ACC) ? exec_VABSDIFF4<true> : exec_VABSDIFF4<false>;
}

// ---- saturation --------------------------------------------------------------------------------

static VI clamp(VI x, int32_t low, int32_t high) {
  x = x > high ? VI{} + high : x;
  return x < low ? VI{} + low : x;
}

// To an integer of 8 or 16 bits, sign- or zero-extended again.
static const Inst* exec_I2I(const Inst* in, Warp* w, uint32_t exec) {
  static constexpr int32_t kLow[] = {0, -128, 0, -32768}, kHigh[] = {255, 127, 65535, 32767};
  const Row* b = source(w, in->b);
  write(dest(w, in->rd), exec,
        [&](int h) { return as<VU>(clamp(as<VI>(load(b, h)), kLow[in->op], kHigh[in->op])); });
  return in + 1;
}

static void lower_I2I(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->op = static_cast<uint8_t>(i.get(isa::I2I::DST));
  o->fn = exec_I2I;
}

// Packs two words, saturated to signed bytes, under the low half of C.
static const Inst* exec_I2IP(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  const auto saturate = [](VU v) { return as<VU>(clamp(as<VI>(v), -128, 127)) & 255u; };
  write(dest(w, in->rd), exec, [&](int h) {
    return ((load(c, h) >> in->imm) << 16) | (saturate(load(a, h)) << 8) | saturate(load(b, h));
  });
  return in + 1;
}

static void lower_I2IP(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->imm = i.get(isa::I2IP::H1) ? 16 : 0;
  o->fn = exec_I2IP;
}

void register_packed(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::IDP, lower_IDP);
  set(Op::VABSDIFF, lower_VABSDIFF);
  set(Op::VABSDIFF4, lower_VABSDIFF4);
  set(Op::I2I, lower_I2I);
  set(Op::I2IP, lower_I2IP);
}

}  // namespace softgpu::exec
