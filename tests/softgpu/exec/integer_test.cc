// Integer and bit instructions against scalar C++, with random and edge operands.
#include "one_warp.h"

namespace softgpu::exec {

static constexpr int kRounds = 40;

// Runs `word` (Rd = R4, A = R5, B = R6, C = R7, carries P0 P1 in) and compares Rd lane by lane.
template <class F>
static void compare3(const char* what, const Words& word, F reference) {
  static Operands operands;
  for (int round = 0; round < kRounds; ++round) {
    OneWarp w({word.rd(4)});
    for (int r = 5; r < 9; ++r) operands.fill(&w.reg(r));
    w.pred(0) = operands.next();
    w.pred(1) = operands.next();
    Row in[4];
    for (int r = 0; r < 4; ++r) in[r] = w.reg(5 + r);
    const uint32_t p0 = w.pred(0), p1 = w.pred(1);
    CHECK(w.run());
    for (int i = 0; i < kLanes; ++i) {
      const uint32_t want = reference(in[0].lane[i], in[1].lane[i], in[2].lane[i], in[3].lane[i],
                                      p0 >> i & 1, p1 >> i & 1);
      check::equal(w.reg(4).lane[i], want, what, __FILE__, __LINE__);
    }
  }
}

using U = uint32_t;
static int32_t s(U v) {
  return static_cast<int32_t>(v);
}

TEST(IADD3) {
  const Words add = Words("00007ffe1ff_000000ff07057210").ra(5).rb(6).rc(7);
  compare3("-a + b + c", add, [](U a, U b, U c, U, U, U) { return b + c - a; });
  compare3("a + b + c", add.set(72, 1, 0), [](U a, U b, U c, U, U, U) { return a + b + c; });
  const Words x = Words("00007ffe1ff_000000ff07057210").ra(5).rb(6).rc(7).set(74, 1, 1);
  // Carries P0 (87..90) and P1 (77..80).
  compare3("~a + b + c + P0 + P1", x.set(87, 4, 0).set(77, 4, 1),
           [](U a, U b, U c, U, U p, U q) { return ~a + b + c + p + q; });
}

TEST(IADD3_carry_out) {
  Operands operands;
  for (int round = 0; round < kRounds; ++round) {
    for (uint64_t neg = 0; neg < 2; ++neg) {
      const Words add = Words("00007ffe0ff_0000000004077210").rd(4).ra(5).rb(6).rc(7);
      OneWarp w({add.set(81, 3, 2).set(84, 3, 3).set(63, 1, neg)});
      for (int r = 5; r < 8; ++r) operands.fill(&w.reg(r));
      Row in[3] = {w.reg(5), w.reg(6), w.reg(7)};
      CHECK(w.run());
      for (int i = 0; i < kLanes; ++i) {
        const U b = in[1].lane[i];
        const uint64_t sum = uint64_t{in[0].lane[i]} + (neg ? uint64_t{~b} + 1 : b) + in[2].lane[i];
        CHECK_EQ(w.pred(2) >> i & 1, sum >> 32 >= 1 ? 1u : 0u);
        CHECK_EQ(w.pred(3) >> i & 1, sum >> 32 >= 2 ? 1u : 0u);
      }
    }
  }
}

TEST(IMAD) {
  const Words mad = Words("000078e00ff_000000ffff087224").ra(5).rb(6).rc(7);
  compare3("a * b + c", mad, [](U a, U b, U c, U, U, U) { return a * b + c; });
  compare3("a * b - c", mad.set(75, 1, 1), [](U a, U b, U c, U, U, U) { return a * b - c; });
  compare3("IMAD.X", mad.set(74, 1, 1).set(87, 4, 0),
           [](U a, U b, U c, U, U p, U) { return a * b + c + p; });
  const Words hi = Words("000078e000c_0000000b0d0d7227").ra(5).rb(6).rc(7);
  compare3("high word of a * b + C pair", hi, [](U a, U b, U c, U d, U, U) {
    return static_cast<U>((uint64_t{a} * b + (c | uint64_t{d} << 32)) >> 32);
  });
  compare3("signed high word", hi.set(73, 1, 1), [](U a, U b, U c, U d, U, U) {
    const auto sum = static_cast<uint64_t>(int64_t{s(a)} * s(b)) + (c | uint64_t{d} << 32);
    return static_cast<U>(sum >> 32);
  });
}

TEST(IMAD_WIDE) {
  Operands operands;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t is_signed = round & 1;
    // Rd = R6: the destination overlaps both sources.
    OneWarp w(
        {Words("000078e00ff_000000100a0c7225").rd(6).ra(6).rb(7).rc(8).set(73, 1, is_signed)});
    for (int r = 6; r < 10; ++r) operands.fill(&w.reg(r));
    Row in[4] = {w.reg(6), w.reg(7), w.reg(8), w.reg(9)};
    CHECK(w.run());
    for (int i = 0; i < kLanes; ++i) {
      const U a = in[0].lane[i], b = in[1].lane[i];
      const uint64_t product =
          is_signed ? static_cast<uint64_t>(int64_t{s(a)} * s(b)) : uint64_t{a} * b;
      const uint64_t want = product + (in[2].lane[i] | uint64_t{in[3].lane[i]} << 32);
      CHECK_EQ(w.reg(6).lane[i] | uint64_t{w.reg(7).lane[i]} << 32, want);
    }
  }
}

