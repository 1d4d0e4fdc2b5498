// Arithmetic modulo the prime 2^127 - 1, for the host and for the kernel that is compiled by NVRTC:
// no includes. Numbers are at most the prime itself, which stands for zero as well.
#ifndef PYFT_CHECKPOINT_DIGEST_FIELD_H_
#define PYFT_CHECKPOINT_DIGEST_FIELD_H_

#ifdef __CUDACC__
#define PYFT_HOST_AND_DEVICE __host__ __device__ inline
#else
#define PYFT_HOST_AND_DEVICE constexpr
#endif

namespace pyft::checkpoint {

using Number = unsigned __int128;

constexpr Number kPrime = (Number{1} << 127) - 1;

// Of anything below 2^128 - 1.
PYFT_HOST_AND_DEVICE Number fold(Number value) {
  return (value & kPrime) + (value >> 127);
}

PYFT_HOST_AND_DEVICE Number add(Number a, Number b) {
  return fold(a + b);
}

// 2^128 is 2. The sum below stays under 2^128 - 1, since `high` is less than 2^126.
PYFT_HOST_AND_DEVICE Number multiply(Number a, Number b) {
  const auto a0 = static_cast<unsigned long long>(a), a1 = static_cast<unsigned long long>(a >> 64);
  const auto b0 = static_cast<unsigned long long>(b), b1 = static_cast<unsigned long long>(b >> 64);
  const Number p00 = Number{a0} * b0, p01 = Number{a0} * b1;
  const Number p10 = Number{a1} * b0, p11 = Number{a1} * b1;
  const Number middle =
      (p00 >> 64) + static_cast<unsigned long long>(p01) + static_cast<unsigned long long>(p10);
  const Number low = static_cast<unsigned long long>(p00) | middle << 64;
  const Number high = p11 + (p01 >> 64) + (p10 >> 64) + (middle >> 64);
  return fold((low & kPrime) + (low >> 127) + 2 * high);
}

PYFT_HOST_AND_DEVICE Number canonical(Number value) {
  return value == kPrime ? 0 : value;
}

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_DIGEST_FIELD_H_
