// Kernels compiled by nvcc for sm_75 and run on the soft GPU, each compared with plain C++.
//
// Not part of the build: test_cuda.py compiles it where nvcc is installed and says so where not.
#include "buffer.h"
#include "harness.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <cuda_fp16.h>

static uint32_t next_random() {
  return static_cast<uint32_t>(next_random64() >> 16);
}

static std::vector<uint32_t> words(size_t n) {
  static const uint32_t edges[] = {0,          1,          2,          31,
                                   32,         33,         0x7fffffff, 0x80000000,
                                   0xffffffff, 0x3f800000, 0x7f800000, 0xff800000,
                                   0x7fc00000, 0x00000001, 0x80000001, 0x00800000};
  std::vector<uint32_t> v(n);
  for (auto& x : v) x = next_random() % 4 ? next_random() : edges[next_random() % 16];
  return v;
}

// ---- integer ------------------------------------------------------------------------------------

struct IntResults {
  uint32_t v[24];
};

__host__ __device__ static void integer_body(uint32_t a, uint32_t b, uint32_t c, IntResults* r) {
  const auto sa = static_cast<int32_t>(a), sb = static_cast<int32_t>(b);
  const uint64_t w = static_cast<uint64_t>(a) << 32 | b;
  const auto sw = static_cast<int64_t>(w);
  int k = 0;
  r->v[k++] = a * b + c;
  const uint64_t product = static_cast<uint64_t>(a) * b + w;
  r->v[k++] = static_cast<uint32_t>(product);
  r->v[k++] = static_cast<uint32_t>(product >> 32);
  const int64_t signed_product = static_cast<int64_t>(sa) * sb - sw;
  r->v[k++] = static_cast<uint32_t>(signed_product);
  r->v[k++] = static_cast<uint32_t>(signed_product >> 32);
  r->v[k++] = static_cast<uint32_t>(w >> (c & 63));
  r->v[k++] = static_cast<uint32_t>(sw >> (c & 63) >> 7);
  r->v[k++] = static_cast<uint32_t>((w << (c & 63)) >> 32);
  r->v[k++] = sa < sb ? static_cast<uint32_t>(sa) : b;
  r->v[k++] = a > b ? a : b;
  r->v[k++] = b ? a / b : 7;
  r->v[k++] = b ? a % b : 7;
  r->v[k++] = sb && !(sa == INT32_MIN && sb == -1) ? static_cast<uint32_t>(sa / sb) : 7;
  r->v[k++] = c ? static_cast<uint32_t>(w / c) : 7;
  r->v[k++] = c ? static_cast<uint32_t>(w % c) : 7;
  const uint64_t d = static_cast<uint64_t>(c) << 11 | (b & 2047);
  r->v[k++] = d ? static_cast<uint32_t>(w / d) : 7;
  r->v[k++] = w < d ? 1 : 2;
  r->v[k++] = sw < static_cast<int64_t>(d) ? 1 : 2;
  r->v[k++] = (a & b) ^ (~c | a);
  r->v[k++] = (sa >> (c & 31)) + (a >> (b & 31)) + (a << (c & 31));
  r->v[k++] = static_cast<uint32_t>(w - d);
  r->v[k++] = static_cast<uint32_t>((w - d) >> 32);
  r->v[k++] = static_cast<uint32_t>((w + d * 3) >> 32);
  r->v[k++] = static_cast<uint32_t>(sa < 0 ? -sa : sa);
}

__global__ void integer_kernel(const uint32_t* in, IntResults* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) integer_body(in[3 * i], in[3 * i + 1], in[3 * i + 2], &out[i]);
}

static void test_integer() {
  const int n = 3000;
  const auto in = words(3 * n);
  Buffer<uint32_t> d(in);
  Buffer<IntResults> out(n);
  integer_kernel<<<(n + 95) / 96, 96>>>(d.p, out.p, n);
  const auto got = out.get();
  for (int i = 0; i < n; ++i) {
    IntResults want;
    integer_body(in[3 * i], in[3 * i + 1], in[3 * i + 2], &want);
    for (int k = 0; k < 24; ++k) {
      CHECK(got[i].v[k] == want.v[k], "%d: result %d of %08x %08x %08x: %08x, not %08x", i, k,
            in[3 * i], in[3 * i + 1], in[3 * i + 2], got[i].v[k], want.v[k]);
    }
  }
}

// ---- bits ---------------------------------------------------------------------------------------

