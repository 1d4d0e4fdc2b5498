// Float, double, half and conversion instructions against the host's IEEE arithmetic.
#include <cfenv>

#include "exec/half.h"
#include "one_warp.h"

namespace softgpu::exec {

using U = uint32_t;
static constexpr int kRounds = 60;
static constexpr int kModes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};

// Opaque: the rounding mode is changed around the call.
__attribute__((noipa)) static float add(float a, float b) {
  return a + b;
}
__attribute__((noipa)) static float mul(float a, float b) {
  return a * b;
}
__attribute__((noipa)) static float fused(float a, float b, float c) {
  return std::fma(a, b, c);
}
__attribute__((noipa)) static double fused(double a, double b, double c) {
  return std::fma(a, b, c);
}
__attribute__((noipa)) static double add(double a, double b) {
  return a + b;
}
__attribute__((noipa)) static double mul(double a, double b) {
  return a * b;
}

template <class F>
static auto rounded(unsigned mode, F f) {
  std::fesetround(kModes[mode]);
  const auto r = f();
  std::fesetround(FE_TONEAREST);
  return r;
}

template <class F>
static void compare3(const char* what, const Words& word, F reference) {
  static Operands operands;
  for (int round = 0; round < kRounds; ++round) {
    OneWarp w({word.rd(4)});
    for (int r = 5; r < 8; ++r) operands.fill(&w.reg(r));
    w.pred(0) = operands.next();
    Row in[3] = {w.reg(5), w.reg(6), w.reg(7)};
    const U p0 = w.pred(0);
    CHECK(w.run());
    for (int i = 0; i < kLanes; ++i) {
      const U want = reference(in[0].lane[i], in[1].lane[i], in[2].lane[i], p0 >> i & 1);
      check::equal(w.reg(4).lane[i], want, what, __FILE__, __LINE__);
    }
  }
}

static U flush_bits(U v) {
  return v & 0x7f800000 ? v : v & 0x80000000;
}

static U saturate_bits(float v) {
  return as_word(v > 0 ? std::min(v, 1.0f) : 0.0f);
}

TEST(FADD_FMUL_FFMA_rounding) {
  for (unsigned mode = 0; mode < 4; ++mode) {
    const Words fadd = Words("00000000000_00000009090b7221").ra(5).rb(6).set(78, 2, mode);
    compare3("FADD", fadd, [=](U a, U b, U, U) {
      return float_bits(rounded(mode, [=] { return add(as_float(a), as_float(b)); }));
    });
    const Words fmul = Words("00000400000_0000000409057220").ra(5).rb(6).set(78, 2, mode);
    compare3("FMUL", fmul, [=](U a, U b, U, U) {
      return float_bits(rounded(mode, [=] { return mul(as_float(a), as_float(b)); }));
    });
    const Words ffma = Words("00000000005_0000000404047223").ra(5).rb(6).rc(7).set(78, 2, mode);
    compare3("FFMA", ffma, [=](U a, U b, U c, U) {
      return float_bits(
          rounded(mode, [=] { return fused(as_float(a), as_float(b), as_float(c)); }));
    });
  }
}

TEST(float_modifiers) {
  const Words ffma = Words("00000000005_0000000404047223").ra(5).rb(6).rc(7);
  compare3("-a * b - c", ffma.set(72, 1, 1).set(75, 1, 1), [](U a, U b, U c, U) {
    return float_bits(fused(-as_float(a), as_float(b), -as_float(c)));
  });
  compare3("FFMA.SAT", ffma.set(77, 1, 1), [](U a, U b, U c, U) {
    return saturate_bits(fused(as_float(a), as_float(b), as_float(c)));
  });
  const Words fadd = Words("00000000000_00000009090b7221").ra(5).rb(6);
  compare3("|a| - b", fadd.set(73, 1, 1).set(63, 1, 1),
           [](U a, U b, U, U) { return float_bits(add(std::fabs(as_float(a)), -as_float(b))); });
  compare3("FADD.FTZ", fadd.set(80, 1, 1), [](U a, U b, U, U) {
    return flush_bits(float_bits(add(as_float(flush_bits(a)), as_float(flush_bits(b)))));
  });
}

