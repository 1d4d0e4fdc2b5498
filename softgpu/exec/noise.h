// Float atomics that give other last digits in each execution, as those of real GPUs do because
// their order is a matter of chance.
//
// Of two neighbours between which an exact sum lies one is drawn, instead of the nearer one. A sum
// that is exact stays exact. What has no atomic instruction for its sums, as bf16 before compute
// capability 9.0, has locks or compare-and-swap loops: for these the blocks of a launch start in an
// order that is drawn as well (dispatch.cc). Within a block the order stays what it is.
#ifndef SOFTGPU_EXEC_NOISE_H_
#define SOFTGPU_EXEC_NOISE_H_

#include <cmath>
#include <cstdint>
#include <limits>

namespace softgpu::exec {

// SOFTGPU_NOISE=seed[:start]. Draws the noise of a launch; 0: there is none. The n-th launch on a
// device draws the same for the same seed and start, and another one in a process that has started
// at another time (which `start` pins down). `again`: a second execution, which draws others, and
// is no launch.
uint64_t draw_noise(int device, bool again = false);

// What is drawn for one sum: the same with any number of threads.
inline uint64_t noise_of(uint64_t launch, uint64_t address, uint64_t old, uint64_t value) {
  uint64_t x = launch ^ address * 0x9e3779b97f4a7c15u ^ old * 0xc2b2ae3d27d4eb4fu ^ value;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// a + b, rounded to one of its two neighbours. `drawn`: 0 is to the nearest one.
template <class T>
T add_with_noise(T a, T b, uint64_t drawn) {
  const T sum = a + b;
  if (!(drawn & 1) || !std::isfinite(sum)) return sum;
  const T part = sum - a;
  const T error = (a - (sum - part)) + (b - part);  // exact (Knuth)
  if (error == 0) return sum;
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const T other = std::nextafter(sum, error > 0 ? kInfinity : -kInfinity);
  return std::isfinite(other) ? other : sum;
}

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_NOISE_H_