__global__ void bits_kernel(const uint32_t* in, uint32_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const uint32_t a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  uint32_t* r = out + 12 * i;
  r[0] = __brev(a);
  r[1] = __popc(a);
  r[2] = __clz(a);
  r[3] = __ffs(a);
  r[4] = __byte_perm(a, b, c & 0x7777);
  r[5] = __funnelshift_l(a, b, c);
  r[6] = __funnelshift_r(a, b, c);
  r[7] = __dp4a(static_cast<int>(a), static_cast<int>(b), static_cast<int>(c));
  r[8] = __dp4a(a, b, c);
  r[9] = __byte_perm(a, b, 0x5140);
  r[10] = __popcll(static_cast<uint64_t>(a) << 32 | b);
  r[11] = __clzll(static_cast<uint64_t>(a) << 32 | b);
}

static void test_bits() {
  const int n = 2000;
  const auto in = words(3 * n);
  Buffer<uint32_t> d(in), out(12 * n);
  bits_kernel<<<(n + 127) / 128, 128>>>(d.p, out.p, n);
  const auto got = out.get();
  for (int i = 0; i < n; ++i) {
    const uint32_t a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
    const uint64_t x = static_cast<uint64_t>(b) << 32 | a, y = static_cast<uint64_t>(a) << 32 | b;
    uint32_t reversed = 0;
    for (int k = 0; k < 32; ++k) reversed |= (a >> k & 1) << (31 - k);
    const auto pick = [&](uint32_t s) {
      uint32_t r = 0;
      for (int k = 0; k < 4; ++k)
        r |= static_cast<uint32_t>(x >> (8 * (s >> (4 * k) & 7)) & 255) << (8 * k);
      return r;
    };
    int32_t sdot = static_cast<int32_t>(c);
    uint32_t udot = c;
    for (int k = 0; k < 4; ++k) {
      sdot += static_cast<int8_t>(a >> (8 * k)) * static_cast<int8_t>(b >> (8 * k));
      udot += (a >> (8 * k) & 255) * (b >> (8 * k) & 255);
    }
    const uint32_t s = c & 31;
    const uint32_t want[12] = {reversed,
                               static_cast<uint32_t>(__builtin_popcount(a)),
                               a ? static_cast<uint32_t>(__builtin_clz(a)) : 32,
                               static_cast<uint32_t>(__builtin_ffs(static_cast<int>(a))),
                               pick(c),
                               static_cast<uint32_t>((x << s) >> 32),
                               static_cast<uint32_t>(x >> s),
                               static_cast<uint32_t>(sdot),
                               udot,
                               pick(0x5140),
                               static_cast<uint32_t>(__builtin_popcountll(y)),
                               y ? static_cast<uint32_t>(__builtin_clzll(y)) : 64};
    for (int k = 0; k < 12; ++k) {
      CHECK(got[12 * i + k] == want[k], "result %d of %08x %08x %08x: %08x, not %08x", k, a, b, c,
            got[12 * i + k], want[k]);
    }
  }
}

// ---- float --------------------------------------------------------------------------------------

__host__ __device__ static bool same(float a, float b) {
  return a == b || (a != a && b != b);
}
__host__ __device__ static bool same(double a, double b) {
  return a == b || (a != a && b != b);
}

// IEEE minNum: the other operand if one is NaN (signalling ones too, unlike the C library).
template <class T>
static T min_num(T a, T b) {
  return a != a ? b : b != b ? a : a < b ? a : b;
}
template <class T>
static T max_num(T a, T b) {
  return a != a ? b : b != b ? a : a > b ? a : b;
}

__global__ void float_kernel(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  float* r = out + 10 * i;
  r[0] = a + b;
  r[1] = a * b;
  r[2] = fmaf(a, b, c);
  r[3] = a / b;
  r[4] = sqrtf(fabsf(a));
  r[5] = 1.0f / c;
  r[6] = fminf(a, b);
  r[7] = fmaxf(fmaxf(a, -b), c);
  r[8] = truncf(a) + floorf(b * 0.5f) + rintf(c);
  r[9] = fmodf(a, b);
}

static void test_float() {
  const int n = 20000;
  const auto bits = words(3 * n);
  std::vector<float> in(3 * n);
  std::memcpy(in.data(), bits.data(), bits.size() * 4);
  Buffer<float> d(in), out(10 * n);
  float_kernel<<<(n + 255) / 256, 256>>>(d.p, out.p, n);
  const auto got = out.get();
  for (int i = 0; i < n; ++i) {
    const float a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
    const float want[10] = {a + b,
                            a * b,
                            fmaf(a, b, c),
                            a / b,
                            sqrtf(fabsf(a)),
                            1.0f / c,
                            min_num(a, b),
                            max_num(max_num(a, -b), c),
                            truncf(a) + floorf(b * 0.5f) + rintf(c),
                            fmodf(a, b)};
    for (int k = 0; k < 10; ++k) {
      CHECK(same(got[10 * i + k], want[k]), "result %d of %a %a %a: %a, not %a", k, a, b, c,
            got[10 * i + k], want[k]);
    }
  }
}

