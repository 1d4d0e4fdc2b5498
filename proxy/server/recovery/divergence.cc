#include "server/recovery/divergence.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pyft::server {

namespace {

static_assert(std::endian::native == std::endian::little);

// One sign bit, `fraction` bits without the leading one, the exponent between them.
struct Format {
  unsigned bits, fraction;
  unsigned exponent_bits() const { return bits - 1 - fraction; }
  uint64_t fraction_mask() const { return (uint64_t{1} << fraction) - 1; }
  uint64_t exponent_mask() const { return (uint64_t{1} << exponent_bits()) - 1; }
  uint64_t exponent(uint64_t word) const { return word >> fraction & exponent_mask(); }
  bool negative(uint64_t word) const { return word >> (bits - 1) & 1; }
  bool is_nan(uint64_t word) const {
    return exponent(word) == exponent_mask() && (word & fraction_mask());
  }
  // Neither zero nor tiny nor infinite nor no number.
  bool is_normal(uint64_t word) const {
    return exponent(word) != 0 && exponent(word) != exponent_mask();
  }
  double magnitude(uint64_t word) const {
    const auto digits = static_cast<double>((uint64_t{1} << fraction) | (word & fraction_mask()));
    const auto bias = static_cast<int>(exponent_mask() >> 1);
    return std::ldexp(digits, static_cast<int>(exponent(word)) - bias - static_cast<int>(fraction));
  }
};

constexpr Format kFormats[] = {{64, 52}, {32, 23}, {16, 10}, {16, 7}};

bool close(uint64_t before, uint64_t now, const Format& format) {
  if (before == now || (format.is_nan(before) && format.is_nan(now))) return true;
  if (!format.is_normal(before) || !format.is_normal(now) ||
      format.negative(before) != format.negative(now))
    return false;
  const double one = format.magnitude(before), other = format.magnitude(now);
  const int common = static_cast<int>(format.fraction + 1) / 2;
  return std::abs(one - other) <= std::ldexp(std::max(one, other), -common);
}

bool all_close(uint64_t before, uint64_t now, uint64_t bytes, const Format& format) {
  if (bytes * 8 % format.bits) return false;
  const uint64_t mask = format.bits == 64 ? ~uint64_t{0} : (uint64_t{1} << format.bits) - 1;
  for (uint64_t at = 0; at < bytes * 8; at += format.bits)
    if (!close(before >> at & mask, now >> at & mask, format)) return false;
  return true;
}

// As a floating-point number of this size it would be zero or next to it, or no number.
bool looks_like_count(uint64_t word, uint64_t bytes) {
  const unsigned unused = 64 - static_cast<unsigned>(bytes) * 8;
  const auto number = static_cast<int64_t>(word << unused) >> unused;
  const auto* const wide = std::ranges::find(kFormats, bytes * 8, &Format::bits);
  const int64_t bound = int64_t{1} << wide->fraction;
  return number > -bound && number < bound;
}

}  // namespace

DivergencePolicy divergence_policy() {
  const char* const policy = std::getenv("PYFT_DIVERGENCE");
  const bool report = policy && std::strcmp(policy, "report") == 0;
  return report ? DivergencePolicy::kReport : DivergencePolicy::kStrict;
}

uint64_t word_of(const void* bytes, uint64_t count) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, std::min(count, kWordBytes));
  return word;
}

bool contradicts(uint64_t before, uint64_t now, uint64_t bytes) {
  if (bytes != 2 && bytes != 4 && bytes != 8) return true;
  if (looks_like_count(before, bytes) || looks_like_count(now, bytes)) return true;
  return std::ranges::none_of(
      kFormats, [&](const Format& format) { return all_close(before, now, bytes, format); });
}

std::string difference_text(const ring::JournalRecord& before, uint64_t now) {
  const bool whole = before.bytes <= kWordBytes;
  const int digits = static_cast<int>(2 * std::min(before.bytes, kWordBytes));
  const auto then = whole ? before.word : before.digest.low;
  char text[160];
  std::snprintf(text, sizeof text, "[%llu] bytes%s [0x%0*llx], the program was given [0x%0*llx]",
                static_cast<unsigned long long>(before.bytes), whole ? "" : " with digest", digits,
                static_cast<unsigned long long>(now), digits,
                static_cast<unsigned long long>(then));
  return text;
}

}  // namespace pyft::server
