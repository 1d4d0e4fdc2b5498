#include "reduce/reduce.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "core/error.h"
#include "reduce/formats.h"

namespace flexccl {
namespace {

// A codec says how an element is stored and in which type one step of arithmetic is done.
template <class T>
struct Plain {
  using Stored = T;
  // Unsigned: integer overflow wraps around.
  using Value = T;
  static Value load(Stored s) { return s; }
  static Stored store(Value v) { return v; }
};
struct Half {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored s) { return half_to_float(s); }
  static Stored store(Value v) { return float_to_half(v); }
};
struct Bfloat {
  using Stored = std::uint16_t;
  using Value = float;
  static Value load(Stored s) { return bfloat_to_float(s); }
  static Stored store(Value v) { return float_to_bfloat(v); }
};
// fp8 is computed in half and rounded a second time, as NCCL's kernels do.
struct E4m3 {
  using Stored = std::uint8_t;
  using Value = float;
  static Value load(Stored s) { return e4m3_to_float(s); }
  static Stored store(Value v) { return float_to_e4m3(half_to_float(float_to_half(v))); }
};
struct E5m2 {
  using Stored = std::uint8_t;
  using Value = float;
  static Value load(Stored s) { return e5m2_to_float(s); }
  static Stored store(Value v) { return float_to_e5m2(half_to_float(float_to_half(v))); }
};

template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return a + b;
}
template <class T>
T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  else
    return a * b;
}
// As the GPU's fmin/fmax: a NaN loses against a number, and -0 is less than +0.
template <class T>
T lesser(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : b;
    if (a == b) return std::signbit(a) ? a : b;
    return b < a ? b : a;  // also when b is NaN
  } else {
    return b < a ? b : a;
  }
}
template <class T>
T greater(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : b;
    if (a == b) return std::signbit(a) ? b : a;
    return b > a ? b : a;
  } else {
    return b > a ? b : a;
  }
}

template <class Codec>
typename Codec::Stored get(const std::byte* from, std::size_t i) {
  typename Codec::Stored stored;
  std::memcpy(&stored, from + i * sizeof stored, sizeof stored);
  return stored;
}
template <class Codec>
void put(std::byte* to, std::size_t i, typename Codec::Stored stored) {
  std::memcpy(to + i * sizeof stored, &stored, sizeof stored);
}

template <class Codec, class Step>
void each_pair(const Reduction& r, const std::byte* a, const std::byte* b, std::byte* out,
               std::size_t count, Step step) {
  using Value = typename Codec::Value;
  if (!r.premultiplies) {
    for (std::size_t i = 0; i < count; ++i)
      put<Codec>(out, i,
                 Codec::store(step(Codec::load(get<Codec>(a, i)), Codec::load(get<Codec>(b, i)))));
    return;
  }
  const Value scalar = Codec::load(get<Codec>(reinterpret_cast<const std::byte*>(&r.scalar), 0));
  for (std::size_t i = 0; i < count; ++i) {
    const auto own = Codec::store(multiply<Value>(Codec::load(get<Codec>(b, i)), scalar));
    put<Codec>(out, i, Codec::store(step(Codec::load(get<Codec>(a, i)), Codec::load(own))));
  }
}

template <class Codec>
struct Arithmetic {
  using Value = typename Codec::Value;
  static void combine(const Reduction& r, const std::byte* a, const std::byte* b, std::byte* out,
                      std::size_t count) {
    switch (r.combine) {
      case Combine::kSum:
        return each_pair<Codec>(r, a, b, out, count, [](Value x, Value y) { return add(x, y); });
      case Combine::kProd:
        return each_pair<Codec>(r, a, b, out, count,
                                [](Value x, Value y) { return multiply(x, y); });
      case Combine::kMin:
        return each_pair<Codec>(r, a, b, out, count, [](Value x, Value y) { return lesser(x, y); });
      case Combine::kMax:
        return each_pair<Codec>(r, a, b, out, count,
                                [](Value x, Value y) { return greater(x, y); });
    }
  }
  static void premultiply(const Reduction& r, const std::byte* in, std::byte* out,
                          std::size_t count) {
    const Value scalar = Codec::load(get<Codec>(reinterpret_cast<const std::byte*>(&r.scalar), 0));
    for (std::size_t i = 0; i < count; ++i)
      put<Codec>(out, i, Codec::store(multiply<Value>(Codec::load(get<Codec>(in, i)), scalar)));
  }
  static void divide(const Reduction& r, std::byte* data, std::size_t count) {
    if constexpr (std::is_integral_v<Value>)
      for (std::size_t i = 0; i < count; ++i)
        put<Codec>(
            data, i,
            static_cast<Value>(get<Codec>(data, i) / static_cast<std::int64_t>(r.post_divisor)));
  }
};

// The type of division matters for values above the signed range.
template <>
void Arithmetic<Plain<std::uint64_t>>::divide(const Reduction& r, std::byte* data,
                                              std::size_t count) {
  using Codec = Plain<std::uint64_t>;
  for (std::size_t i = 0; i < count; ++i) put<Codec>(data, i, get<Codec>(data, i) / r.post_divisor);
}

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