__global__ void rounding_kernel(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  float* r = out + 12 * i;
  r[0] = __fadd_rd(a, b);
  r[1] = __fadd_ru(a, b);
  r[2] = __fadd_rz(a, b);
  r[3] = __fmul_rd(a, b);
  r[4] = __fmul_ru(a, b);
  r[5] = __fmul_rz(a, b);
  r[6] = __fmaf_rd(a, b, c);
  r[7] = __fmaf_ru(a, b, c);
  r[8] = __fmaf_rz(a, b, c);
  r[9] = __fmaf_rn(a, -b, c);
  r[10] = __saturatef(a * b);
  r[11] = __int2float_ru(static_cast<int>(c)) + __uint2float_rz(__float_as_uint(a)) +
          __double2float_rd(static_cast<double>(a) * b);
}

#include <cfenv>
template <class F>
__attribute__((noinline)) float in_mode(int mode, F f) {
  fesetround(mode);
  const volatile float r = f();
  fesetround(FE_TONEAREST);
  return r;
}

static void test_rounding() {
  const int n = 5000;
  const auto bits = words(3 * n);
  std::vector<float> in(3 * n);
  std::memcpy(in.data(), bits.data(), bits.size() * 4);
  for (size_t i = 0; i < in.size(); i += 2) in[i] = static_cast<float>(next_random()) * 1e-9f;
  Buffer<float> d(in), out(12 * n);
  rounding_kernel<<<(n + 255) / 256, 256>>>(d.p, out.p, n);
  const auto got = out.get();
  const int modes[3] = {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
  for (int i = 0; i < n; ++i) {
    volatile float a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
    for (int m = 0; m < 3; ++m) {
      const float add = in_mode(modes[m], [&] { return a + b; });
      const float mul = in_mode(modes[m], [&] { return a * b; });
      const float fma = in_mode(modes[m], [&] { return fmaf(a, b, c); });
      CHECK(same(got[12 * i + m], add), "add mode %d: %a, not %a", m, got[12 * i + m], add);
      CHECK(same(got[12 * i + 3 + m], mul), "mul mode %d of %a %a: %a, not %a", m, a, b,
            got[12 * i + 3 + m], mul);
      CHECK(same(got[12 * i + 6 + m], fma), "fma mode %d: %a, not %a", m, got[12 * i + 6 + m], fma);
    }
    const float p = a * b;
    CHECK(same(got[12 * i + 9], fmaf(a, -b, c)), "fma");
    CHECK(got[12 * i + 10] == (p > 0 ? (p < 1 ? p : 1.0f) : 0.0f), "saturate %a: %a", p,
          got[12 * i + 10]);
  }
}

__global__ void math_kernel(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float a = in[i];
  float* r = out + 10 * i;
  r[0] = expf(a);
  r[1] = logf(fabsf(a));
  r[2] = sinf(a);
  r[3] = cosf(a * 100.0f);
  r[4] = tanhf(a);
  r[5] = erff(a);
  r[6] = rsqrtf(fabsf(a));
  r[7] = powf(fabsf(a), 1.7f);
  r[8] = __expf(a);
  r[9] = __sinf(a);
}

static void test_math() {
  const int n = 4000;
  std::vector<float> in(n);
  for (int i = 0; i < n; ++i)
    in[i] = (static_cast<float>(next_random()) / 4294967296.0f - 0.5f) * 20;
  Buffer<float> d(in), out(10 * n);
  math_kernel<<<(n + 255) / 256, 256>>>(d.p, out.p, n);
  const auto got = out.get();
  for (int i = 0; i < n; ++i) {
    const double a = in[i];
    const double want[10] = {exp(a),
                             log(fabs(a)),
                             sin(a),
                             cos(static_cast<double>(in[i] * 100.0f)),
                             tanh(a),
                             erf(a),
                             1 / sqrt(fabs(a)),
                             pow(fabs(a), 1.7f),
                             exp(a),
                             sin(a)};
    for (int k = 0; k < 10; ++k) {
      const double tolerance = k == 9   ? 1e-5
                               : k == 8 ? 2e-6 * fabs(want[k])
                                        : 4e-7 * fabs(want[k]) + 1e-7;
      CHECK(fabs(got[10 * i + k] - want[k]) <= tolerance, "function %d of %g: %.9g, not %.9g", k, a,
            got[10 * i + k], want[k]);
    }
  }
}

__global__ void double_kernel(const double* in, double* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const double a = in[2 * i], b = in[2 * i + 1];
  double* r = out + 8 * i;
  r[0] = a + b;
  r[1] = a * b;
  r[2] = fma(a, b, -a);
  r[3] = a / b;
  r[4] = sqrt(fabs(a));
  r[5] = fmin(a, b);
  r[6] = a < b ? floor(a) : trunc(b);
  r[7] =
      static_cast<double>(static_cast<float>(a)) + static_cast<double>(static_cast<long long>(b));
}

static void test_double() {
  const int n = 8000;
  std::vector<double> in(2 * n);
  for (auto& x : in) {
    uint64_t bits = static_cast<uint64_t>(next_random()) << 32 | next_random();
    std::memcpy(&x, &bits, 8);
    if (next_random() % 2) x = (static_cast<double>(next_random()) - 2e9) * 1e-3;
  }
  Buffer<double> d(in), out(8 * n);
  double_kernel<<<(n + 63) / 64, 64>>>(d.p, out.p, n);
  const auto got = out.get();
  for (int i = 0; i < n; ++i) {
    const double a = in[2 * i], b = in[2 * i + 1];
    const double clamped = b != b                        ? -9223372036854775808.0
                           : b >= 9223372036854775807.0  ? 9223372036854775807.0
                           : b <= -9223372036854775808.0 ? -9223372036854775808.0
                                                         : trunc(b);
    const double want[8] = {a + b,
                            a * b,
                            fma(a, b, -a),
                            a / b,
                            sqrt(fabs(a)),
                            min_num(a, b),
                            a < b ? floor(a) : trunc(b),
                            static_cast<double>(static_cast<float>(a)) + clamped};
    for (int k = 0; k < 8; ++k) {
      CHECK(same(got[8 * i + k], want[k]), "result %d of %a %a: %a, not %a", k, a, b,
            got[8 * i + k], want[k]);
    }
  }
}

// ---- conversions --------------------------------------------------------------------------------

__global__ void convert_kernel(const float* in, int64_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float a = in[i];
  int64_t* r = out + 10 * i;
  r[0] = static_cast<int>(a);
  r[1] = static_cast<unsigned>(a);
  r[2] = static_cast<long long>(a);
  r[3] = __float2int_rn(a);
  r[4] = __float2int_ru(a);
  r[5] = __float2uint_rd(a);
  r[6] = __half_as_ushort(__float2half_rn(a));
  r[7] = __float_as_int(__half2float(__float2half_rn(a)));
  r[8] = __float_as_int(static_cast<float>(static_cast<int64_t>(__float_as_int(a)) * 977));
  r[9] = __float_as_int(static_cast<float>(static_cast<uint8_t>(__float_as_int(a) >> 8)) +
                        static_cast<float>(static_cast<int16_t>(__float_as_int(a) >> 16)));
}

static int64_t clamp_to(double v, double low, double high) {
  return v != v     ? 0
         : v < low  ? static_cast<int64_t>(low)
         : v > high ? static_cast<int64_t>(high)
                    : static_cast<int64_t>(v);
}

static void test_convert() {
  const int n = 8000;
  const auto bits = words(n);
  std::vector<float> in(n);
  std::memcpy(in.data(), bits.data(), bits.size() * 4);
  for (int i = 0; i < n; i += 2)
    in[i] = (static_cast<float>(next_random()) - 2e9f) * (i % 3 ? 1.0f : 1e-6f);
  Buffer<float> d(in);
  Buffer<int64_t> out(10 * n);
  convert_kernel<<<(n + 63) / 64, 64>>>(d.p, out.p, n);
  const auto got = out.get();
  for (int i = 0; i < n; ++i) {
    const float a = in[i];
    int32_t word;
    std::memcpy(&word, &a, 4);
    const auto bits_of = [](float f) {
      int32_t w;
      std::memcpy(&w, &f, 4);
      return static_cast<int64_t>(w);
    };
    int64_t wide = a != a          ? INT64_MIN
                   : a >= 9.2e18f  ? INT64_MAX
                   : a <= -9.2e18f ? INT64_MIN
                                   : static_cast<int64_t>(a);
    const __half h = __float2half_rn(a);
    const int64_t want[10] = {clamp_to(trunc(a), -2147483648.0, 2147483647.0),
                              clamp_to(trunc(a), 0, 4294967295.0),
                              wide,
                              clamp_to(rint(a), -2147483648.0, 2147483647.0),
                              clamp_to(ceil(a), -2147483648.0, 2147483647.0),
                              clamp_to(floor(a), 0, 4294967295.0),
                              __half_as_ushort(h),
                              bits_of(__half2float(h)),
                              bits_of(static_cast<float>(static_cast<int64_t>(word) * 977)),
                              bits_of(static_cast<float>(static_cast<uint8_t>(word >> 8)) +
                                      static_cast<float>(static_cast<int16_t>(word >> 16)))};
    for (int k = 0; k < 10; ++k) {
      if ((k == 6 || k == 7) && a != a) continue;
      CHECK(got[10 * i + k] == want[k], "result %d of %a: %llx, not %llx", k, a,
            static_cast<long long>(got[10 * i + k]), static_cast<long long>(want[k]));
    }
  }
}

// ---- warps, shared memory, atomics
// ---------------------------------------------------------------

__global__ void reduce_kernel(const float* in, float* block_sums, float* total, int n) {
  __shared__ float partial[32];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum += in[i];
  for (int k = 16; k; k /= 2) sum += __shfl_down_sync(0xffffffff, sum, k);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(0xffffffff, sum, k);
    if (threadIdx.x == 0) {
      block_sums[blockIdx.x] = sum;
      atomicAdd(total, sum);
    }
  }
}