static U minimum_bits(U a, U b) {
  const float x = as_float(a), y = as_float(b);
  if (x != x) return float_bits(y);
  if (y != y) return a;
  if (x == y) return a >> 31 ? a : b;
  return x < y ? a : b;
}

TEST(FMNMX) {
  const Words fmnmx = Words("00007800000_00000000ff057209").ra(5).rb(6).set(87, 4, 0);
  compare3("FMNMX", fmnmx, [](U a, U b, U, U p) {
    if (p) return minimum_bits(a, b);
    const U flipped = minimum_bits(a ^ 0x80000000, b ^ 0x80000000);
    return flipped == 0x7fffffff ? flipped : flipped ^ 0x80000000;
  });
}

static bool float_compare(U cmp, double a, double b) {
  const bool unordered = a != a || b != b;
  return (cmp & 1 && a < b) || (cmp & 2 && a == b) || (cmp & 4 && a > b) || (cmp & 8 && unordered);
}

TEST(FSETP_FSET) {
  Operands operands;
  for (U cmp = 0; cmp < 16; ++cmp) {
    OneWarp w({Words("00003f0d000_000000ff0900720b")
                   .ra(5)
                   .rb(6)
                   .set(76, 4, cmp)
                   .set(81, 3, 2)
                   .set(84, 3, 3),
               Words("0000380d000_000000ff080d720a").rd(4).ra(5).rb(6).set(76, 4, cmp)});
    for (int r = 5; r < 7; ++r) operands.fill(&w.reg(r));
    for (int i = 0; i < kLanes; i += 4) w.reg(6).lane[i] = w.reg(5).lane[i];
    CHECK(w.run());
    for (int i = 0; i < kLanes; ++i) {
      const bool r = float_compare(cmp, as_float(w.reg(5).lane[i]), as_float(w.reg(6).lane[i]));
      CHECK_EQ(w.pred(2) >> i & 1, U{r});
      CHECK_EQ(w.pred(3) >> i & 1, U{!r});
      CHECK_EQ(w.reg(4).lane[i], r ? 0x3f800000u : 0u);
    }
  }
}

// ---- double ------------------------------------------------------------------------------------

static double as_double(const OneWarp&, const Row& low, const Row& high, int i) {
  return std::bit_cast<double>(low.lane[i] | uint64_t{high.lane[i]} << 32);
}

TEST(double_rounding) {
  Operands operands;
  for (int round = 0; round < kRounds; ++round) {
    const unsigned mode = static_cast<unsigned>(round % 4);
    OneWarp w({Words("00000000008_000000060608722b").rd(10).ra(4).rb(6).rc(8).set(78, 2, mode),
               Words("00000000004_000000001a1a7229").rd(12).ra(4).rc(6).set(78, 2, mode),
               Words("00000000000_0000000c06087228").rd(14).ra(4).rb(6).set(78, 2, mode)});
    for (int r = 4; r < 10; ++r) operands.fill(&w.reg(r));
    CHECK(w.run());
    for (int i = 0; i < kLanes; ++i) {
      const double a = as_double(w, w.reg(4), w.reg(5), i), b = as_double(w, w.reg(6), w.reg(7), i),
                   c = as_double(w, w.reg(8), w.reg(9), i);
      const double want[3] = {rounded(mode, [=] { return fused(a, b, c); }),
                              rounded(mode, [=] { return add(a, b); }),
                              rounded(mode, [=] { return mul(a, b); })};
      for (int k = 0; k < 3; ++k) {
        const double got = as_double(w, w.reg(10 + 2 * k), w.reg(11 + 2 * k), i);
        CHECK(got == want[k] ? std::signbit(got) == std::signbit(want[k])
                             : got != got && want[k] != want[k]);
      }
    }
  }
}

// min.f64 and max.f64 are this and a choice: +0 is greater than -0 there.
TEST(DSETP_zeros) {
  const Words dsetp("00003820000_000000221e00722a");  // DSETP.MIN.AND P1, P0, R30, R34
  OneWarp w({dsetp.ra(4).rb(6), dsetp.ra(4).rb(6).set(76, 4, 15).set(81, 3, 2)});
  w.fill(5, {0, 0, 0x80000000, 0x80000000});
  w.fill(7, {0, 0x80000000, 0, 0x80000000});
  CHECK(w.run());
  CHECK_EQ(w.pred(1) >> 1 & 1, 0u);  // of +0 and -0 the minimum is the second
  CHECK_EQ(w.pred(1) >> 2 & 1, 1u);
  CHECK_EQ(w.pred(2) >> 1 & 1, 1u);
  CHECK_EQ(w.pred(2) >> 2 & 1, 0u);
}