TEST(LEA) {
  for (unsigned shift : {0u, 1u, 5u, 31u}) {
    const Words lea = Words("000078018ff_0000001417117211")
                          .ra(5)
                          .rb(6)
                          .rc(7)
                          .set(75, 5, shift)
                          .set(80, 1, 0)
                          .set(81, 3, 7);
    compare3("(a << s) + b", lea.rc(255), [=](U a, U b, U, U, U, U) { return (a << shift) + b; });
    compare3("high({c,a} << s) + b", lea.set(80, 1, 1), [=](U a, U b, U c, U, U, U) {
      return static_cast<U>((uint64_t{c} << 32 | a) << shift >> 32) + b;
    });
    compare3("SX32", lea.set(80, 1, 1).set(73, 1, 1).rc(255), [=](U a, U b, U, U, U, U) {
      return static_cast<U>(static_cast<uint64_t>(int64_t{s(a)}) << shift >> 32) + b;
    });
  }
}

static U shift_reference(U a, U b, U c, int type, bool right, bool wrap, bool hi) {
  const U limit = type < 2 ? 64 : 32;
  const U n = wrap ? b % limit : std::min(b, limit);
  const unsigned __int128 x = uint64_t{c} << 32 | a;
  uint64_t r;
  if (!right) {
    r = static_cast<uint64_t>(x << n);
  } else if (type % 2 == 0) {
    r = static_cast<uint64_t>(static_cast<__int128>(static_cast<int64_t>(x)) >> n);
  } else {
    r = static_cast<uint64_t>(x >> n);
  }
  return static_cast<U>(hi ? r >> 32 : r);
}

TEST(SHF) {
  for (int bits = 0; bits < 32; ++bits) {
    const int type = bits & 3;
    const bool wrap = bits & 4, right = bits & 8, hi = bits & 16;
    for (uint8_t a : {uint8_t{5}, uint8_t{255}}) {
      const Words shf = Words("000000006ff_0000000007007219")
                            .ra(a)
                            .rb(6)
                            .rc(7)
                            .set(73, 2, static_cast<unsigned>(type))
                            .set(75, 1, wrap)
                            .set(76, 1, right)
                            .set(80, 1, hi);
      // Shift counts of real code are small; the operands contain 31, 32, 33 and 64.
      compare3("SHF", shf, [=](U x, U b, U c, U, U, U) {
        return shift_reference(a == 255 ? 0 : x, b, c, type, right, wrap, hi);
      });
    }
  }
}

TEST(LOP3) {
  for (U lut = 1; lut < 256; lut += 9) {
    const Words lop = Words("000078efcff_0000000b0c067212").ra(5).rb(6).rc(7).set(72, 8, lut);
    compare3("LOP3", lop, [=](U a, U b, U c, U, U, U) {
      U r = 0;
      for (int i = 0; i < 32; ++i) {
        const U index = (a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1);
        r |= (lut >> index & 1) << i;
      }
      return r;
    });
  }
}