static void test_reduce() {
  for (int n : {1, 31, 1000, 65536}) {
    std::vector<float> in(n);
    double want = 0;
    for (auto& x : in) want += x = static_cast<float>(next_random() % 16);
    Buffer<float> d(in), sums(8), total(1);
    reduce_kernel<<<8, 256>>>(d.p, sums.p, total.p, n);
    CHECK(total.get()[0] == want, "n = %d: %g, not %g", n, total.get()[0], want);
  }
}

__global__ void shuffle_kernel(const int* in, int* out) {
  const int i = threadIdx.x;
  int* r = out + 8 * i;
  const int v = in[i];
  r[0] = __shfl_sync(0xffffffff, v, v & 31);
  r[1] = __shfl_up_sync(0xffffffff, v, 3);
  r[2] = __shfl_down_sync(0xffffffff, v, 5, 8);
  r[3] = __shfl_xor_sync(0xffffffff, v, 9);
  r[4] = __shfl_sync(0xffffffff, v, (v & 7) + 3, 8);
  r[5] = static_cast<int>(__ballot_sync(0xffffffff, v & 1));
  r[6] = __all_sync(0xffffffff, v >= 0) + 2 * __any_sync(0xffffffff, v == 1000000);
  r[7] = __shfl_up_sync(0xffffffff, v, 2, 16);
}

