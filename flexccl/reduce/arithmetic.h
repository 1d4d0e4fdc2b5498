// One step of every reduction on every element type, written so that the compiler makes vector code
// of it. All of it is inlined into the loops of reduce.cc, which exist once per instruction set.
#ifndef FLEXCCL_REDUCE_ARITHMETIC_H_
#define FLEXCCL_REDUCE_ARITHMETIC_H_

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "reduce/formats.h"
#include "reduce/reduce.h"

namespace flexccl {

template <class T>
struct FloatBits;
template <>
struct FloatBits<float> {
  using Signed = std::int32_t;
  static constexpr std::uint32_t kInfinity = 0x7f800000u, kNan = 0x7fffffffu;
};
template <>
struct FloatBits<double> {
  using Signed = std::int64_t;
  static constexpr std::uint64_t kInfinity = 0x7ff0000000000000u, kNan = 0x7fffffffffffffffu;
};

template <class T>
FLEXCCL_INLINE auto raw_bits(T value) {
  return std::bit_cast<std::make_unsigned_t<typename FloatBits<T>::Signed>>(value);
}
template <class T>
FLEXCCL_INLINE bool is_nan(T value) {
  return (raw_bits(value) & (~decltype(raw_bits(value))(0) >> 1)) > FloatBits<T>::kInfinity;
}
// Floats have one NaN as a result, as on the GPU: x86's depends on the order of the operands.
template <class T>
FLEXCCL_INLINE T one_nan(T value) {
  return is_nan(value) ? std::bit_cast<T>(FloatBits<T>::kNan) : value;
}

// A codec says how an element is stored and in which type one step of arithmetic is done.
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  FLEXCCL_INLINE static Value load(Stored s) { return s; }
  FLEXCCL_INLINE static Stored store(Value v) {
    if constexpr (std::is_floating_point_v<T>)
      return one_nan(v);
    else
      return v;
  }
};
struct Half {
  using Stored = std::uint16_t;
  using Value = float;
  FLEXCCL_INLINE static Value load(Stored s) { return half_to_float(s); }
  FLEXCCL_INLINE static Stored store(Value v) { return float_to_half(v); }
};
struct Bfloat {
  using Stored = std::uint16_t;
  using Value = float;
  FLEXCCL_INLINE static Value load(Stored s) { return bfloat_to_float(s); }
  FLEXCCL_INLINE static Stored store(Value v) { return float_to_bfloat(v); }
};
// fp8 is computed in half and rounded a second time, as NCCL's kernels do.
struct E4m3 {
  using Stored = std::uint8_t;
  using Value = float;
  FLEXCCL_INLINE static Value load(Stored s) { return e4m3_to_float(s); }
  FLEXCCL_INLINE static Stored store(Value v) {
    return float_to_e4m3(half_to_float(float_to_half(v)));
  }
};
struct E5m2 {
  using Stored = std::uint8_t;
  using Value = float;
  FLEXCCL_INLINE static Value load(Stored s) { return e5m2_to_float(s); }
  FLEXCCL_INLINE static Stored store(Value v) {
    return float_to_e5m2(half_to_float(float_to_half(v)));
  }
};

// Integer overflow wraps around: computed without sign.
struct Add {
  template <class T>
  FLEXCCL_INLINE T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return a + b;
    } else {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    }
  }
};
struct Multiply {
  template <class T>
  FLEXCCL_INLINE T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return a * b;
    } else {
      // 64 bits or the own width: two unsigned shorts would be multiplied as signed ints.
      using U = std::conditional_t<sizeof(T) < 4, std::uint32_t, std::make_unsigned_t<T>>;
      return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    }
  }
};

// Floats in their order as integers: -0 < +0, and equal only if the bits are.
template <class T>
FLEXCCL_INLINE auto ordered(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    using Signed = typename FloatBits<T>::Signed;
    const auto bits = static_cast<Signed>(raw_bits(value));
    const Signed sign = bits >> (8 * sizeof(T) - 1);  // all ones for negative values
    return static_cast<Signed>(bits ^ (sign & ~(Signed(1) << (8 * sizeof(T) - 1))));
  } else {
    return value;
  }
}
// As the GPU's fmin and fmax, which NCCL's kernels call: a NaN loses against a number.
template <bool kLess>
struct Extreme {
  template <class T>
  FLEXCCL_INLINE T operator()(T a, T b) const {
    const bool second = kLess ? ordered(b) < ordered(a) : ordered(a) < ordered(b);
    if constexpr (std::is_floating_point_v<T>) {
      // Without branches, as in formats.h.
      using U = decltype(raw_bits(a));
      const U mask = U(0) - static_cast<U>((second | is_nan(a)) & !is_nan(b));
      return std::bit_cast<T>(raw_bits(a) ^ ((raw_bits(a) ^ raw_bits(b)) & mask));
    } else {
      return second ? b : a;
    }
  }
};

template <class Codec>
FLEXCCL_INLINE typename Codec::Stored get(const std::byte* from, std::size_t i) {
  typename Codec::Stored stored;
  std::memcpy(&stored, from + i * sizeof stored, sizeof stored);
  return stored;
}
template <class Codec>
FLEXCCL_INLINE void put(std::byte* to, std::size_t i, typename Codec::Stored stored) {
  std::memcpy(to + i * sizeof stored, &stored, sizeof stored);
}
template <class Codec>
FLEXCCL_INLINE typename Codec::Value scalar_of(const Reduction& r) {
  return Codec::load(get<Codec>(reinterpret_cast<const std::byte*>(&r.scalar), 0));
}

template <class Codec, class Step>
FLEXCCL_INLINE void each_pair(const Reduction& r, const std::byte* a, const std::byte* b,
                              std::byte* out, std::size_t count, Step step) {
  if (!r.premultiplies) {
    for (std::size_t i = 0; i < count; ++i)
      put<Codec>(out, i,
                 Codec::store(step(Codec::load(get<Codec>(a, i)), Codec::load(get<Codec>(b, i)))));
    return;
  }
  const auto scalar = scalar_of<Codec>(r);
  for (std::size_t i = 0; i < count; ++i) {
    const auto own = Codec::store(Multiply()(Codec::load(get<Codec>(b, i)), scalar));
    put<Codec>(out, i, Codec::store(step(Codec::load(get<Codec>(a, i)), Codec::load(own))));
  }
}

template <class Codec>
FLEXCCL_INLINE void combine_all(const Reduction& r, const std::byte* a, const std::byte* b,
                                std::byte* out, std::size_t count) {
  switch (r.combine) {
    case Combine::kSum:
      return each_pair<Codec>(r, a, b, out, count, Add());
    case Combine::kProd:
      return each_pair<Codec>(r, a, b, out, count, Multiply());
    case Combine::kMin:
      return each_pair<Codec>(r, a, b, out, count, Extreme<true>());
    case Combine::kMax:
      return each_pair<Codec>(r, a, b, out, count, Extreme<false>());
  }
}

template <class Codec>
FLEXCCL_INLINE void premultiply_all(const Reduction& r, const std::byte* in, std::byte* out,
                                    std::size_t count) {
  const auto scalar = scalar_of<Codec>(r);
  for (std::size_t i = 0; i < count; ++i)
    put<Codec>(out, i, Codec::store(Multiply()(Codec::load(get<Codec>(in, i)), scalar)));
}

}  // namespace flexccl

#endif  // FLEXCCL_REDUCE_ARITHMETIC_H_