static U prmt_reference(U a, U b, U c) {
  const uint64_t x = uint64_t{c} << 32 | a;
  U r = 0;
  for (int k = 0; k < 4; ++k) {
    const U nibble = b >> (4 * k) & 15;
    const auto byte = static_cast<uint8_t>(x >> (8 * (nibble & 7)));
    r |= U{nibble & 8 ? static_cast<uint8_t>(byte & 128 ? 255 : 0) : byte} << (8 * k);
  }
  return r;
}

TEST(PRMT) {
  compare3("PRMT", Words("00000000000_0000000803097216").ra(5).rb(6).rc(7),
           [](U a, U b, U c, U, U, U) { return prmt_reference(a, b, c); });
  for (U selector : {0x7610u, 0x5140u, 0x9b8au, 0x4321u}) {
    compare3("PRMT immediate",
             Words("00000000004_00007610ff047816").ra(5).rc(7).set(32, 32, selector),
             [=](U a, U, U c, U, U, U) { return prmt_reference(a, selector, c); });
  }
}

TEST(bit_counts) {
  const auto source = [](const char* sample) { return Words(sample).rb(5); };
  compare3("BREV", source("00000000000_0000002000207301"), [](U a, U, U, U, U, U) {
    U r = 0;
    for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
    return r;
  });
  compare3("POPC", source("00000000000_0000000600067309"),
           [](U a, U, U, U, U, U) { return static_cast<U>(std::popcount(a)); });
  compare3("FLO.U32", source("000000e0000_00000018001c7300"),
           [](U a, U, U, U, U, U) { return a ? 31 - static_cast<U>(std::countl_zero(a)) : kFull; });
  compare3("IABS", source("00000000000_0000000e00157213"),
           [](U a, U, U, U, U, U) { return s(a) < 0 ? 0 - a : a; });
  compare3("BMSK", Words("00000000000_0000001aff1b721b").ra(5).rb(6), [](U a, U b, U, U, U, U) {
    const U width = std::min(b, 32u), position = std::min(a, 32u);
    return static_cast<U>(((uint64_t{1} << width) - 1) << position);
  });
  compare3("SGXT.U32", Words("00000000000_0000000e0f0e721a").ra(5).rb(6),
           [](U a, U b, U, U, U, U) { return b >= 32 ? a : a & ((1u << b) - 1); });
}

TEST(IDP_and_I2IP) {
  compare3("IDP.4A.S8.S8", Words("00000000600_0000002b2c2c7226").ra(5).rb(6).rc(7),
           [](U a, U b, U c, U, U, U) {
             for (int k = 0; k < 32; k += 8) {
               c += static_cast<U>(static_cast<int8_t>(a >> k) * static_cast<int8_t>(b >> k));
             }
             return c;
           });
  compare3("I2IP", Words("000000010ff_0000000607067239").ra(5).rb(6).rc(7),
           [](U a, U b, U c, U, U, U) {
             const auto sat = [](U v) { return static_cast<U>(std::clamp(s(v), -128, 127)) & 255; };
             return c << 16 | sat(a) << 8 | sat(b);
           });
}

TEST(IMNMX_and_SEL) {
  compare3("IMNMX", Words("00003800200_0000000504097217").ra(5).rb(6).set(87, 4, 0),
           [](U a, U b, U, U, U p, U) { return (s(a) < s(b)) == (p != 0) ? a : b; });
  compare3("IMNMX.U32", Words("00003800000_0000000504097217").ra(5).rb(6).set(87, 4, 8),
           [](U a, U b, U, U, U p, U) { return (a < b) != (p != 0) ? a : b; });
  compare3("SEL", Words("00000000000_0000000a100c7207").ra(5).rb(6).set(87, 4, 0),
           [](U a, U b, U, U, U p, U) { return p ? a : b; });
}

template <class T>
static bool integer_compare(U cmp, T a, T b) {
  return cmp == 7 || (cmp & 1 && a < b) || (cmp & 2 && a == b) || (cmp & 4 && a > b);
}

