// What reductions have to give, one element after the other, and inputs for them.
#ifndef PYFT_TESTS_FLEXCCL_REFERENCE_H_
#define PYFT_TESTS_FLEXCCL_REFERENCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "reduce/reduce.h"

namespace matrix {

using Bytes = std::vector<std::byte>;
inline const std::vector<ncclDataType_t> kTypes = {
    ncclInt8,    ncclUint8,   ncclInt32,   ncclUint32,   ncclInt64,      ncclUint64,
    ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
inline const std::vector<ncclDataType_t> kFewTypes = {ncclInt8, ncclBfloat16, ncclFloat32,
                                                      ncclInt64};
constexpr int kPreMul = ncclNumOps;  // stands for an operator made per rank

// Random bits, so that NaN, infinity and subnormal numbers occur too. They are cut out of a pool,
// whose length has no divisor in common with that of a chunk: bytes in a wrong place show.
inline const Bytes& pool() {
  static const Bytes bits = [] {
    std::mt19937_64 random(1);
    Bytes made(std::size_t{8} * 1048573);
    for (std::size_t at = 0; at < made.size(); at += 8) {
      const std::uint64_t word = random();
      std::memcpy(made.data() + at, &word, 8);
    }
    return made;
  }();
  return bits;
}
inline Bytes random_bytes(std::size_t bytes, unsigned seed) {
  Bytes out(bytes);
  std::size_t from = std::mt19937_64(seed)() % pool().size() / 8 * 8;
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t now = std::min(bytes - at, pool().size() - from);
    std::memcpy(out.data() + at, pool().data() + from, now);
    at += now, from = 0;
  }
  return out;
}

struct Case {
  ncclDataType_t dtype;
  int op;
  std::size_t count;
  bool in_place;
  std::size_t element() const { return flexccl::element_size(dtype); }
  std::size_t bytes() const { return count * element(); }
};

inline std::uint64_t scalar_of(ncclDataType_t dtype) {
  const float three = 3.0f;
  const double three_d = 3.0;
  std::uint64_t bits = 3;
  if (dtype == ncclFloat32) std::memcpy(&bits, &three, sizeof three);
  if (dtype == ncclFloat64) std::memcpy(&bits, &three_d, sizeof three_d);
  if (dtype == ncclFloat16 || dtype == ncclBfloat16) bits = dtype == ncclFloat16 ? 0x4200 : 0x4040;
  if (dtype == ncclFloat8e4m3 || dtype == ncclFloat8e5m2) bits = 0x44;
  return bits;
}

inline flexccl::Reduction reduction_of(const Case& c, int n) {
  if (c.op == ncclAvg) return flexccl::average(c.dtype, n);
  flexccl::Reduction r{.dtype = c.dtype};
  if (c.op == ncclProd) r.combine = flexccl::Combine::kProd;
  if (c.op == ncclMin) r.combine = flexccl::Combine::kMin;
  if (c.op == ncclMax) r.combine = flexccl::Combine::kMax;
  if (c.op == kPreMul) r.premultiplies = true, r.scalar = scalar_of(c.dtype);
  return r;
}

// Elements [at, at + count) of all inputs, summed in the order owner+1, owner+2, ..., owner.
inline Bytes chunk_sum(const std::vector<Bytes>& in, const Case& c, int owner, std::size_t at,
                       std::size_t count) {
  const int n = static_cast<int>(in.size());
  const flexccl::Reduction r = reduction_of(c, n);
  const auto input = [&](int rank) {
    return in[static_cast<std::size_t>(rank % n)].data() + at * c.element();
  };
  Bytes sum(input(owner + 1), input(owner + 1) + count * c.element());
  if (r.premultiplies) flexccl::premultiply(r, sum.data(), sum.data(), count);
  for (int k = 2; k <= n; ++k) flexccl::combine(r, sum.data(), input(owner + k), sum.data(), count);
  flexccl::finish(r, sum.data(), count);
  return sum;
}

inline Bytes all_reduce_reference(const std::vector<Bytes>& in, const Case& c) {
  const std::size_t n = in.size(), unit = 64 / c.element();
  const std::size_t chunk = ((c.count + n - 1) / n + unit - 1) / unit * unit;
  Bytes out;
  for (std::size_t owner = 0; owner < n; ++owner) {
    const std::size_t at = std::min(c.count, owner * chunk);
    const Bytes part = chunk_sum(in, c, static_cast<int>(owner), at, std::min(chunk, c.count - at));
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

}  // namespace matrix

#endif  // PYFT_TESTS_FLEXCCL_REFERENCE_H_