// ---- conversions -------------------------------------------------------------------------------

static U to_integer(float v, unsigned mode, bool is_signed) {
  if (v != v) return 0;
  const double r = mode == 0   ? std::nearbyint(v)
                   : mode == 1 ? std::floor(v)
                   : mode == 2 ? std::ceil(v)
                               : std::trunc(v);
  if (is_signed) {
    return static_cast<U>(static_cast<int32_t>(std::clamp(r, -2147483648.0, 2147483647.0)));
  }
  return static_cast<U>(std::clamp(r, 0.0, 4294967295.0));
}

TEST(F2I) {
  for (unsigned mode = 0; mode < 4; ++mode) {
    for (unsigned is_signed = 0; is_signed < 2; ++is_signed) {
      const Words f2i =
          Words("0000020f000_0000000c000d7305").rb(5).set(78, 2, mode).set(72, 1, is_signed);
      compare3("F2I", f2i,
               [=](U a, U, U, U) { return to_integer(as_float(a), mode, is_signed != 0); });
    }
  }
}

__attribute__((noipa)) static float from_signed(int32_t v) {
  return static_cast<float>(v);
}
__attribute__((noipa)) static float from_unsigned(U v) {
  return static_cast<float>(int64_t{v});
}

TEST(I2F) {
  for (unsigned mode = 0; mode < 4; ++mode) {
    const Words i2f = Words("00000201400_0000000800087306").rb(5).set(78, 2, mode);
    compare3("I2F", i2f, [=](U a, U, U, U) {
      return as_word(rounded(mode, [=] { return from_signed(static_cast<int32_t>(a)); }));
    });
    compare3("I2F.U32", i2f.set(74, 1, 0), [=](U a, U, U, U) {
      return as_word(rounded(mode, [=] { return from_unsigned(a); }));
    });
  }
  const Words byte = Words("00000001000_0000000800087306").rb(5).set(84, 2, 0);
  for (unsigned k = 0; k < 4; ++k) {
    compare3("I2F.U8", byte.set(60, 2, k),
             [=](U a, U, U, U) { return as_word(static_cast<float>(a >> (8 * k) & 255)); });
  }
}

// All halves to float and back.
TEST(half_conversions) {
  for (U first = 0; first < 65536; first += kLanes) {
    OneWarp w({Words("00000004800_a00000ff08087230").rd(4).ra(5),    // HADD2.F32 R4, R5.H0, -RZ
               Words("00000200800_0000000300117304").rd(6).rb(4)});  // F2F.F16.F32 R6, R4
    for (U i = 0; i < kLanes; ++i) w.reg(5).lane[i] = first + i;
    CHECK(w.run());
    for (U i = 0; i < kLanes; ++i) {
      const U h = first + i;
      const bool nan = (h & 0x7fff) > 0x7c00;
      CHECK_EQ(w.reg(6).lane[i], nan ? 0x7fffu : h);
      if (!nan) CHECK_EQ(w.reg(4).lane[i], as_word(half_to_float(static_cast<uint16_t>(h))));
    }
  }
}

// The portable and the vector conversion agree on values at and around every boundary.
TEST(float_to_half) {
  Operands operands;
  for (int round = 0; round < 2000; ++round) {
    OneWarp w({Words("00000200800_0000000300117304").rd(6).rb(5)});
    for (U& lane : w.reg(5).lane) {
      lane = operands.next();
      if (round & 1) lane = (lane & 0x80ffffff) | (0x33 + (lane >> 24) % 20) << 24;
      if (round & 2) lane &= 0xfffff000;
    }
    CHECK(w.run());
    for (int i = 0; i < kLanes; ++i) {
      CHECK_EQ(w.reg(6).lane[i], U{half_from_double(as_float(w.reg(5).lane[i]))});
    }
  }
}

