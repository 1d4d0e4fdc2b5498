#include "reduce/reduce.h"

#include "base/error.h"
#include "reduce/arithmetic.h"

namespace flexccl {
namespace {

// The loops once for any x86-64 and once with AVX2, which every server of the last ten years has.
// The bits are the same: nothing is contracted or reordered.
#if defined(__x86_64__)
#define FLEXCCL_WIDE [[gnu::target("avx2")]]
const bool wide = __builtin_cpu_supports("avx2") != 0;
#else
#define FLEXCCL_WIDE
constexpr bool wide = false;
#endif

template <class Codec>
struct Arithmetic {
  using Value = typename Codec::Value;
  static void combine(const Reduction& r, const std::byte* a, const std::byte* b, std::byte* out,
                      std::size_t count) {
    wide ? combine_wide(r, a, b, out, count) : combine_all<Codec>(r, a, b, out, count);
  }
  static void premultiply(const Reduction& r, const std::byte* in, std::byte* out,
                          std::size_t count) {
    wide ? premultiply_wide(r, in, out, count) : premultiply_all<Codec>(r, in, out, count);
  }
  static void divide(const Reduction& r, std::byte* data, std::size_t count) {
    if constexpr (std::is_integral_v<Value>) {
      // The type of the divisor matters for values above the signed range.
      using Divisor =
          std::conditional_t<std::is_same_v<Value, std::uint64_t>, std::uint64_t, std::int64_t>;
      const auto divisor = static_cast<Divisor>(r.post_divisor);
      for (std::size_t i = 0; i < count; ++i)
        put<Codec>(data, i,
                   static_cast<Value>(static_cast<Divisor>(get<Codec>(data, i)) / divisor));
    }
  }

 private:
  FLEXCCL_WIDE static void combine_wide(const Reduction& r, const std::byte* a, const std::byte* b,
                                        std::byte* out, std::size_t count) {
    combine_all<Codec>(r, a, b, out, count);
  }
  FLEXCCL_WIDE static void premultiply_wide(const Reduction& r, const std::byte* in, std::byte* out,
                                            std::size_t count) {
    premultiply_all<Codec>(r, in, out, count);
  }
};

// Calls `action` with the arithmetic of the data type.
template <class Action>
void with_arithmetic(ncclDataType_t dtype, Action action) {
  switch (dtype) {
    case ncclInt8:
      return action(Arithmetic<Plain<std::int8_t>>());
    case ncclUint8:
      return action(Arithmetic<Plain<std::uint8_t>>());
    case ncclInt32:
      return action(Arithmetic<Plain<std::int32_t>>());
    case ncclUint32:
      return action(Arithmetic<Plain<std::uint32_t>>());
    case ncclInt64:
      return action(Arithmetic<Plain<std::int64_t>>());
    case ncclUint64:
      return action(Arithmetic<Plain<std::uint64_t>>());
    case ncclFloat16:
      return action(Arithmetic<Half>());
    case ncclFloat32:
      return action(Arithmetic<Plain<float>>());
    case ncclFloat64:
      return action(Arithmetic<Plain<double>>());
    case ncclBfloat16:
      return action(Arithmetic<Bfloat>());
    case ncclFloat8e4m3:
      return action(Arithmetic<E4m3>());
    case ncclFloat8e5m2:
      return action(Arithmetic<E5m2>());
    case ncclNumTypes:
      break;
  }
  fail(ncclInternalError, "flexccl: [", int(dtype), "] is not a data type");
}

std::uint64_t one_over(ncclDataType_t dtype, int nranks) {
  const double exact = 1.0 / nranks;
  const float single = static_cast<float>(exact);
  switch (dtype) {
    case ncclFloat64:
      return std::bit_cast<std::uint64_t>(exact);
    case ncclFloat32:
      return std::bit_cast<std::uint32_t>(single);
    case ncclFloat16:
      return float_to_half(single);
    case ncclBfloat16:
      return float_to_bfloat(single);
    case ncclFloat8e4m3:
      return float_to_e4m3(single);
    default:
      return float_to_e5m2(single);
  }
}

}  // namespace

std::size_t element_size(ncclDataType_t dtype) {
  switch (dtype) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    case ncclNumTypes:
      break;
  }
  return 0;
}

Reduction average(ncclDataType_t dtype, int nranks) {
  Reduction reduction{.dtype = dtype};
  if (dtype <= ncclUint64) {
    reduction.post_divisor = static_cast<std::uint64_t>(nranks);
  } else {
    reduction.premultiplies = true;
    reduction.scalar = one_over(dtype, nranks);
  }
  return reduction;
}

void combine(const Reduction& reduction, const std::byte* received, const std::byte* own,
             std::byte* out, std::size_t count) {
  with_arithmetic(reduction.dtype, [&](auto arithmetic) {
    arithmetic.combine(reduction, received, own, out, count);
  });
}

void premultiply(const Reduction& reduction, const std::byte* in, std::byte* out,
                 std::size_t count) {
  with_arithmetic(reduction.dtype,
                  [&](auto arithmetic) { arithmetic.premultiply(reduction, in, out, count); });
}

void finish(const Reduction& reduction, std::byte* data, std::size_t count) {
  if (reduction.post_divisor == 1) return;
  with_arithmetic(reduction.dtype,
                  [&](auto arithmetic) { arithmetic.divide(reduction, data, count); });
}

}  // namespace flexccl
