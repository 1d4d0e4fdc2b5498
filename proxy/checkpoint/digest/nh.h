// A keyed 128-bit digest that host and device compute with the same bits, in parallel, so that
// memory need not leave a device to be compared.
//
//   unit    16 bytes, as four words of 32 bits, little-endian; the last one is filled up with zeros
//   row     32 units                       tile    128 rows
//   column  the units of a tile at the same place in each row; none where no unit begins
//
// Two levels. NH (UMAC; RFC 4418): of each column, in four passes p,
//   h[p] = sum over rows j of (x0 + k0)(x1 + k1) + (x2 + k2)(x3 + k3) modulo 2^64,
// x the unit's words, k those of key unit j + p, sums in brackets modulo 2^32. Then a polynomial:
//   digest = bytes + sum of h[p] of column c of tile t * r^(128 t + 4 c + p + 1) modulo 2^127 - 1.
//
// How likely it is that two different contents have the same digest, for random keys that no
// process has chosen contents by:
// - Of the same length: they differ in a column. Its four sums are all equal with a probability of
//   2^-128 at most: NH's is 2^-32 for each pass, also for a given difference of the sums, and the
//   shift of the key from pass to pass makes four of it (Black, Halevi, Krawczyk, Krovetz, Rogaway:
//   UMAC, 1999, "Toeplitz construction"; a shift by one unit does, since the last unit that differs
//   meets in each pass a key that the passes before have not met there).
// - If they are not all equal, the difference of the digests is a polynomial in r that is not zero,
//   of a degree of at most 4 for each column, bytes / 512 + 128 in all, and has so many roots. So
//   it is for different lengths, too. There are 2^127 keys r: 2^-99 for 80 GiB, 2^-112 for 10 MiB.
// The keys are expanded from 64 random bits (SplitMix64), which holds as far as that is random.
//
// No finalizer: all 127 bits of a number modulo a prime are as good. Not cryptographic, as XXH3.
#ifndef PYFT_CHECKPOINT_DIGEST_NH_H_
#define PYFT_CHECKPOINT_DIGEST_NH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/digest/kernel.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

struct NhKey {
  explicit NhKey(uint64_t seed);
  std::array<Unit, kKeyUnits> units;
  std::array<Number, kCoefficients + 1> powers;  // r^0, r^1, ...
  Number tile_power() const { return powers[kCoefficients]; }
};

// The key of a seed; valid until the thread asks for another one.
const NhKey& nh_key(uint64_t seed);

// Puts together what was summed up of one part after the other, each as if it were the first.
class NhSum {
 public:
  explicit NhSum(const NhKey& key) : tile_power_(key.tile_power()) {}
  // A part of so many tiles; only the last part may have one that is not whole.
  void add(Number value, uint64_t tiles);
  ring::Digest digest(uint64_t bytes) const;

 private:
  Number tile_power_, sum_ = 0, scale_ = 1;
};

// How many tiles of `tiles` in all a warp takes: few enough to keep a large GPU busy, and no more
// than 1 MiB.
constexpr uint64_t slice_tiles(uint64_t tiles) {
  return tiles < 2 * 8192 ? 1 : tiles < 16 * 8192 ? tiles / 8192 : 16;
}

// At most one tile, as if it were the first.
Number nh_tile(const NhKey& key, const std::byte* data, uint64_t bytes);

ring::Digest nh_digest(const void* data, uint64_t bytes, uint64_t seed);

// In pieces of any size.
class NhHasher {
 public:
  explicit NhHasher(uint64_t seed);
  void restart();
  void add(const void* data, uint64_t bytes);
  ring::Digest digest() const;

 private:
  const NhKey key_;
  NhSum sum_;
  uint64_t bytes_ = 0;
  std::vector<std::byte> rest_;  // of a tile
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_DIGEST_NH_H_
