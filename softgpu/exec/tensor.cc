// The tensor core and its companion: HMMA, IMMA, MOVM.
#include <algorithm>

#include "exec/half.h"
#include "exec/lower.h"

namespace softgpu::exec {

// ---- HMMA.1688: D = A * B + C, 16x8x8 ----------------------------------------------------------

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

// ---- IMMA: D = A * B + C, 8x8x16 of bytes or 8x8x32 of nibbles ----------------------------------

enum IntegerFlags : uint8_t { kASigned = 1, kBSigned = 2, kSaturates = 4, kNibbles = 8 };

static int64_t element(uint32_t word, int k, int bits, bool is_signed) {
  const uint32_t top = word << (32 - bits - bits * k);
  return is_signed ? static_cast<int32_t>(top) >> (32 - bits) : int64_t{top >> (32 - bits)};
}

// Lane 4 r + t holds a quarter of row r of A, of column r of B, and C[r][2t], C[r][2t + 1].
static int64_t dot(const Inst* in, const Row* a, const Row* b, int row, int column) {
  const int bits = in->flags & kNibbles ? 4 : 8;
  int64_t sum = 0;
  for (int t = 0; t < 4; ++t) {
    const uint32_t x = a->lane[4 * row + t], y = b->lane[4 * column + t];
    for (int k = 0; k < 32 / bits; ++k) {
      sum += element(x, k, bits, in->flags & kASigned) * element(y, k, bits, in->flags & kBSigned);
    }
  }
  return sum;
}

static const Inst* exec_IMMA(const Inst* in, Warp* w, uint32_t exec) {
  const Row *a = source(w, in->a), *b = source(w, in->b), *c = source(w, in->c);
  Row out[2];
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int j = 0; j < 2; ++j) {
      const auto addend = static_cast<int32_t>(c[j].lane[lane]);
      int64_t sum = addend + dot(in, a, b, lane / 4, 2 * (lane % 4) + j);
      if (in->flags & kSaturates) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
      out[j].lane[lane] = static_cast<uint32_t>(sum);
    }
  }
  for (int j = 0; j < 2; ++j) {
    write(dest(w, in->rd) + j, exec, [&](int h) { return load(out + j, h); });
  }
  return in + 1;
}

static void lower_IMMA(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->flags = static_cast<uint8_t>(
      (i.get(isa::IMMA::A_SIGNED) ? kASigned : 0) | (i.get(isa::IMMA::B_SIGNED) ? kBSigned : 0) |
      (i.get(isa::IMMA::SAT) ? kSaturates : 0) | (i.get(isa::IMMA::NIBBLES) ? kNibbles : 0));
  o->fn = exec_IMMA;
}

// ---- MOVM: an 8x8 matrix of halves transposed ---------------------------------------------------

// Lane 4 r + t holds M[r][2t], M[r][2t + 1].
static const Inst* exec_MOVM(const Inst* in, Warp* w, uint32_t exec) {
  const Row* a = source(w, in->a);
  Row out;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int row = lane / 4, column = 2 * (lane % 4);
    const auto half = [&](int r) {
      return a->lane[4 * r + row / 2] >> (16 * (row % 2)) & 0xffffu;  // M[r][row]
    };
    out.lane[lane] = half(column) | half(column + 1) << 16;
  }
  write(dest(w, in->rd), exec, [&](int h) { return load(&out, h); });
  return in + 1;
}

static void lower_MOVM(Lowering* l, const Instr& i, Inst* o) {
  sources(l, i, o);
  o->fn = exec_MOVM;
}

void register_tensor(LowerTable* table) {
  const auto set = [table](Op op, LowerFn fn) { (*table)[static_cast<size_t>(op)] = fn; };
  set(Op::HMMA, lower_HMMA);
  set(Op::IMMA, lower_IMMA);
  set(Op::MOVM, lower_MOVM);
}

}  // namespace softgpu::exec