TEST(HMUL2_HSETP2) {
  Operands operands;
  for (int round = 0; round < kRounds; ++round) {
    OneWarp w({Words("00000000000_0000005c60027232").rd(4).ra(5).rb(6),
               Words("00003f8d000_0000000020007234").ra(5).rb(6).set(81, 3, 2).set(84, 3, 3)});
    for (int r = 5; r < 7; ++r) operands.fill(&w.reg(r));
    CHECK(w.run());
    for (int i = 0; i < kLanes; ++i) {
      for (int h = 0; h < 2; ++h) {
        const float a = half_to_float(static_cast<uint16_t>(w.reg(5).lane[i] >> (16 * h)));
        const float b = half_to_float(static_cast<uint16_t>(w.reg(6).lane[i] >> (16 * h)));
        CHECK_EQ(w.reg(4).lane[i] >> (16 * h) & 0xffff, U{half_from_double(double{a} * b)});
        CHECK_EQ(w.pred(2 + h) >> i & 1, U{a != b});
      }
    }
  }
}

// A float operand counts as the half that it is truncated to: compilers write cvt.rz.f16.f32 so.
TEST(halves_of_floats) {
  Operands operands;
  for (int round = 0; round < 2000; ++round) {
    OneWarp w({Words("00000000000_800000ff08087230").rd(4).ra(5).set(74, 2, 1),        // HADD2
               Words("00000000000_0000005c60027232").rd(6).ra(5).rb(8).set(74, 2, 1),  // HMUL2
               Words("00003f8d000_0000000020007234")                                   // HSETP2.NEU
                   .ra(5)
                   .rb(4)
                   .set(74, 2, 1)
                   .set(81, 3, 2)
                   .set(84, 3, 3)});
    for (U& lane : w.reg(5).lane) {
      lane = operands.next();
      if (round & 1) lane = (lane & 0x80ffffff) | (0x33 + (lane >> 24) % 20) << 24;
    }
    for (U& lane : w.reg(8).lane) lane = 0x3c003c00;  // ones
    CHECK(w.run());
    for (int i = 0; i < kLanes; ++i) {
      const U half = half_from_double(as_float(w.reg(5).lane[i]), 3);
      CHECK_EQ(w.reg(4).lane[i], half | half << 16);
      CHECK_EQ(w.reg(6).lane[i], half | half << 16);
      const bool nan = (half & 0x7fff) > 0x7c00;
      CHECK_EQ(w.pred(2) >> i & 1, U{nan});
    }
  }
}

TEST(HMMA) {
  Operands operands;
  OneWarp w({Words("00000001004_000000282404723c").rd(4).ra(8).rb(10).rc(12)});
  for (int r = 8; r < 11; ++r) {
    for (U& lane : w.reg(r).lane) {
      // Small integers: every order of summation is exact.
      const U x = operands.next();
      lane = half_from_double(static_cast<int>(x % 17) - 8) |
             U{half_from_double(static_cast<int>(x >> 8) % 9)} << 16;
    }
  }
  for (int r = 12; r < 16; ++r) {
    for (U& lane : w.reg(r).lane) lane = as_word(static_cast<float>(operands.next() % 100));
  }
  const auto a = [&](int row, int k) {
    const U pair = w.reg(row < 8 ? 8 : 9).lane[(row % 8) * 4 + k / 2];
    return half_to_float(static_cast<uint16_t>(pair >> (16 * (k % 2))));
  };
  const auto b = [&](int k, int column) {
    const U pair = w.reg(10).lane[column * 4 + k / 2];
    return half_to_float(static_cast<uint16_t>(pair >> (16 * (k % 2))));
  };
  CHECK(w.run());
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      const int lane = (row % 8) * 4 + column / 2, r = 2 * (row / 8) + column % 2;
      float want = as_float(w.reg(12 + r).lane[lane]);
      for (int k = 0; k < 8; ++k) want += a(row, k) * b(k, column);
      CHECK_EQ(as_float(w.reg(4 + r).lane[lane]), want);
    }
  }
}

// ---- MUFU --------------------------------------------------------------------------------------