static void test_shuffle() {
  std::vector<int> in(32);
  for (auto& x : in) x = static_cast<int>(next_random() & 0xffff);
  Buffer<int> d(in), out(32 * 8);
  shuffle_kernel<<<1, 32>>>(d.p, out.p);
  const auto got = out.get();
  uint32_t ballot = 0;
  for (int i = 0; i < 32; ++i) ballot |= (in[i] & 1) << i;
  for (int i = 0; i < 32; ++i) {
    const int seg8 = i & ~7, seg16 = i & ~15;
    const int want[8] = {in[in[i] & 31],
                         i >= 3 ? in[i - 3] : in[i],
                         (i & 7) + 5 < 8 ? in[i + 5] : in[i],
                         in[i ^ 9],
                         in[seg8 + (((in[i] & 7) + 3) & 7)],
                         static_cast<int>(ballot),
                         1,
                         i - 2 >= seg16 ? in[i - 2] : in[i]};
    for (int k = 0; k < 8; ++k)
      CHECK(got[8 * i + k] == want[k], "lane %d result %d: %d, not %d", i, k, got[8 * i + k],
            want[k]);
  }
}

__global__ void atomics_kernel(uint32_t* out, unsigned long long* wide, double* d, __half2* h) {
  __shared__ uint32_t s[4];
  if (threadIdx.x < 4) s[threadIdx.x] = threadIdx.x == 1 ? 0xffffffff : 0;
  __syncthreads();
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&s[0], i);
  atomicMin(&s[1], i + 5);
  atomicMax(&s[2], i);
  for (uint32_t seen = 0, old; (old = atomicCAS(&s[3], seen, seen + 1)) != seen;) seen = old;
  atomicAdd(&out[4], 1u);
  atomicMax(reinterpret_cast<int*>(&out[5]), static_cast<int>(i) - 20);
  atomicOr(&out[6], 1u << (i & 31));
  atomicXor(&out[7], i);
  atomicInc(&out[8], 9);
  atomicExch(&out[9], 77);
  atomicAdd(wide, static_cast<unsigned long long>(i) << 30);
  atomicAdd(d, 0.5);
  atomicAdd(h + (threadIdx.x >> 10), __floats2half2_rn(1.0f, 2.0f));
  __syncthreads();
  if (threadIdx.x < 4) atomicAdd(&out[threadIdx.x], s[threadIdx.x]);
}