TEST(ISETP) {
  Operands operands;
  for (U cmp = 0; cmp < 8; ++cmp) {
    for (U variant = 0; variant < 12; ++variant) {
      const U is_signed = variant & 1, ex = variant >> 1 & 1, op = variant / 4;
      // P2, P3 = cmp(R5, R6) op P0; with EX the low words decided P1.
      OneWarp w({Words("00003f05270_000000ff0600720c")
                     .ra(5)
                     .rb(6)
                     .set(76, 3, cmp)
                     .set(73, 1, is_signed)
                     .set(72, 1, ex)
                     .set(74, 2, op)
                     .set(81, 3, 2)
                     .set(84, 3, 3)
                     .set(87, 4, 0)
                     .set(68, 4, ex ? 1 : 7)});
      for (int r = 5; r < 7; ++r) operands.fill(&w.reg(r));
      for (int i = 0; i < kLanes; i += 3) w.reg(6).lane[i] = w.reg(5).lane[i];
      w.pred(0) = operands.next();
      w.pred(1) = operands.next();
      CHECK(w.run());
      for (int i = 0; i < kLanes; ++i) {
        const U a = w.reg(5).lane[i], b = w.reg(6).lane[i];
        const bool low = w.pred(1) >> i & 1, accumulator = w.pred(0) >> i & 1;
        bool r = is_signed ? integer_compare(cmp, s(a), s(b)) : integer_compare(cmp, a, b);
        if (ex && a == b && cmp != 0 && cmp != 7) r = low;
        const auto combine = [&](bool v) {
          return op == 0 ? v && accumulator : op == 1 ? v || accumulator : v != accumulator;
        };
        CHECK_EQ(w.pred(2) >> i & 1, U{combine(r)});
        CHECK_EQ(w.pred(3) >> i & 1, U{combine(!r)});
      }
    }
  }
}

TEST(P2R_R2P_PLOP3) {
  Operands operands;
  OneWarp w({Words("00000000000_0000007fff007803").rd(4),    // R4 = P0..P6
             Words("00000000000_0000007f0e007804").ra(5),    // P0..P6 = R5
             Words("00000000000_0000007fff007803").rd(6)});  // R6 = P0..P6
  for (int p = 0; p < 7; ++p) w.pred(p) = operands.next();
  operands.fill(&w.reg(5));
  U before[7];
  for (int p = 0; p < 7; ++p) before[p] = w.pred(p);
  CHECK(w.run());
  for (int i = 0; i < kLanes; ++i) {
    U want = 0;
    for (int p = 0; p < 7; ++p) want |= (before[p] >> i & 1) << p;
    CHECK_EQ(w.reg(4).lane[i], want);
    CHECK_EQ(w.reg(6).lane[i], w.reg(5).lane[i] & 127);
  }
  for (U lut = 0; lut < 256; lut += 5) {
    OneWarp plop({Words("00003f0f070_000000000000781c")
                      .set(64, 3, lut & 7)
                      .set(72, 5, lut >> 3)
                      .set(87, 4, 0)
                      .set(77, 4, 1)
                      .set(68, 4, 10)
                      .set(81, 3, 3)});
    for (int p = 0; p < 3; ++p) plop.pred(p) = operands.next();
    CHECK(plop.run());
    for (int i = 0; i < kLanes; ++i) {
      const U a = plop.pred(0) >> i & 1, b = plop.pred(1) >> i & 1, c = ~plop.pred(2) >> i & 1;
      CHECK_EQ(plop.pred(3) >> i & 1, lut >> (a * 4 + b * 2 + c) & 1);
    }
  }
}

// A false guard writes nothing.
TEST(guard) {
  OneWarp w({Words("00000000f00_0000000100047802").rd(4).guard(0),        // @P0 MOV R4, 1
             Words("00000000f00_0000000200047802").rd(5).guard(8 | 0)});  // @!P0 MOV R5, 2
  w.pred(0) = 0xff00ff0f;
  CHECK(w.run());
  for (int i = 0; i < kLanes; ++i) {
    const bool p = 0xff00ff0fu >> i & 1;
    CHECK_EQ(w.reg(4).lane[i], p ? 1u : 0u);
    CHECK_EQ(w.reg(5).lane[i], p ? 0u : 2u);
  }
}

}  // namespace softgpu::exec

CHECK_MAIN