// Largest error in units in the last place of the float result, over many operands.
template <class F>
static double worst_ulp(unsigned function, float low, float high, F reference) {
  double worst = 0;
  for (int round = 0; round < 400; ++round) {
    OneWarp w({Words("00000001000_00000009000a7308").rd(4).rb(5).set(74, 4, function)});
    for (int i = 0; i < kLanes; ++i) {
      const double t = (round * kLanes + i) / (400.0 * kLanes);
      w.reg(5).lane[i] = as_word(static_cast<float>(low + (high - low) * t));
    }
    CHECK(w.run());
    for (int i = 0; i < kLanes; ++i) {
      const double want = reference(static_cast<double>(as_float(w.reg(5).lane[i])));
      const float got = as_float(w.reg(4).lane[i]);
      if (std::fabs(want) < 0x1p-126) continue;
      int exponent = 0;
      std::frexp(want, &exponent);
      worst = std::max(worst, std::fabs(got - want) / std::ldexp(1.0, exponent - 24));
    }
  }
  return worst;
}

TEST(MUFU_accuracy) {
  constexpr double kTurn = 6.283185307179586;
  const auto check_ulp = [](const char* name, double ulp, double limit) {
    std::cout << "  MUFU." << name << " error at most " << ulp << " ulp\n";
    CHECK(ulp <= limit);
  };
  check_ulp("EX2", worst_ulp(2, -125, 127, [](double x) { return std::exp2(x); }), 1.0);
  check_ulp("EX2 near 0", worst_ulp(2, -1, 1, [](double x) { return std::exp2(x); }), 1.0);
  check_ulp("LG2", worst_ulp(3, 0.01f, 100, [](double x) { return std::log2(x); }), 2.0);
  check_ulp("LG2 near 1", worst_ulp(3, 0.9f, 1.1f, [](double x) { return std::log2(x); }), 2.0);
  check_ulp("RCP", worst_ulp(4, 0.001f, 50, [](double x) { return 1 / x; }), 0.5);
  check_ulp("RSQ", worst_ulp(5, 0.001f, 50, [](double x) { return 1 / std::sqrt(x); }), 0.51);
  check_ulp("SIN", worst_ulp(1, 0.001f, 0.124f, [=](double x) { return std::sin(kTurn * x); }),
            2.0);
  check_ulp("COS", worst_ulp(0, 0.001f, 0.124f, [=](double x) { return std::cos(kTurn * x); }),
            1.0);
}

TEST(MUFU_special) {
  const auto mufu = [](unsigned function, float x) {
    OneWarp w({Words("00000001000_00000009000a7308").rd(4).rb(5).set(74, 4, function)});
    for (U& lane : w.reg(5).lane) lane = as_word(x);
    CHECK(w.run());
    return w.reg(4).lane[7];
  };
  const U inf = 0x7f800000, nan = 0x7fffffff;
  CHECK_EQ(mufu(4, 0.0f), inf);
  CHECK_EQ(mufu(4, -0.0f), inf | 0x80000000);
  CHECK_EQ(mufu(4, 0x1p-140f), inf);  // denormal counts as zero
  CHECK_EQ(mufu(4, 0x1p127f), 0u);    // denormal result becomes zero
  CHECK_EQ(mufu(5, -1.0f), nan);
  CHECK_EQ(mufu(5, as_float(inf)), 0u);
  CHECK_EQ(mufu(2, as_float(inf)), inf);
  CHECK_EQ(mufu(2, -as_float(inf)), 0u);
  CHECK_EQ(mufu(2, 10.0f), as_word(1024.0f));
  CHECK_EQ(mufu(2, -130.0f), 0u);
  CHECK_EQ(mufu(3, 0.0f), inf | 0x80000000);
  CHECK_EQ(mufu(3, -1.0f), nan);
  CHECK_EQ(mufu(3, as_float(inf)), inf);
  CHECK_EQ(mufu(3, 8.0f), as_word(3.0f));
  CHECK_EQ(mufu(0, 0.0f), as_word(1.0f));
  CHECK_EQ(mufu(0, 0.5f), as_word(-1.0f));
  CHECK_EQ(mufu(1, 0.25f), as_word(1.0f));
  CHECK_EQ(mufu(1, 1000.75f), as_word(-1.0f));
  CHECK_EQ(mufu(1, as_float(inf)), nan);
}

}  // namespace softgpu::exec

CHECK_MAIN