static void test_atomics() {
  Buffer<uint32_t> out(16);
  Buffer<unsigned long long> wide(1);
  Buffer<double> d(1);
  Buffer<__half2> h(1);
  atomics_kernel<<<2, 64>>>(out.p, wide.p, d.p, h.p);
  const auto got = out.get();
  CHECK(got[0] == 127 * 64, "%u", got[0]);
  CHECK(got[1] == 5 + 69, "%u", got[1]);
  CHECK(got[2] == 63 + 127, "%u", got[2]);
  CHECK(got[3] == 128, "%u", got[3]);
  CHECK(got[4] == 128 && got[5] == 107 && got[6] == 0xffffffff && got[7] == 0 && got[8] == 8 &&
            got[9] == 77,
        "%u %u %x %u %u %u", got[4], got[5], got[6], got[7], got[8], got[9]);
  CHECK(wide.get()[0] == 8128ull << 30, "%llx", wide.get()[0]);
  CHECK(d.get()[0] == 64.0, "%g", d.get()[0]);
  CHECK(__low2float(h.get()[0]) == 128.0f && __high2float(h.get()[0]) == 256.0f, "half2");
}

// ---- control flow
// --------------------------------------------------------------------------------

__host__ __device__ static uint32_t collatz(uint32_t v) {
  uint32_t steps = 0;
  while (v > 1 && steps < 500) {
    if (v & 1) {
      v = 3 * v + 1;
    } else {
      v /= 2;
    }
    ++steps;
  }
  return steps;
}

__host__ __device__ __noinline__ static uint32_t fib(uint32_t n) {
  return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

__host__ __device__ static uint32_t table_walk(uint32_t v) {
  uint32_t r = 1;
  for (int k = 0; k < 6; ++k, v /= 11) {
    switch (v % 11) {
      case 0:
        r += 3;
        break;
      case 1:
        r *= 5;
        break;
      case 2:
        r ^= 0x55;
        break;
      case 3:
        r = r << 3 | 1;
        break;
      case 4:
        r -= 7;
        break;
      case 5:
        continue;
      case 6:
        r = ~r;
        break;
      case 7:
        r /= 3;
        break;
      case 8:
        return r + 1000000;
      case 9:
        r += r >> 4;
        break;
      default:
        r *= 31;
        break;
    }
  }
  return r;
}

__global__ void control_kernel(const uint32_t* in, uint32_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  uint32_t* r = out + 4 * i;
  r[0] = collatz(in[i] % 100000);
  r[1] = fib(in[i] % 12);
  r[2] = table_walk(in[i]);
  uint32_t local[16];
  for (int k = 0; k < 16; ++k) local[k] = in[i] * (k + 1);
  uint32_t at = in[i] & 15, sum = 0;
  for (int k = 0; k < 8; ++k) {
    sum += local[at];
    local[(at + k) & 15] ^= sum;
    at = local[at] & 15;
  }
  r[3] = sum;
}

static void test_control() {
  const int n = 500;
  const auto in = words(n);
  Buffer<uint32_t> d(in), out(4 * n);
  control_kernel<<<(n + 63) / 64, 64>>>(d.p, out.p, n);
  const auto got = out.get();
  for (int i = 0; i < n; ++i) {
    uint32_t local[16];
    for (int k = 0; k < 16; ++k) local[k] = in[i] * (k + 1);
    uint32_t at = in[i] & 15, sum = 0;
    for (int k = 0; k < 8; ++k) {
      sum += local[at];
      local[(at + k) & 15] ^= sum;
      at = local[at] & 15;
    }
    const uint32_t want[4] = {collatz(in[i] % 100000), fib(in[i] % 12), table_walk(in[i]), sum};
    for (int k = 0; k < 4; ++k)
      CHECK(got[4 * i + k] == want[k], "%d result %d: %u, not %u", i, k, got[4 * i + k], want[k]);
  }
}

__global__ void lock_kernel(int* lock, int* counter) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  __threadfence();
  *const_cast<volatile int*>(counter) += 1;
  __threadfence();
  atomicExch(lock, 0);
}

