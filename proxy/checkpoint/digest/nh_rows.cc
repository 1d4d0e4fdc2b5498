#include "checkpoint/digest/nh_rows.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace pyft::checkpoint {

namespace {

constexpr unsigned kRowsAtOnce = 8;  // 4 KiB, which stay in the first cache
constexpr size_t kLine = 64, kLines = size_t{kRowsAtOnce} * kRowBytes / kLine;
constexpr unsigned kLinesAPair = 2 * kLines / kColumns;

uint64_t product(uint32_t a, uint32_t b) {
  return uint64_t{a} * b;
}

const __m256i* vector_at(const void* at) {
  return static_cast<const __m256i*>(at);
}

// Two units, that is four products, of each row in all passes. Words 0 and 2 of a unit are the low
// halves of its 64-bit lanes, where vpmuludq takes its factors.
[[gnu::target("avx2"), gnu::always_inline]] inline void add_pair(const std::byte* data,
                                                                 unsigned rows, const Unit* key,
                                                                 unsigned column, NhSums* sums) {
  __m256i sum[kPasses];
  for (unsigned pass = 0; pass < kPasses; ++pass)
    sum[pass] = _mm256_load_si256(vector_at(&sums->pass[pass][2 * column]));
  for (unsigned row = 0; row < rows; ++row) {
    const __m256i words = _mm256_loadu_si256(vector_at(data + row * kRowBytes));
    for (unsigned pass = 0; pass < kPasses; ++pass) {
      const __m128i one = _mm_load_si128(reinterpret_cast<const __m128i*>(&key[row + pass]));
      const __m256i keyed = _mm256_add_epi32(words, _mm256_broadcastsi128_si256(one));
      const __m256i odd = _mm256_srli_epi64(keyed, 32);
      sum[pass] = _mm256_add_epi64(sum[pass], _mm256_mul_epu32(keyed, odd));
    }
  }
  for (unsigned pass = 0; pass < kPasses; ++pass)
    _mm256_store_si256(reinterpret_cast<__m256i*>(&sums->pass[pass][2 * column]), sum[pass]);
}

[[gnu::target("avx2")]] void add_rows_avx2(const std::byte* data, unsigned rows, const Unit* key,
                                           NhSums* sums) {
  for (unsigned row = 0; row < rows; row += kRowsAtOnce) {
    const std::byte* const from = data + size_t{row} * kRowBytes;
    const unsigned some = std::min(kRowsAtOnce, rows - row);
    for (unsigned column = 0; column < kColumns; column += 2) {
      // In the order below the processor would not foresee them: three times as slow.
      const std::byte* const ahead = from + (2 * kLines + column / 2 * kLinesAPair) * kLine;
      for (unsigned line = 0; line < kLinesAPair; ++line)
        _mm_prefetch(ahead + line * kLine, _MM_HINT_T0);
      add_pair(from + column * kUnitBytes, some, key + row, column, sums);
    }
  }
}

}  // namespace

void add_nh_unit(const Unit& data, unsigned column, const Unit* key, NhSums* sums) {
  for (unsigned pass = 0; pass < kPasses; ++pass) {
    const auto& k = key[pass].word;
    sums->pass[pass][2 * column] += product(data.word[0] + k[0], data.word[1] + k[1]);
    sums->pass[pass][2 * column + 1] += product(data.word[2] + k[2], data.word[3] + k[3]);
  }
}

void add_nh_rows_portable(const std::byte* data, unsigned rows, const Unit* key, NhSums* sums) {
  for (unsigned row = 0; row < rows; ++row)
    for (unsigned column = 0; column < kColumns; ++column) {
      Unit unit;
      std::memcpy(&unit, data + size_t{row} * kRowBytes + column * kUnitBytes, sizeof unit);
      add_nh_unit(unit, column, key + row, sums);
    }
}

void add_nh_rows(const std::byte* data, unsigned rows, const Unit* key, NhSums* sums) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  has_avx2 ? add_rows_avx2(data, rows, key, sums) : add_nh_rows_portable(data, rows, key, sums);
}

}  // namespace pyft::checkpoint
