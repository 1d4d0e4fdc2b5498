#include "checkpoint/replay/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace pyft::checkpoint {

namespace {

static_assert(std::endian::native == std::endian::little);

// One sign bit, `fraction` bits without the leading one, the exponent between them.
struct Format {
  unsigned bits, fraction;
  uint64_t bytes() const { return bits / 8; }
  unsigned exponent_bits() const { return bits - 1 - fraction; }
  uint64_t fraction_mask() const { return (uint64_t{1} << fraction) - 1; }
  uint64_t exponent_mask() const { return (uint64_t{1} << exponent_bits()) - 1; }
  uint64_t exponent(uint64_t word) const { return word >> fraction & exponent_mask(); }
  bool negative(uint64_t word) const { return word >> (bits - 1) & 1; }
  bool is_nan(uint64_t word) const {
    return exponent(word) == exponent_mask() && (word & fraction_mask());
  }
  bool is_finite(uint64_t word) const { return exponent(word) != exponent_mask(); }
  // Neither zero nor tiny nor infinite nor no number.
  bool is_normal(uint64_t word) const { return exponent(word) != 0 && is_finite(word); }
  // Of a finite one, without the sign.
  double magnitude(uint64_t word) const {
    const uint64_t leading = exponent(word) ? uint64_t{1} << fraction : 0;
    const auto digits = static_cast<double>(leading | (word & fraction_mask()));
    const auto bias = static_cast<int>(exponent_mask() >> 1);
    const int power = std::max<int>(static_cast<int>(exponent(word)), 1) - bias;
    return std::ldexp(digits, power - static_cast<int>(fraction));
  }
  double value(uint64_t word) const { return negative(word) ? -magnitude(word) : magnitude(word); }
};

constexpr Format kSingle{32, 23}, kHalf{16, 10};
constexpr Format kFormats[] = {{64, 52}, kSingle, kHalf, {16, 7}};
constexpr int kBitsOfPairs = 41;  // of fp64
constexpr uint64_t kWidths[] = {8, 4, 2};

uint64_t word_at(Bytes bytes, uint64_t index, uint64_t width) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data() + index * width, width);
  return word;
}

template <class Holds>
bool all_of(Bytes bytes, uint64_t width, Holds&& holds) {
  if (bytes.size() % width) return false;
  for (uint64_t i = 0; i < bytes.size() / width; ++i)
    if (!holds(word_at(bytes, i, width))) return false;
  return true;
}

// As a floating-point number of this size it would be zero or next to it, or no number.
bool is_count(uint64_t word, uint64_t width) {
  const unsigned unused = 64 - static_cast<unsigned>(width) * 8;
  const auto number = static_cast<int64_t>(word << unused) >> unused;
  const auto* const wide = std::ranges::find(kFormats, width * 8, &Format::bits);
  const int64_t bound = int64_t{1} << wide->fraction;
  return number > -bound && number < bound;
}

// Among others the least and the greatest integer stand for "none".
bool is_count_or_none(uint64_t word, uint64_t width) {
  const unsigned unused = 64 - static_cast<unsigned>(width) * 8;
  const uint64_t greatest = ~uint64_t{0} >> unused >> 1;
  return is_count(word, width) || word == greatest || word == greatest + 1;
}

// All are zero or of a usual size: bits of something else seldom are.
bool plausible(Bytes bytes, const Format& format) {
  const int power = format.bits > 16 ? 40 : 24;
  const double most = std::ldexp(1.0, power), least = std::ldexp(1.0, -power);
  return all_of(bytes, format.bytes(), [&](uint64_t word) {
    if (!format.is_finite(word)) return false;
    const double number = format.magnitude(word);
    return number == 0 || (number >= least && number <= most);
  });
}

// Bits that close numbers have in common. What may be pairs of fp32 must not pass for fp64 because
// the second one of each pair is the same.
int common_bits(Bytes before, Bytes now, const Format& format) {
  const bool pairs = format.bits == 64 && plausible(before, kSingle) && plausible(now, kSingle);
  return pairs ? kBitsOfPairs : static_cast<int>(format.fraction + 1) / 2;
}

