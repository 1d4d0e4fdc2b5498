// Memory accesses in every pattern, shuffles, votes, atomics, divergence.
#include "one_warp.h"

namespace softgpu::exec {

using U = uint32_t;

// ---- global memory -----------------------------------------------------------------------------

struct Pool {
  alignas(64) uint8_t bytes[8192];
  explicit Pool(Operands* operands) {
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(operands->next() >> 7);
  }
  uint64_t base() const { return reinterpret_cast<uint64_t>(bytes); }
};

constexpr U kBytes[] = {1, 1, 2, 2, 4, 8, 16};

// Byte offsets of the lanes by pattern.
static U offset_of(int pattern, int lane, U size) {
  const auto i = static_cast<U>(lane);
  switch (pattern) {
    case 0:
      return 256 + i * size;  // a sequence
    case 1:
      return 512;  // the same everywhere
    case 2:
      return (i * 37 % 32) * size * 3;  // scattered
    case 3:
      return 4096 - (i + 1) * size;  // descending
    default:
      return (i % 16) * size + (i / 16) * 2048;  // two rows
  }
}

static void set_addresses(OneWarp* w, const Pool& pool, int pattern, U size) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t address = pool.base() + offset_of(pattern, i, size);
    w->reg(2).lane[i] = static_cast<U>(address);
    w->reg(3).lane[i] = static_cast<U>(address >> 32);
  }
}

static U expected_word(const uint8_t* p, unsigned size, U k) {
  U v = 0;
  std::memcpy(&v, p + 4 * k, std::min<U>(kBytes[size], 4));
  if (size == 1) v = static_cast<U>(static_cast<int8_t>(v));
  if (size == 3) v = static_cast<U>(static_cast<int16_t>(v));
  return v;
}

TEST(LDG_patterns) {
  Operands operands;
  Pool pool(&operands);
  for (unsigned size = 0; size < 7; ++size) {
    for (int pattern = 0; pattern < 5; ++pattern) {
      for (U mask : {kFull, 0xffff00ffu, 0x80000001u, 0x00010000u}) {
        // @P0 LDG R8, [R2 + 0]
        OneWarp w({Words("000001eeb00_0000000004047381").rd(8).ra(2).set(73, 3, size).guard(0)});
        w.memory.add(pool.base(), sizeof pool.bytes);
        set_addresses(&w, pool, pattern, kBytes[size]);
        w.pred(0) = mask;
        for (int r = 8; r < 12; ++r) w.reg(r).lane[5] = 0x12345678;
        CHECK(w.run());
        for (int i = 0; i < kLanes; ++i) {
          if (!(mask >> i & 1)) {
            CHECK(i != 5 || w.reg(8).lane[i] == 0x12345678);
            continue;
          }
          const uint8_t* p = pool.bytes + offset_of(pattern, i, kBytes[size]);
          for (U k = 0; k < (kBytes[size] + 3) / 4; ++k) {
            CHECK_EQ(w.reg(static_cast<int>(8 + k)).lane[i], expected_word(p, size, k));
          }
        }
      }
    }
  }
}

TEST(STG_patterns) {
  Operands operands;
  for (unsigned size = 0; size < 7; ++size) {
    for (int pattern = 0; pattern < 5; ++pattern) {
      for (U mask : {kFull, 0xff0fff0fu, 0x00000002u}) {
        Pool pool(&operands);
        Pool want = pool;
        OneWarp w({Words("0000010e100_ffffe01712007386")
                       .ra(2)
                       .rb(8)
                       .set(40, 24, 0)
                       .set(73, 3, size)
                       .guard(0)});
        w.memory.add(pool.base(), sizeof pool.bytes);
        set_addresses(&w, pool, pattern, kBytes[size]);
        for (int r = 8; r < 12; ++r) operands.fill(&w.reg(r));
        w.pred(0) = mask;
        for (int i = 0; i < kLanes; ++i) {  // the highest lane wins
          if (!(mask >> i & 1)) continue;
          U element[4];
          for (int k = 0; k < 4; ++k) element[k] = w.reg(8 + k).lane[i];
          std::memcpy(want.bytes + offset_of(pattern, i, kBytes[size]), element, kBytes[size]);
        }
        CHECK(w.run());
        CHECK(!std::memcmp(pool.bytes, want.bytes, sizeof pool.bytes));
      }
    }
  }
}

