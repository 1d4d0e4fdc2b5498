// The element arithmetic against independent computations: every bit pattern of the small formats.
#include "reduce/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/key.h"
#include "check.h"
#include "reduce/formats.h"

namespace {

// The value of a float with `exponent` and `mantissa` bits, from its definition.
double decode(unsigned bits, int exponent, int mantissa) {
  const int bias = (1 << (exponent - 1)) - 1;
  const double sign = bits >> (exponent + mantissa) & 1 ? -1 : 1;
  const int e = static_cast<int>(bits >> mantissa) & ((1 << exponent) - 1);
  const double m = bits & ((1u << mantissa) - 1);
  if (e == 0) return sign * std::ldexp(m, 1 - bias - mantissa);
  return sign * std::ldexp(m + (1 << mantissa), e - bias - mantissa);
}

// The code whose value is nearest to `value`, ties to the even code; `codes` finite ones >= 0.
unsigned nearest(double value, unsigned codes, int exponent, int mantissa) {
  unsigned low = 0, high = codes - 1;  // the values grow with the codes
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (decode(middle, exponent, mantissa) <= value ? low : high) = middle;
  }
  const double below = value - decode(low, exponent, mantissa);
  const double above = decode(high, exponent, mantissa) - value;
  if (below == above) return low % 2 ? high : low;
  return below < above ? low : high;
}

template <class T>
T sum(ncclDataType_t dtype, T a, T b, flexccl::Combine how = flexccl::Combine::kSum) {
  const flexccl::Reduction reduction{.dtype = dtype, .combine = how};
  T out;
  flexccl::combine(reduction, reinterpret_cast<std::byte*>(&a), reinterpret_cast<std::byte*>(&b),
                   reinterpret_cast<std::byte*>(&out), 1);
  return out;
}

}  // namespace

TEST(half_and_bfloat_conversions_are_exact_inverses) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto code = static_cast<std::uint16_t>(bits);
    if ((bits & 0x7c00) != 0x7c00) {
      CHECK_EQ(static_cast<double>(flexccl::half_to_float(code)), decode(bits, 5, 10));
      CHECK_EQ(flexccl::float_to_half(flexccl::half_to_float(code)), code);
    }
    if ((bits & 0x7f80) != 0x7f80)
      CHECK_EQ(flexccl::float_to_bfloat(flexccl::bfloat_to_float(code)), code);
  }
  CHECK_EQ(flexccl::float_to_half(65519.0f), 0x7bff);
  CHECK_EQ(flexccl::float_to_half(65520.0f), 0x7c00);
}

TEST(half_rounds_to_nearest_even) {
  for (unsigned bits = 0; bits < 0x7bff; bits += 7) {
    const double low = decode(bits, 5, 10), high = decode(bits + 1, 5, 10);
    for (const double part : {0.25, 0.5, 0.75}) {
      const float value = static_cast<float>(low + (high - low) * part);
      CHECK_EQ(flexccl::float_to_half(value), nearest(value, 0x7c00, 5, 10));
    }
  }
}

TEST(fp8_sums_are_rounded_to_half_then_to_fp8) {
  for (unsigned a = 0; a < 0x7c; ++a)
    for (unsigned b = 0; b < 0x7c; ++b) {
      const double e4 = decode(a, 4, 3) + decode(b, 4, 3), e5 = decode(a, 5, 2) + decode(b, 5, 2);
      const double half4 = decode(nearest(std::min(e4, 65504.0), 0x7c00, 5, 10), 5, 10);
      const double half5 = decode(nearest(std::min(e5, 65504.0), 0x7c00, 5, 10), 5, 10);
      CHECK_EQ(unsigned(sum(ncclFloat8e4m3, std::uint8_t(a), std::uint8_t(b))),
               half4 >= 448 ? 0x7eu : nearest(half4, 0x7f, 4, 3));
      CHECK_EQ(unsigned(sum(ncclFloat8e5m2, std::uint8_t(a), std::uint8_t(b))),
               half5 >= 57344 ? 0x7bu : nearest(half5, 0x7c, 5, 2));
    }
}

