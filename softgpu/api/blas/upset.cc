#include "api/blas/upset.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>

#include "api/support.h"
#include "core/upset.h"

namespace softgpu::api {
namespace {

// The SMs share a product by tiles of this many rows and columns.
constexpr int64_t kTile = 64;

enum Draws : uint64_t { kBatchDraw = 100, kRowDraw, kColumnDraw, kAfterDraw };

float element(const Matrix& m, uint64_t address, int64_t row, int64_t column) {
  float value = 0;
  const auto at = static_cast<uint64_t>(column * m.ld + row) * element_bytes(m.type);
  load_floats(m.type, pointer(address + at), 1, &value);
  return value;
}

// What the accumulator of an element holds after `count` products.
float partial_sum(const Gemm& g, const Addresses& at, int64_t row, int64_t column, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float a =
        g.transa == CUBLAS_OP_N ? element(g.a, at.a, row, i) : element(g.a, at.a, i, row);
    const float b =
        g.transb == CUBLAS_OP_N ? element(g.b, at.b, i, column) : element(g.b, at.b, column, i);
    sum += a * b;
  }
  return sum;
}

std::string changed(const char* what, const Gemm& g, int64_t index, int64_t row, int64_t column,
                    float right, float wrong) {
  char text[256];
  std::snprintf(text, sizeof text,
                "%s of the product [%" PRId64 "x%" PRId64 "x%" PRId64 "], matrix [%" PRId64
                "], row [%" PRId64 "], column [%" PRId64 "]: [0x%08x] is now [0x%08x]",
                what, g.m, g.n, g.k, index, row, column, std::bit_cast<uint32_t>(right),
                std::bit_cast<uint32_t>(wrong));
  return text;
}

// An error of the accumulator is in the sum at its end, but for rounding.
void upset_element(Upset* upset, const Gemm& g, const Addresses& at, int64_t index, float* product,
                   int64_t ld) {
  const auto drawn = [&](uint64_t what, int64_t bound) {
    return static_cast<int64_t>(draw(*upset, what, static_cast<uint64_t>(bound)));
  };
  const UpsetAim& aim = upset->aim;
  const int64_t row = aim.row ? static_cast<int64_t>(*aim.row) : drawn(kRowDraw, g.m);
  const int64_t column = aim.column ? static_cast<int64_t>(*aim.column) : drawn(kColumnDraw, g.n);
  const int64_t after = aim.after ? static_cast<int64_t>(*aim.after) : 1 + drawn(kAfterDraw, g.k);
  if (row < 0 || row >= g.m || column < 0 || column >= g.n || after < 1 || after > g.k) {
    upset->sentence = "the product has no such element, or not so many products in its sums";
    return;
  }
  const float sum = partial_sum(g, at, row, column, after);
  const uint32_t bits = std::bit_cast<uint32_t>(sum);
  const auto wrong = std::bit_cast<float>(upset_bits(*upset, 0, bits));
  float& result = product[column * ld + row];
  const float alpha = g.alphas ? 1 : static_cast<float>(g.alpha.real);
  const float right = result;
  result = static_cast<float>(static_cast<double>(right) +
                              static_cast<double>(alpha) *
                                  (static_cast<double>(wrong) - static_cast<double>(sum)));
  upset->done = true;
  char text[96];
  std::snprintf(text, sizeof text, ", by the sum of [%" PRId64 "] products: [0x%08x] was [0x%08x]",
                after, std::bit_cast<uint32_t>(wrong), bits);
  upset->sentence = changed("upset", g, index, row, column, right, result) + text;
}

// A lane has every 32nd row of the tiles of its SM.
void stick(Upset* upset, const Gemm& g, int64_t index, float* product, int64_t ld) {
  const UpsetAim& aim = upset->aim;
  if (aim.unit != (is_half(g.a.type) ? Unit::kTensor : Unit::kFma)) return;
  const int64_t tiles = (g.m + kTile - 1) / kTile;
  for (int64_t column = 0; column < g.n; ++column) {
    for (int64_t row = aim.lane.value_or(0); row < g.m; row += 32) {
      const auto tile = static_cast<uint64_t>(row / kTile + column / kTile * tiles);
      if (upset->sms.of(tile) != aim.sm) continue;
      float& result = product[column * ld + row];
      const float right = result;
      const uint32_t bits = std::bit_cast<uint32_t>(right), one = 1u << aim.bit;
      result = std::bit_cast<float>(aim.to ? bits | one : bits & ~one);
      if (std::bit_cast<uint32_t>(result) == bits || upset->done) continue;
      upset->done = true;
      upset->sentence = "bit [" + std::to_string(aim.bit) + "] of the " +
                        std::string(kUnitNames[static_cast<size_t>(aim.unit)]) + " unit of SM [" +
                        std::to_string(aim.sm) + "] is stuck, first seen in " +
                        changed("an element", g, index, row, column, right, result);
    }
  }
}

}  // namespace

void upset_product(const Gemm& g, const Addresses& at, int64_t index, float* product, int64_t ld) {
  Upsets* const upsets = UpsetsHere::current();
  if (!upsets || !g.k) return;
  for (Upset& upset : *upsets) {
    if (upset.aim.stuck) {
      stick(&upset, g, index, product, ld);
    } else if (!upset.done && upset.aim.op.empty() && !upset.aim.nth &&
               draw(upset, kBatchDraw, static_cast<uint64_t>(g.batch)) ==
                   static_cast<uint64_t>(index)) {
      upset_element(&upset, g, at, index, product, ld);
    }
  }
}

}  // namespace softgpu::api