// What the numbers are measured by, where each alone is not close: the largest. Of few bf16 it is
// not known whether they are any.
double scale_of(Bytes before, Bytes now, const Format& format) {
  constexpr uint64_t kFew = 32;
  if (before.size() <= sizeof(uint64_t) || format.fraction == kHalf.fraction) return 0;
  if (format.bits == 16 && before.size() < kFew) return 0;
  if (!plausible(now, format)) return 0;
  const auto largest = [&](Bytes bytes) {
    double most = 0;
    for (uint64_t i = 0; i < bytes.size() / format.bytes(); ++i) {
      const uint64_t word = word_at(bytes, i, format.bytes());
      if (format.is_finite(word)) most = std::max(most, format.magnitude(word));
    }
    return most;
  };
  // The smaller of both: one wrong number must not make all others look alike.
  return std::min(largest(before), largest(now));
}

// Of fp32 and fp64 that have few digits only the upper halves differ, which would be close as fp16
// however far the numbers are from each other.
bool only_upper_halves(Bytes before, Bytes now, const Format& format) {
  if (format.bits != 16 || before.size() % 4) return false;
  for (uint64_t i = 0; i < before.size() / 2; i += 2)
    if (word_at(before, i, 2) != word_at(now, i, 2)) return false;
  return true;
}

bool all_close(Bytes before, Bytes now, const Format& format) {
  const uint64_t width = format.bytes();
  if (before.size() % width || only_upper_halves(before, now, format)) return false;
  const int common = common_bits(before, now, format);
  const double scale = scale_of(before, now, format);
  const auto close = [&](uint64_t then, uint64_t word) {
    if (then == word || (format.is_nan(then) && format.is_nan(word))) return true;
    if (!format.is_finite(then) || !format.is_finite(word)) return false;
    const double one = format.value(then), other = format.value(word);
    const double distance = std::abs(one - other);
    if (scale > 0 && distance <= std::ldexp(scale, -common)) return true;
    if (!format.is_normal(then) || !format.is_normal(word) || (one < 0) != (other < 0))
      return false;
    return distance <= std::ldexp(std::max(std::abs(one), std::abs(other)), -common);
  };
  for (uint64_t i = 0; i < before.size() / width; ++i)
    if (!close(word_at(before, i, width), word_at(now, i, width))) return false;
  return true;
}

// Where it could have a fraction of four bits and has none.
bool is_whole(uint64_t word, const Format& format) {
  if (!format.is_finite(word)) return false;
  const double number = format.magnitude(word);
  return number < std::ldexp(1.0, static_cast<int>(format.fraction) - 4) &&
         number == std::floor(number);
}

// Counts that were added up as floating-point numbers.
bool whole_where_they_differ(Bytes before, Bytes now, const Format& format) {
  const uint64_t width = format.bytes();
  if (before.size() % width) return false;
  for (uint64_t i = 0; i < before.size() / width; ++i) {
    const uint64_t one = word_at(before, i, width), other = word_at(now, i, width);
    if (one != other && !(is_whole(one, format) && is_whole(other, format))) return false;
  }
  return true;
}

}  // namespace

bool look_like_counts(Bytes bytes) {
  if (bytes.size() <= sizeof(uint64_t)) {
    const bool known = std::ranges::find(kWidths, bytes.size()) != std::end(kWidths);
    return !known || is_count(word_at(bytes, 0, bytes.size()), bytes.size());
  }
  if (bytes.size() % 2) return true;
  for (const uint64_t width : kWidths)
    if (all_of(bytes, width, [&](uint64_t word) { return is_count_or_none(word, width); }))
      return true;
  // Flags and small codes: no number of a usual size has such bytes only.
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte < std::byte{32}; });
}

Weight account(Bytes before, Bytes now) {
  if (std::ranges::equal(before, now)) return Weight::kLastDigits;
  if (look_like_counts(before) || look_like_counts(now)) return Weight::kDecides;
  const auto format_that = [&](auto&& fits) { return std::ranges::any_of(kFormats, fits); };
  if (format_that(
          [&](const Format& format) { return whole_where_they_differ(before, now, format); }))
    return Weight::kDecides;
  const bool close =
      format_that([&](const Format& format) { return all_close(before, now, format); });
  return close ? Weight::kLastDigits : Weight::kFar;
}

}  // namespace pyft::checkpoint