static void test_lock() {
  Buffer<int> lock(1), counter(1);
  lock_kernel<<<2, 64>>>(lock.p, counter.p);
  CHECK(counter.get()[0] == 128, "%d", counter.get()[0]);
}

// Every block waits for all others: needs a cooperative launch.
__global__ void all_blocks_kernel(unsigned* arrived, int* values) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  values[i] = i;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    volatile unsigned* flags = arrived;
    flags[blockIdx.x] = 1;
    for (unsigned b = 0; b < gridDim.x; ++b) {
      while (!flags[b]) {
      }
    }
  }
  __syncthreads();
  const int total = static_cast<int>(gridDim.x * blockDim.x);
  const int seen = *const_cast<volatile int*>(&values[total - 1 - i]);
  values[total + i] = seen;
}

static void test_cooperative() {
  Buffer<unsigned> arrived(4);
  Buffer<int> values(2 * 4 * 64);
  void* args[] = {&arrived.p, &values.p};
  cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(all_blocks_kernel), dim3(4), dim3(64),
                              args, 0, nullptr);
  const auto got = values.get();
  for (int i = 0; i < 256; ++i) CHECK(got[256 + i] == 255 - i, "thread %d: %d", i, got[256 + i]);
}

__global__ void divergent_sync_kernel(int* out) {
  const int lane = threadIdx.x & 31;
  int v = lane;
  if (lane < 16) {
    v = __shfl_xor_sync(0xffff, v, 1);
    __syncwarp(0xffff);
  } else {
    v = __shfl_xor_sync(0xffff0000, v, 2) + 100;
    v += static_cast<int>(__popc(__ballot_sync(0xffff0000, lane & 1)));
  }
  const bool any = __syncthreads_or(v == 131);
  const int count = __syncthreads_count(lane < 5);
  out[threadIdx.x] = v * 1000 + count * 2 + any;
}

static void test_divergent_sync() {
  Buffer<int> out(96);
  divergent_sync_kernel<<<1, 96>>>(out.p);
  const auto got = out.get();
  for (int i = 0; i < 96; ++i) {
    const int lane = i & 31;
    const int v = lane < 16 ? lane ^ 1 : (lane ^ 2) + 108;
    const int want = v * 1000 + 15 * 2 + 1;
    CHECK(got[i] == want, "thread %d: %d, not %d", i, got[i], want);
  }
}

__global__ void transpose_kernel(const float* in, float* out, int n) {
  __shared__ float tile[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) {
    if (x < n && y + k < n) tile[threadIdx.y + k][threadIdx.x] = in[(y + k) * n + x];
  }
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x;
  y = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) {
    if (x < n && y + k < n) out[(y + k) * n + x] = tile[threadIdx.x][threadIdx.y + k];
  }
}

static void test_transpose() {
  const int n = 100;
  std::vector<float> in(n * n);
  for (int i = 0; i < n * n; ++i) in[i] = static_cast<float>(i);
  Buffer<float> d(in), out(n * n);
  transpose_kernel<<<dim3(4, 4), dim3(32, 8)>>>(d.p, out.p, n);
  const auto got = out.get();
  for (int i = 0; i < n * n; ++i) CHECK(got[i] == in[(i % n) * n + i / n], "%d", i);
}

// Elements of all widths through global and shared memory, at shifted and strided places.
template <class T>
__global__ void widths_kernel(const T* in, T* out, int n, int stride) {
  __shared__ T s[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i * stride < n) s[threadIdx.x] = in[i * stride];
  __syncthreads();
  const int j = blockIdx.x * blockDim.x + (threadIdx.x ^ 1);
  if (j * stride < n && i * stride < n) out[j * stride] = s[threadIdx.x ^ 1];
  if (threadIdx.x == 77 && i < n) out[i] = in[i];
}

template <class T>
static void test_width() {
  for (int stride : {1, 3}) {
    const int n = 1001;
    std::vector<uint8_t> bytes(n * sizeof(T));
    for (auto& b : bytes) b = static_cast<uint8_t>(next_random());
    std::vector<T> in(n);
    std::memcpy(in.data(), bytes.data(), bytes.size());
    Buffer<T> d(in), out(n);
    widths_kernel<T><<<(n + 127) / 128, 128>>>(d.p, out.p, n, stride);
    const auto got = out.get();
    for (int i = 0; i < n; i += stride) {
      const int pair = (i / stride) ^ 1;
      if (pair * stride >= n) continue;
      CHECK(!std::memcmp(&got[i], &in[i], sizeof(T)), "size %zu stride %d element %d", sizeof(T),
            stride, i);
    }
  }
}