// Both ends of a mapping: what a full warp would touch beyond it is not touched.
TEST(LDG_at_the_end) {
  Operands operands;
  Pool pool(&operands);
  OneWarp w({Words("000001ee900_0000000004047381").rd(8).ra(2).guard(0)});
  w.memory.add(pool.base() + 256, 20);  // five words of the sequence
  set_addresses(&w, pool, 0, 4);
  w.pred(0) = 31;
  CHECK(w.run());
  for (int i = 0; i < 5; ++i)
    CHECK_EQ(w.reg(8).lane[i], expected_word(pool.bytes + 256 + 4 * i, 4, 0));
}

// ---- shared memory -----------------------------------------------------------------------------

TEST(LDS_STS_scaled) {
  Operands operands;
  for (unsigned scale = 0; scale < 4; ++scale) {
    const U factor = scale ? 2u << scale : 1;
    OneWarp w({Words("00000000800_0000001002007388").ra(2).rb(8).set(78, 2, scale).set(40, 24, 16),
               Words("00000001800_0000100000047984")
                   .rd(4)
                   .ra(3)
                   .set(78, 2, scale)
                   .set(73, 3, 4)
                   .set(40, 24, 16)},
              8192);
    for (int i = 0; i < kLanes; ++i) {
      w.reg(2).lane[i] = static_cast<U>(i) * 4;
      w.reg(3).lane[i] = static_cast<U>(31 - i) * 4;
    }
    operands.fill(&w.reg(8));
    CHECK(w.run());
    for (int i = 0; i < kLanes; ++i) CHECK_EQ(w.reg(4).lane[i], w.reg(8).lane[31 - i]);
    U third = 0;
    std::memcpy(&third, w.block.shared + 16 + 3 * 4 * factor, 4);
    CHECK_EQ(third, w.reg(8).lane[3]);
  }
}

TEST(LDSM) {
  for (unsigned transposed = 0; transposed < 2; ++transposed) {
    OneWarp w({Words("00000000200_000000002828783b").rd(8).ra(2).set(78, 2, transposed)}, 1024);
    for (U i = 0; i < 256; ++i) {
      const auto v = static_cast<uint16_t>(1000 + i);
      std::memcpy(w.block.shared + 2 * i, &v, 2);
    }
    for (int i = 0; i < kLanes; ++i) w.reg(2).lane[i] = static_cast<U>(i) * 16;
    CHECK(w.run());
    for (int m = 0; m < 4; ++m) {
      for (U lane = 0; lane < 32; ++lane) {
        const U i = lane / 4, j = 2 * (lane % 4);
        const U start = 1000 + static_cast<U>(m) * 64;
        const U low = start + (transposed ? j * 8 + i : i * 8 + j);
        const U high = low + (transposed ? 8 : 1);
        CHECK_EQ(w.reg(8 + m).lane[lane], low | high << 16);
      }
    }
  }
}

// ---- lanes -------------------------------------------------------------------------------------

TEST(SHFL) {
  Operands operands;
  for (unsigned mode = 0; mode < 4; ++mode) {
    for (U c : {0x1fu, 0x181fu, 0x1c1fu, 0u, 0x1800u, 0x100fu}) {
      OneWarp w({Words("000000e000b_080000140f147389")
                     .rd(4)
                     .ra(5)
                     .rb(6)
                     .rc(7)
                     .set(58, 2, mode)
                     .set(81, 3, 0)});
      operands.fill(&w.reg(5));
      for (U& lane : w.reg(6).lane) lane = operands.next() % (mode == 3 || mode == 0 ? 32 : 9);
      for (U& lane : w.reg(7).lane) lane = c;
      CHECK(w.run());
      for (int i = 0; i < kLanes; ++i) {
        const int b = static_cast<int>(w.reg(6).lane[i]), clamp = c & 31, segment = c >> 8 & 31;
        const int limit = (i & segment) + (clamp & ~segment);
        const int j = mode == 0   ? (i & segment) + (b & ~segment)
                      : mode == 1 ? i - b
                      : mode == 2 ? i + b
                                  : i ^ b;
        const bool ok = mode == 1 ? j >= limit : j <= limit;
        CHECK_EQ(w.pred(0) >> i & 1, U{ok});
        CHECK_EQ(w.reg(4).lane[i], w.reg(5).lane[ok ? j : i]);
      }
    }
  }
}

