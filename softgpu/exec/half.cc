// Half precision and the tensor core: HADD2, HMUL2, HSETP2, HMMA.
#include "exec/half.h"

#include "exec/lower.h"

namespace softgpu::exec {

enum HalfFlags : uint8_t { kFtz = 1, kSat = 2, kResultFloat = 4, kBothHalves = 8 };
enum Select : uint8_t { kPacked = 0, kF32 = 1, kLow = 2, kHigh = 3 };

struct Pair {
  VF low, high;
};

// The two values of an operand as floats; arithmetic in float and one rounding to half gives the
// correctly rounded half, since float has more than twice its precision.
static Pair operand(const Inst* in, const Row* row, int h, int position) {
  const VU v = load(row, h);
  const unsigned select = position == 0 ? in->size & 3u : in->size >> 2 & 3u;
  const unsigned mods = in->mods >> (2 * position) & 3u;
  Pair p;
  if (select == kF32) {
    p.low = p.high = as<VF>(v);
  } else {
    p.low = halves_to_floats(select == kHigh ? v >> 16 : v & 0xffffu);
    p.high = halves_to_floats(select == kLow ? v & 0xffffu : v >> 16);
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
  if (in->flags & kResultFloat) return canonical(low);
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

static uint8_t mods_of(const Instr& i) {
  const auto bits = [](const Operand& o) {
    return (o.neg ? kModNeg : 0u) | (o.abs ? kModAbs : 0u);
  };
  return static_cast<uint8_t>(bits(i.a) | bits(i.b) << 2);
}

static void half_sources(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->mods = mods_of(i);
  o->size = static_cast<uint8_t>((i.a.select & 3) | (i.b.select & 3) << 2);
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

static const Inst* exec_HSETP2(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b);
  uint32_t low = 0, high = 0;
  for (int h = 0; h < 2; ++h) {
    const Pair x = operand(in, a, h, 0), y = operand(in, b, h, 1);
    low |= collapse(compare(in->op, x.low, y.low)) << (kHalf * h);
    high |= collapse(compare(in->op, x.high, y.high)) << (kHalf * h);
  }
  if (in->flags & kBothHalves) {
    low &= high;
    high = ~low;
  }
  const uint32_t accumulator = ps0(in, w);
  set_pred(w, in->pd0, exec, combine(in->round, low, accumulator));
  set_pred(w, in->pd1, exec, combine(in->round, high, accumulator));
  return in + 1;
}

static void lower_HSETP2(Lowering* l, const Instr& i, Inst* o) {
  half_sources(l, i, o);
  o->op = static_cast<uint8_t>(i.get(isa::HSETP2::CMP));
  o->round = static_cast<uint8_t>(i.get(isa::HSETP2::BOOL));
  o->flags = i.get(isa::HSETP2::H_AND) ? kBothHalves : 0;
  o->fn = exec_HSETP2;
}

// ---- HMMA.1688: D = A * B + C, 16x8x8
// ------------------------------------------------------------

static float half_of(const Row* row, int lane, int which) {
  return half_to_float(static_cast<uint16_t>(row->lane[lane] >> (16 * which)));
}

// With g = lane / 4, t = lane % 4: A[g][2t..], A[g+8][2t..] in two registers, B[2t..][g] in one,
// C and D [g][2t], [g][2t+1], [g+8][2t], [g+8][2t+1]. The order of the sum inside the tensor core
// is unknown; here it is exact but for the double's own rounding, and rounded once.
template <bool kFloat>
static const Inst* exec_HMMA(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  double ma[16][8], mb[8][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int j = 0; j < 2; ++j) {
      ma[g][2 * t + j] = half_of(a, lane, j);
      ma[g + 8][2 * t + j] = half_of(a + 1, lane, j);
      mb[2 * t + j][g] = half_of(b, lane, j);
    }
  }
  double product[16][8];
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      double sum = 0;
      for (int k = 0; k < 8; ++k) sum += ma[i][k] * mb[k][j];
      product[i][j] = sum;
    }
  }
  Row out[4];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 2; ++r) {
      const double* p = &product[g + 8 * r][2 * t];
      if (kFloat) {
        for (int j = 0; j < 2; ++j) {
          const auto v = static_cast<float>(p[j] + std::bit_cast<float>(c[2 * r + j].lane[lane]));
          out[2 * r + j].lane[lane] = v == v ? std::bit_cast<uint32_t>(v) : kNaN;
        }
      } else {
        const uint32_t low = half_from_double(p[0] + half_of(c + r, lane, 0));
        const uint32_t high = half_from_double(p[1] + half_of(c + r, lane, 1));
        out[r].lane[lane] = low | high << 16;
      }
    }
  }
  for (int k = 0; k < (kFloat ? 4 : 2); ++k) {
    write(dest(w, in->rd) + k, exec, [&](int h) { return load(out + k, h); });
  }
  return in + 1;
}

static void lower_HMMA(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->fn = i.get(isa::HMMA::ACC) ? exec_HMMA<true> : exec_HMMA<false>;
}

void register_half(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::HADD2, lower_arithmetic<exec_HADD2>);
  set(Op::HMUL2, lower_arithmetic<exec_HMUL2>);
  set(Op::HSETP2, lower_HSETP2);
  set(Op::HMMA, lower_HMMA);
}

}  // namespace softgpu::exec
