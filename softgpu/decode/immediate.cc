#include "decode/immediate.h"

#include <bit>
#include <cmath>
#include <cstdio>

namespace softgpu {
namespace {

const char* sign_text(bool negative) {
  return negative ? "-" : "+";
}

// A finite number. The vendor switches to a fixed count of digits at 1e9.
std::string finite_text(double value) {
  if (value == 0 && std::signbit(value)) return "-0.0";
  char text[64];
  std::snprintf(text, sizeof text, std::fabs(value) >= 1e9 ? "%.20e" : "%.20g", value);
  return text;
}

std::string double_text(uint64_t bits) {
  const auto value = std::bit_cast<double>(bits);
  if (std::isinf(value)) return std::string(sign_text(value < 0)) + "INF";
  if (std::isnan(value)) {
    const bool quiet = bits >> 51 & 1;
    return std::string(sign_text(bits >> 63)) + (quiet ? "QNAN" : "SNAN");
  }
  return finite_text(value);
}

// Signalling NaNs print as quiet ones: the vendor converts to double first.
std::string float_text(uint32_t bits) {
  const auto value = std::bit_cast<float>(bits);
  if (std::isnan(value)) return std::string(sign_text(bits >> 31)) + "QNAN";
  return double_text(std::bit_cast<uint64_t>(static_cast<double>(value)));
}

std::string half_text(uint32_t bits) {
  const bool negative = bits >> 15 & 1;
  const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return std::string(sign_text(negative)) + (mantissa ? "QNAN" : "INF");
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, -24)
                               : std::ldexp(mantissa + 1024, static_cast<int>(exponent) - 25);
  return finite_text(negative ? -magnitude : magnitude);
}

}  // namespace

std::string hex_text(int64_t value) {
  const bool negative = value < 0;
  char text[32];
  std::snprintf(text, sizeof text, "%s0x%llx", negative ? "-" : "",
                negative ? 0 - static_cast<unsigned long long>(value)
                         : static_cast<unsigned long long>(value));
  return text;
}

std::string immediate_text(uint32_t bits, Imm kind) {
  switch (kind) {
    case Imm::kU32:
      return hex_text(bits);
    case Imm::kS32:
      return hex_text(static_cast<int32_t>(bits));
    case Imm::kF32:
      return float_text(bits);
    case Imm::kF64:
      return double_text(uint64_t{bits} << 32);
    case Imm::kH2:
      return half_text(bits >> 16) + ", " + half_text(bits & 0xffff);
  }
  return {};
}

}  // namespace softgpu
