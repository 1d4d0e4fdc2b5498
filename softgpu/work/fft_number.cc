// Numbers of the formats that transforms know, to and from double.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "work/fft.h"

namespace softgpu::fft {
namespace {

// A format of 16 bits: sign, exponent, mantissa.
struct Short {
  int mantissa_bits, bias;
};
constexpr Short kHalfFormat{10, 15}, kBfloatFormat{7, 127};

double widen(Short format, uint16_t bits) {
  const int field = (bits & 0x7fff) >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  double magnitude = 0;
  if (field == 2 * format.bias + 1) {
    magnitude = mantissa ? NAN : INFINITY;
  } else {
    const int whole = field ? mantissa | 1 << format.mantissa_bits : mantissa;
    magnitude = std::ldexp(whole, std::max(field, 1) - format.bias - format.mantissa_bits);
  }
  return std::copysign(magnitude, bits & 0x8000 ? -1.0 : 1.0);
}

// To nearest, ties to even.
uint16_t narrow(Short format, double value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = (2 * format.bias + 1) << format.mantissa_bits;
  if (std::isnan(value)) return 0x7fff;
  if (value == 0) return static_cast<uint16_t>(sign);
  int exponent = 0;
  std::frexp(value, &exponent);
  if (std::isinf(value) || exponent > format.bias + 1)
    return static_cast<uint16_t>(sign | infinity);
  // In units of the last place. A carry out of the mantissa is one into the exponent.
  const int field = std::max(exponent - 1 + format.bias, 1);
  const double units = std::ldexp(std::fabs(value), format.mantissa_bits + format.bias - field);
  const int whole = static_cast<int>(std::nearbyint(units));
  const int bits = ((field - 1) << format.mantissa_bits) + whole;
  return static_cast<uint16_t>(sign | std::min(bits, infinity));
}

template <class T>
T read(const void* from, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + index * sizeof value, sizeof value);
  return value;
}

template <class T>
void write(T value, void* to, size_t index) {
  std::memcpy(static_cast<std::byte*>(to) + index * sizeof value, &value, sizeof value);
}

Short format_of(Number number) {
  return number == Number::kHalf ? kHalfFormat : kBfloatFormat;
}

}  // namespace

size_t bytes_of(Number number) {
  return number == Number::kDouble ? 8 : number == Number::kSingle ? 4 : 2;
}

void load(Number number, const void* from, size_t count, double* to) {
  if (number == Number::kDouble) {
    std::memcpy(to, from, count * sizeof *to);
  } else if (number == Number::kSingle) {
    for (size_t i = 0; i < count; ++i) to[i] = static_cast<double>(read<float>(from, i));
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = widen(format_of(number), read<uint16_t>(from, i));
  }
}

void store(Number number, const double* from, size_t count, void* to) {
  if (number == Number::kDouble) {
    std::memcpy(to, from, count * sizeof *from);
  } else if (number == Number::kSingle) {
    for (size_t i = 0; i < count; ++i) write(static_cast<float>(from[i]), to, i);
  } else {
    for (size_t i = 0; i < count; ++i) write(narrow(format_of(number), from[i]), to, i);
  }
}

}  // namespace softgpu::fft