TEST(VOTE) {
  for (U ballot : {0u, 0xffffffffu, 0x0000fff0u, 0x80000000u}) {
    for (unsigned mode = 0; mode < 3; ++mode) {
      OneWarp w({Words("000038e0100_0000000000097806")
                     .rd(4)
                     .set(72, 2, mode)
                     .set(87, 4, 1)
                     .set(81, 3, 2)
                     .guard(0)});
      const U exec = 0xffffff00;
      w.pred(0) = exec;
      w.pred(1) = ballot;
      CHECK(w.run());
      const U seen = ballot & exec;
      const bool want = mode == 0   ? seen == exec
                        : mode == 1 ? seen != 0
                                    : seen == 0 || seen == exec;
      CHECK_EQ(w.reg(4).lane[9], seen);
      CHECK_EQ(w.reg(4).lane[0], 0u);
      CHECK_EQ(w.pred(2), want ? exec : 0u);
    }
  }
}

// ---- atomics -----------------------------------------------------------------------------------

TEST(ATOMG) {
  constexpr U kStart = 100;
  // ADD MIN MAX INC DEC AND OR XOR EXCH with operand = lane, in lane order.
  for (unsigned op = 0; op < 9; ++op) {
    alignas(16) U word = kStart;
    OneWarp w({Words("000001f41ff_00000003060303a8")
                   .rd(4)
                   .ra(2)
                   .rb(5)
                   .guard(7)
                   .set(87, 4, op)
                   .set(81, 3, 7)});
    const auto address = reinterpret_cast<uint64_t>(&word);
    w.memory.add(address, 4);
    for (int i = 0; i < kLanes; ++i) {
      w.reg(2).lane[i] = static_cast<U>(address);
      w.reg(3).lane[i] = static_cast<U>(address >> 32);
      w.reg(5).lane[i] = static_cast<U>(i) + 90;
    }
    CHECK(w.run());
    U value = kStart;
    for (U i = 0; i < 32; ++i) {
      CHECK_EQ(w.reg(4).lane[i], value);
      const U b = i + 90;
      const U results[] = {value + b,
                           std::min(value, b),
                           std::max(value, b),
                           value >= b ? 0 : value + 1,
                           value == 0 || value > b ? b : value - 1,
                           value & b,
                           value | b,
                           value ^ b,
                           b};
      value = results[op];
    }
    CHECK_EQ(word, value);
  }
}

// ---- divergence --------------------------------------------------------------------------------

// BSSY B0; @P0 BRA a; MOV R4, 1; BRA join; a: MOV R4, 2; join: BSYNC B0; VOTE.ANY R5, PT
TEST(diverge_and_join) {
  const Words bssy = Words("00003800000_0000000000007945").set(34, 30, 80 / 4);
  const Words bra = Words("00003800000_0000000000007947");
  OneWarp w({bssy, bra.guard(0).set(34, 48, 32 / 4), Words("00000000f00_0000000100047802").rd(4),
             bra.set(34, 48, 16 / 4), Words("00000000f00_0000000200047802").rd(4),
             Words("00003800000_0000000000007941"), Words("000038e0100_0000000000097806").rd(5)});
  w.pred(0) = 0x00ff00ff;
  CHECK(w.run());
  for (int i = 0; i < kLanes; ++i) {
    CHECK_EQ(w.reg(4).lane[i], 0x00ff00ffu >> i & 1 ? 2u : 1u);
    CHECK_EQ(w.reg(5).lane[i], kFull);  // all lanes voted together again
  }
}

// Lanes that exit are not waited for.
TEST(exit_inside_region) {
  OneWarp w({Words("00003800000_0000000000007945").set(34, 30, 32 / 4), exit_word().guard(0),
             Words("00003800000_0000000000007941"), Words("000038e0100_0000000000097806").rd(5)});
  w.pred(0) = 0xff;
  CHECK(w.run());
  CHECK_EQ(w.reg(5).lane[31], 0xffffff00u);
  CHECK_EQ(w.reg(5).lane[0], 0u);
}

TEST(S2UR_reads_the_packed_thread_index) {
  OneWarp w({exit_word().guard(0), Words("00000002000_00000000000479c3"),  // S2UR UR4, SR_TID
             Words("00008000f00_0000000400047c02")});                      // MOV R4, UR4
  w.pred(0) = 0x7;  // lane 3 is the first that is left
  CHECK(w.run());
  CHECK_EQ(w.reg(4).lane[31], 3u);
}

}  // namespace softgpu::exec

CHECK_MAIN