TEST(integers_wrap_and_floats_follow_the_gpu) {
  using flexccl::Combine;
  CHECK_EQ(int(sum<std::int8_t>(ncclInt8, 100, 100)), -56);
  CHECK_EQ(sum<std::uint32_t>(ncclUint32, 1u << 31, 2, Combine::kProd), 0u);
  CHECK_EQ(sum<std::int64_t>(ncclInt64, -5, 3, Combine::kMin), -5);
  CHECK_EQ(sum<std::uint64_t>(ncclUint64, ~0ull, 3, Combine::kMax), ~0ull);
  const float nan = std::nanf("");
  CHECK_EQ(sum(ncclFloat32, nan, 2.0f, Combine::kMax), 2.0f);
  CHECK_EQ(sum(ncclFloat32, 2.0f, nan, Combine::kMin), 2.0f);
  CHECK(std::isnan(sum(ncclFloat32, nan, nan, Combine::kMin)));
  CHECK(std::signbit(sum(ncclFloat64, 0.0, -0.0, Combine::kMin)));
  CHECK(!std::signbit(sum(ncclFloat64, -0.0, 0.0, Combine::kMax)));
}

// By hand: what the matrix of collectives expects is computed with this arithmetic itself.
TEST(int32_and_uint8_samples) {
  using flexccl::Combine;
  CHECK_EQ(sum<std::int32_t>(ncclInt32, 2147483647, 1), -2147483647 - 1);
  CHECK_EQ(sum<std::int32_t>(ncclInt32, -40, 15), -25);
  CHECK_EQ(sum<std::int32_t>(ncclInt32, -3, 7, Combine::kProd), -21);
  CHECK_EQ(sum<std::int32_t>(ncclInt32, 65536, 65537, Combine::kProd), 65536);
  CHECK_EQ(sum<std::int32_t>(ncclInt32, -5, 3, Combine::kMin), -5);
  CHECK_EQ(sum<std::int32_t>(ncclInt32, -5, 3, Combine::kMax), 3);
  const auto bytes = [](std::uint8_t a, std::uint8_t b, Combine how) {
    return int(sum<std::uint8_t>(ncclUint8, a, b, how));
  };
  CHECK_EQ(bytes(200, 100, Combine::kSum), 44);
  CHECK_EQ(bytes(16, 17, Combine::kProd), 16);
  CHECK_EQ(bytes(200, 3, Combine::kMin), 3);
  CHECK_EQ(bytes(200, 3, Combine::kMax), 200);
}

// The first input is multiplied alone, each other one as it is added.
template <class T>
void check_premultiply(ncclDataType_t dtype, std::uint64_t scalar, T a, T b, T first, T both) {
  const flexccl::Reduction r{.dtype = dtype, .premultiplies = true, .scalar = scalar};
  T one{}, out{};
  flexccl::premultiply(r, reinterpret_cast<std::byte*>(&a), reinterpret_cast<std::byte*>(&one), 1);
  CHECK(one == first);
  flexccl::combine(r, reinterpret_cast<std::byte*>(&one), reinterpret_cast<std::byte*>(&b),
                   reinterpret_cast<std::byte*>(&out), 1);
  CHECK(out == both);
}

TEST(premultiply_samples) {
  check_premultiply<std::int32_t>(ncclInt32, 3, 5, 7, 15, 36);
  check_premultiply<std::int32_t>(ncclInt32, 0xfffffffe, 7, -1, -14, -12);
  check_premultiply<std::uint8_t>(ncclUint8, 3, 100, 90, 44, 58);
  check_premultiply<float>(ncclFloat32, 0x40400000, 1.5f, 2.0f, 4.5f, 10.5f);
  check_premultiply<double>(ncclFloat64, 0x4008000000000000, 1.5, 2.0, 4.5, 10.5);
  // 3 * 1, and 3 * 1 more; 4 in the last of them, whose scalar has that value.
  check_premultiply<std::uint16_t>(ncclFloat16, 0x4200, 0x3c00, 0x3c00, 0x4200, 0x4600);
  check_premultiply<std::uint16_t>(ncclBfloat16, 0x4040, 0x3f80, 0x3f80, 0x4040, 0x40c0);
  check_premultiply<std::uint8_t>(ncclFloat8e4m3, 0x44, 0x38, 0x38, 0x44, 0x4c);
  check_premultiply<std::uint8_t>(ncclFloat8e5m2, 0x44, 0x3c, 0x3c, 0x44, 0x48);
}