static void test_widths() {
  test_width<uint8_t>();
  test_width<int16_t>();
  test_width<float>();
  test_width<float2>();
  test_width<float4>();
}

__global__ void print_kernel() {
  if (threadIdx.x == 1)
    printf("hello %d %s %.3f %lld %c%%\n", 42, "text", 1.5, 123456789012ll, 'x');
}

static void test_print() {
  std::fflush(stdout);
  print_kernel<<<1, 32>>>();
  cudaDeviceSynchronize();
}

// 3D indexes, and blocks that do not fill their last warp.
__global__ void index_kernel(uint32_t* out) {
  const uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

static void test_index() {
  Buffer<uint32_t> out(2 * 3 * 4 * 5 * 3 * 3);
  index_kernel<<<dim3(2, 3, 4), dim3(5, 3, 3)>>>(out.p);
  const auto got = out.get();
  for (uint32_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == i / 45 * 1000 + i % 45, "%u: %u", i, got[i]);
}

// The parameters end in the middle of a word.
__global__ void narrow_parameter_kernel(float* out, __half factor) {
  *out = 3 * __half2float(factor);
}

static void test_narrow_parameter() {
  Buffer<float> out(1);
  narrow_parameter_kernel<<<1, 1>>>(out.p, __float2half(1.5f));
  CHECK(out.get()[0] == 4.5f, "%g", out.get()[0]);
}

// Some lanes call the function again while the others wait inside of it.
__host__ __device__ __noinline__ float odd_function(float x) {
  if (x < 0) return -odd_function(-x);
  if (x < 5) return x / (x + 1) * (x > 2 ? x / 3 : sqrtf(x));
  float sum = 0;
  for (float at = x; at > 1; at /= 3) sum += at / (x + at);
  return sum;
}

__global__ void recursion_kernel(float* out) {
  const float x = (threadIdx.x * 7 % 32 - 16.f) * 0.75f;
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    // Lanes that leave the function too early do not meet the others here.
    sum += __shfl_xor_sync(~0u, odd_function(x + i), 1);
  }
  out[threadIdx.x] = sum;
}

static void test_recursion() {
  Buffer<float> out(32);
  recursion_kernel<<<1, 32>>>(out.p);
  const auto got = out.get();
  for (int t = 0; t < 32; ++t) {
    const float x = ((t ^ 1) * 7 % 32 - 16.f) * 0.75f;
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += odd_function(x + i);
    CHECK(std::fabs(got[t] - sum) <= 1e-5f, "%d: %g instead of %g", t, got[t], sum);
  }
}

__global__ void shared_double_kernel(double* out) {
  __shared__ double sums[4];
  if (threadIdx.x < 4) sums[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&sums[threadIdx.x % 4], threadIdx.x + 0.5);
  __syncthreads();
  if (threadIdx.x < 4) out[threadIdx.x] = sums[threadIdx.x];
}

static void test_shared_double() {
  Buffer<double> out(4);
  shared_double_kernel<<<1, 64>>>(out.p);
  const auto got = out.get();
  for (int i = 0; i < 4; ++i) CHECK(got[i] == 488 + 16 * i, "%d: %g", i, got[i]);
}

int main(int argc, char** argv) {
  const std::vector<std::pair<const char*, void (*)()>> tests = {
      {"integer", test_integer},
      {"bits", test_bits},
      {"float", test_float},
      {"rounding", test_rounding},
      {"math", test_math},
      {"double", test_double},
      {"convert", test_convert},
      {"reduce", test_reduce},
      {"shuffle", test_shuffle},
      {"atomics", test_atomics},
      {"control", test_control},
      {"lock", test_lock},
      {"cooperative", test_cooperative},
      {"divergent_sync", test_divergent_sync},
      {"transpose", test_transpose},
      {"widths", test_widths},
      {"print", test_print},
      {"index", test_index},
      {"narrow_parameter", test_narrow_parameter},
      {"recursion", test_recursion},
      {"shared_double", test_shared_double}};
  int failed = 0;
  for (const auto& [name, run] : tests) {
    if (argc > 1 && std::string(name) != argv[1]) continue;
    failures = 0;
    run();
    std::printf("%s %s\n", failures ? "FAIL" : "ok  ", name);
    failed += failures != 0;
  }
  return failed != 0;
}
