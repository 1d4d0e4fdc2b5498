#include "checkpoint/digest/nh.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/digest/nh_rows.h"

namespace pyft::checkpoint {

namespace {

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }

 private:
  uint64_t state_;
};

// Sum of h r^i, reduced once: none of the three parts comes near 2^128.
class Products {
 public:
  void add(uint64_t h, Number power) {
    const Number low = Number{h} * static_cast<uint64_t>(power);
    const Number high = Number{h} * static_cast<uint64_t>(power >> 64);
    part_[0] += static_cast<uint64_t>(low);
    part_[1] += (low >> 64) + static_cast<uint64_t>(high);
    part_[2] += high >> 64;
  }
  Number value() const {
    const Number middle = multiply(part_[1], Number{1} << 64);
    return checkpoint::add(checkpoint::add(part_[0], middle), 2 * part_[2]);
  }

 private:
  Number part_[3] = {0, 0, 0};
};

NhSums tile_sums(const NhKey& key, const std::byte* data, uint64_t bytes) {
  NhSums sums;
  const auto rows = static_cast<unsigned>(bytes / kRowBytes);
  add_nh_rows(data, rows, key.units.data(), &sums);
  for (uint64_t at = uint64_t{rows} * kRowBytes; at < bytes; at += kUnitBytes) {
    Unit unit{};
    std::memcpy(&unit, data + at, std::min<uint64_t>(kUnitBytes, bytes - at));
    add_nh_unit(unit, static_cast<unsigned>(at % kRowBytes / kUnitBytes), &key.units[rows], &sums);
  }
  return sums;
}

}  // namespace

NhKey::NhKey(uint64_t seed) {
  Random random(seed);
  const uint64_t low = random.next();
  const Number r = (Number{random.next()} << 64 | low) & kPrime;
  powers[0] = 1;
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = multiply(powers[i - 1], r);
  for (Unit& unit : units)
    for (int half = 0; half < 4; half += 2) {
      const uint64_t two = random.next();
      unit.word[half] = static_cast<uint32_t>(two);
      unit.word[half + 1] = static_cast<uint32_t>(two >> 32);
    }
}

const NhKey& nh_key(uint64_t seed) {
  static thread_local uint64_t known = seed;
  static thread_local NhKey key(seed);
  if (known != seed) key = NhKey(known = seed);
  return key;
}

void NhSum::add(Number value, uint64_t tiles) {
  sum_ = checkpoint::add(sum_, multiply(value, scale_));
  for (; tiles > 0; --tiles) scale_ = multiply(scale_, tile_power_);
}

ring::Digest NhSum::digest(uint64_t bytes) const {
  const Number all = canonical(checkpoint::add(sum_, bytes));
  return {static_cast<uint64_t>(all), static_cast<uint64_t>(all >> 64)};
}

Number nh_tile(const NhKey& key, const std::byte* data, uint64_t bytes) {
  const NhSums sums = tile_sums(key, data, bytes);
  Products products;
  for (unsigned column = 0; column < kColumns; ++column)
    for (unsigned pass = 0; pass < kPasses; ++pass) {
      const uint64_t* const halves = &sums.pass[pass][2 * column];
      products.add(halves[0] + halves[1], key.powers[column * kPasses + pass + 1]);
    }
  return products.value();
}

ring::Digest nh_digest(const void* data, uint64_t bytes, uint64_t seed) {
  const NhKey& key = nh_key(seed);
  NhSum sum(key);
  const auto* const from = static_cast<const std::byte*>(data);
  for (uint64_t at = 0; at < bytes; at += kTileBytes)
    sum.add(nh_tile(key, from + at, std::min<uint64_t>(kTileBytes, bytes - at)), 1);
  return sum.digest(bytes);
}

NhHasher::NhHasher(uint64_t seed) : key_(seed), sum_(key_) {
  rest_.reserve(kTileBytes);
}

void NhHasher::restart() {
  sum_ = NhSum(key_);
  bytes_ = 0;
  rest_.clear();
}

void NhHasher::add(const void* data, uint64_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  bytes_ += bytes;
  while (bytes > 0) {
    const bool whole = rest_.empty() && bytes >= kTileBytes;
    const uint64_t part = std::min<uint64_t>(bytes, kTileBytes - rest_.size());
    if (!whole) rest_.insert(rest_.end(), from, from + part);
    if (whole || rest_.size() == kTileBytes) {
      sum_.add(nh_tile(key_, whole ? from : rest_.data(), kTileBytes), 1);
      rest_.clear();
    }
    from += part;
    bytes -= part;
  }
}

ring::Digest NhHasher::digest() const {
  NhSum sum = sum_;
  if (!rest_.empty()) sum.add(nh_tile(key_, rest_.data(), rest_.size()), 1);
  return sum.digest(bytes_);
}

}  // namespace pyft::checkpoint