TEST(a_nan_that_comes_out_has_one_pattern) {
  // Whichever operand it came from: x86 alone would keep the bits of the first one.
  const auto raw = [](float f) { return std::bit_cast<std::uint32_t>(f); };
  const float nan1 = std::bit_cast<float>(0x7fc12345u), nan2 = std::bit_cast<float>(0xff812345u);
  const float infinity = INFINITY;
  for (const auto& [a, b] :
       {std::pair{nan1, 1.0f}, {1.0f, nan2}, {nan1, nan2}, {nan2, nan1}, {infinity, -infinity}}) {
    CHECK_EQ(raw(sum(ncclFloat32, a, b)), 0x7fffffffu);
    if (!std::isinf(a)) CHECK_EQ(raw(sum(ncclFloat32, a, b, flexccl::Combine::kProd)), 0x7fffffffu);
  }
  CHECK_EQ(raw(sum(ncclFloat32, nan1, nan2, flexccl::Combine::kMax)), 0x7fffffffu);
  CHECK_EQ(sum<std::uint16_t>(ncclFloat16, 0xfd00, 0x3c00), 0x7fffu);
  CHECK_EQ(sum<std::uint16_t>(ncclBfloat16, 0x3f80, 0xffc0), 0x7fffu);
  for (const auto how : {flexccl::Combine::kMin, flexccl::Combine::kMax}) {
    CHECK_EQ(sum<std::uint16_t>(ncclFloat16, 0xfd00, 0x3c00, how), 0x3c00);  // a number wins
    CHECK_EQ(sum<std::uint16_t>(ncclBfloat16, 0x3f80, 0x7fc0, how), 0x3f80);
    CHECK_EQ(unsigned(sum<std::uint8_t>(ncclFloat8e4m3, 0xff, 0x38, how)), 0x38u);
    CHECK_EQ(unsigned(sum<std::uint8_t>(ncclFloat8e5m2, 0x3c, 0x7e, how)), 0x3cu);
  }
  CHECK_EQ(unsigned(sum<std::uint8_t>(ncclFloat8e4m3, 0xff, 0x38)), 0x7fu);
}

TEST(long_runs_and_single_elements_agree) {
  // Vector code and its scalar rest, at every alignment, against one element at a time.
  constexpr std::size_t kBytes = 8 * 67;
  std::vector<std::byte> a(kBytes + 8), b(kBytes + 8), whole(kBytes + 8), single(kBytes + 8);
  std::uint64_t state = 88172645463325252u;
  for (auto* bytes : {&a, &b})
    for (std::byte& byte : *bytes) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      byte = static_cast<std::byte>(state >> 24);
    }
  for (int dtype = 0; dtype < ncclNumTypes; ++dtype)
    for (int how = 0; how < 4; ++how)
      for (const bool premultiplies : {false, true}) {
        flexccl::Reduction r{.dtype = static_cast<ncclDataType_t>(dtype),
                             .combine = static_cast<flexccl::Combine>(how),
                             .premultiplies = premultiplies,
                             .scalar = 0x4045404540454045u};
        const std::size_t size = flexccl::element_size(r.dtype), count = kBytes / size;
        for (const std::size_t skew : {0, 1, 5}) {
          flexccl::combine(r, &a[skew], &b[skew], &whole[skew], count);
          for (std::size_t i = 0; i < count * size; i += size)
            flexccl::combine(r, &a[skew + i], &b[skew + i], &single[skew + i], 1);
          CHECK(std::memcmp(&whole[skew], &single[skew], count * size) == 0);
        }
      }
}

TEST(average) {
  std::int32_t total = -7;
  flexccl::finish(flexccl::average(ncclInt32, 2), reinterpret_cast<std::byte*>(&total), 1);
  CHECK_EQ(total, -3);  // towards zero, as integer division
  std::uint64_t large = ~0ull - 1;
  flexccl::finish(flexccl::average(ncclUint64, 2), reinterpret_cast<std::byte*>(&large), 1);
  CHECK_EQ(large, ~0ull / 2);
  float value = 9.0f;
  const flexccl::Reduction third = flexccl::average(ncclFloat32, 3);
  flexccl::premultiply(third, reinterpret_cast<std::byte*>(&value),
                       reinterpret_cast<std::byte*>(&value), 1);
  CHECK_EQ(value, 9.0f * static_cast<float>(1.0 / 3));
}

TEST(keyed_hash_is_siphash) {
  // The published vectors of SipHash-2-4-128: key 00..0f, message 00..(n-1).
  flexccl::Key key;
  for (std::size_t i = 0; i < 16; ++i) key.bytes[i] = static_cast<std::uint8_t>(i);
  const flexccl::Bytes16 empty = {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
                                  0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93};
  const flexccl::Bytes16 one = {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44,
                                0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45};
  const std::byte zero{0};
  CHECK(flexccl::keyed_hash(key, {}) == empty);
  CHECK(flexccl::keyed_hash(key, {&zero, 1}) == one);
}

CHECK_MAIN
