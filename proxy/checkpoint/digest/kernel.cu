// The digest of nh.h on the device: a warp takes a slice, a lane one column of each of its tiles.
#include "checkpoint/digest/kernel.h"

namespace pyft::checkpoint {

namespace {

using Bytes = const unsigned char*;

constexpr unsigned kUnitsAtOnce = 8;

struct Sums {
  unsigned long long pass[kPasses] = {};
};

__device__ unsigned long long product(unsigned a, unsigned b) {
  return static_cast<unsigned long long>(a) * b;
}

__device__ void add_unit(const uint4& data, const Unit* key, Sums* sums) {
#pragma unroll
  for (unsigned pass = 0; pass < kPasses; ++pass) {
    const unsigned* const k = key[pass].word;
    sums->pass[pass] += product(data.x + k[0], data.y + k[1]);
    sums->pass[pass] += product(data.z + k[2], data.w + k[3]);
  }
}

__device__ unsigned word_at(Bytes at, long long bytes) {
  unsigned word = 0;
  for (int i = 0; i < 4 && i < bytes; ++i) word |= static_cast<unsigned>(at[i]) << (8 * i);
  return word;
}

// Anywhere, and of the end of a block: what is not there is zero.
__device__ uint4 unit_at(Bytes at, long long bytes) {
  return make_uint4(word_at(at, bytes), word_at(at + 4, bytes - 4), word_at(at + 8, bytes - 8),
                    word_at(at + 12, bytes - 12));
}

// All loads first, so that a warp waits once and not eight times.
__device__ void add_units(const uint4* at, const Unit* key, Sums* sums) {
  uint4 data[kUnitsAtOnce];
#pragma unroll
  for (unsigned i = 0; i < kUnitsAtOnce; ++i) data[i] = __ldg(at + i * kColumns);
#pragma unroll
  for (unsigned i = 0; i < kUnitsAtOnce; ++i) add_unit(data[i], key + i, sums);
}

// `bytes`: from there to the end of the tile.
__device__ Sums add_column(const KernelArgument& argument, Bytes at, long long bytes) {
  Sums sums;
  unsigned row = 0;
  if (reinterpret_cast<unsigned long long>(at) % kUnitBytes == 0) {
    const auto* const units = reinterpret_cast<const uint4*>(at);
    const unsigned whole = bytes < kUnitBytes ? 0 : (bytes - kUnitBytes) / kRowBytes + 1;
    for (; row + kUnitsAtOnce <= whole; row += kUnitsAtOnce)
      add_units(units + row * kColumns, argument.key + row, &sums);
    for (; row < whole; ++row)
      add_unit(__ldg(units + row * kColumns), argument.key + row, &sums);
  }
  for (; row * static_cast<long long>(kRowBytes) < bytes; ++row)
    add_unit(unit_at(at + row * kRowBytes, bytes - row * kRowBytes), argument.key + row, &sums);
  return sums;
}

__device__ Number value_of(const KernelArgument& argument, const Sums& sums) {
  Number value = sums.pass[0];
#pragma unroll
  for (unsigned pass = 1; pass < kPasses; ++pass)
    value = add(value, multiply(sums.pass[pass], argument.power[pass]));
  return value;
}

__device__ Number from_lane(Number value, unsigned distance) {
  const auto part = [=](unsigned shift) {
    const auto half = static_cast<unsigned long long>(value >> shift);
    return static_cast<Number>(__shfl_down_sync(0xffffffff, half, distance)) << shift;
  };
  return part(0) | part(64);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32 * kWarpsPerBlock)
    pyft_nh_digest(const __grid_constant__ KernelArgument argument) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned number = blockIdx.x * kWarpsPerBlock + threadIdx.x / 32;
  if (number >= argument.count) return;
  const Slice slice = argument.slices[number];
  Number sum = 0;
  for (unsigned long long tile = (slice.bytes + kTileBytes - 1) / kTileBytes; tile-- > 0;) {
    const unsigned long long begin = tile * kTileBytes + lane * kUnitBytes;
    const unsigned long long end = (tile + 1) * kTileBytes;
    const long long bytes = static_cast<long long>(end < slice.bytes ? end : slice.bytes) -
                            static_cast<long long>(begin);
    const Sums sums = add_column(argument, reinterpret_cast<Bytes>(slice.address + begin), bytes);
    sum = add(multiply(sum, argument.tile_power), value_of(argument, sums));
  }
  sum = multiply(sum, argument.column_power[lane]);
  for (unsigned distance = 16; distance > 0; distance /= 2)
    sum = add(sum, from_lane(sum, distance));
  if (lane == 0) argument.sums[number] = sum;
}

}  // namespace pyft::checkpoint
