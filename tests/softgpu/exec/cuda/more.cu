// What nvcc emits for small kernels beyond those of PyTorch: packed arithmetic, half, tensor core,
// matches, barriers by number, atomics of all kinds, function pointers. Each compared with plain
// C++.
//
// Not part of the build: test_cuda.py compiles it where nvcc is installed and says so where not.
#include "buffer.h"
#include "harness.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>
#include <mma.h>

namespace cg = cooperative_groups;
using nvcuda::wmma::accumulator;
using nvcuda::wmma::col_major;
using nvcuda::wmma::fragment;
using nvcuda::wmma::matrix_a;
using nvcuda::wmma::matrix_b;
using nvcuda::wmma::mem_row_major;
using nvcuda::wmma::row_major;
using U = uint32_t;

static U next_random() {
  return static_cast<U>(next_random64() >> 16);
}

static std::vector<U> words(size_t n) {
  static const U edges[] = {0, 1, 2, 31, 32, 0x7fffffff, 0x80000000, 0xffffffff};
  std::vector<U> v(n);
  for (U& x : v) x = next_random() % 4 ? next_random() : edges[next_random() % 8];
  return v;
}

// ---- bytes and halves of words
// -------------------------------------------------------------------

constexpr int kPacked = 24;

__device__ U permute(int mode, U a, U b, U c) {
  U r = 0;
  if (mode == 0) asm("prmt.b32.f4e %0,%1,%2,%3;" : "=r"(r) : "r"(a), "r"(c), "r"(b));
  if (mode == 1) asm("prmt.b32.b4e %0,%1,%2,%3;" : "=r"(r) : "r"(a), "r"(c), "r"(b));
  if (mode == 2) asm("prmt.b32.rc8 %0,%1,%2,%3;" : "=r"(r) : "r"(a), "r"(c), "r"(b));
  if (mode == 3) asm("prmt.b32.ecl %0,%1,%2,%3;" : "=r"(r) : "r"(a), "r"(c), "r"(b));
  if (mode == 4) asm("prmt.b32.ecr %0,%1,%2,%3;" : "=r"(r) : "r"(a), "r"(c), "r"(b));
  if (mode == 5) asm("prmt.b32.rc16 %0,%1,%2,%3;" : "=r"(r) : "r"(a), "r"(c), "r"(b));
  return r;
}

__global__ void packed_kernel(const U* in, U* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const U a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  U* r = out + kPacked * i;
  for (int k = 0; k < 6; ++k) r[k] = permute(k, a, b, c);
  r[6] = static_cast<U>(__dp2a_lo(static_cast<int>(a), static_cast<int>(b), static_cast<int>(c)));
  r[7] = static_cast<U>(__dp2a_hi(static_cast<int>(a), static_cast<int>(b), static_cast<int>(c)));
  r[8] = __dp2a_lo(a, b, c);
  r[9] = __dp2a_hi(a, b, c);
  r[10] = __sad(static_cast<int>(a), static_cast<int>(b), c);
  r[11] = __usad(a, b, c);
  r[12] = __vabsdiffu4(a, b);
  r[13] = __vsadu4(a, b);
  int s = 0;
  asm("cvt.sat.s8.s32 %0,%1;" : "=r"(s) : "r"(a));
  r[14] = static_cast<U>(s);
  asm("cvt.sat.u16.s32 %0,%1;" : "=r"(s) : "r"(a));
  r[15] = static_cast<U>(s);
  asm("cvt.sat.s16.s32 %0,%1;" : "=r"(s) : "r"(static_cast<int>(a) >> 12));
  r[16] = static_cast<U>(s);
  asm("cvt.sat.u8.s32 %0,%1;" : "=r"(s) : "r"(static_cast<int>(a) >> 20));
  r[17] = static_cast<U>(s);
  r[18] = __vabsdiffs4(a, b);
  r[19] = __vsads4(a, b);
  r[20] = __vmaxs2(a, b);
  r[21] = __vaddus4(a, b);
}

static U byte_of(U v, U k) {
  return v >> (8 * k) & 255;
}

static U permuted(int mode, U a, U b, U c) {
  const uint64_t x = uint64_t{c} << 32 | a;
  U r = 0;
  for (U k = 0; k < 4; ++k) {
    const U s = b & 3;
    const U from = mode == 0   ? s + k
                   : mode == 1 ? (s + 8 - k) % 8
                   : mode == 2 ? s
                   : mode == 3 ? (k > s ? k : s)
                   : mode == 4 ? (k < s ? k : s)
                               : (b & 1) * 2 + k % 2;
    r |= static_cast<U>(x >> (8 * from) & 255) << (8 * k);
  }
  return r;
}

template <class Half, class Byte>
static U dot2(U a, U b, U c, U first) {
  for (U k = 0; k < 2; ++k) {
    c += static_cast<U>(static_cast<Half>(a >> (16 * k))) *
         static_cast<U>(static_cast<Byte>(byte_of(b, first + k)));
  }
  return c;
}

static int clamp(int v, int low, int high) {
  return v < low ? low : v > high ? high : v;
}

static void packed_reference(U a, U b, U c, U* r) {
  const int sa = static_cast<int>(a), sb = static_cast<int>(b);
  for (int k = 0; k < 6; ++k) r[k] = permuted(k, a, b, c);
  r[6] = dot2<int16_t, int8_t>(a, b, c, 0);
  r[7] = dot2<int16_t, int8_t>(a, b, c, 2);
  r[8] = dot2<uint16_t, uint8_t>(a, b, c, 0);
  r[9] = dot2<uint16_t, uint8_t>(a, b, c, 2);
  r[10] = (sa < sb ? b - a : a - b) + c;
  r[11] = (a < b ? b - a : a - b) + c;
  for (U k = 0; k < 4; ++k) {
    const int x = static_cast<int>(byte_of(a, k)), y = static_cast<int>(byte_of(b, k));
    const int sx = static_cast<int8_t>(x), sy = static_cast<int8_t>(y);
    const U d = static_cast<U>(x < y ? y - x : x - y);
    const U sd = static_cast<U>(sx < sy ? sy - sx : sx - sy);
    r[12] |= d << (8 * k);
    r[13] += d;
    r[18] |= (sd & 255) << (8 * k);
    r[19] += sd;
    r[21] |= static_cast<U>(x + y > 255 ? 255 : x + y) << (8 * k);
  }
  r[14] = static_cast<U>(clamp(sa, -128, 127));
  r[15] = static_cast<U>(clamp(sa, 0, 65535));
  r[16] = static_cast<U>(clamp(sa >> 12, -32768, 32767));
  r[17] = static_cast<U>(clamp(sa >> 20, 0, 255));
  for (U k = 0; k < 2; ++k) {
    const auto x = static_cast<int16_t>(a >> (16 * k)), y = static_cast<int16_t>(b >> (16 * k));
    r[20] |= static_cast<U>(static_cast<uint16_t>(x > y ? x : y)) << (16 * k);
  }
}

static void test_packed() {
  const int n = 1000;
  const auto in = words(3 * n);
  Buffer<U> d(in), out(kPacked * n);
  packed_kernel<<<(n + 63) / 64, 64>>>(d.p, out.p, n);
  const auto got = out.get();
  for (int i = 0; i < n; ++i) {
    U want[kPacked] = {};
    packed_reference(in[3 * i], in[3 * i + 1], in[3 * i + 2], want);
    for (int k = 0; k < kPacked; ++k) {
      CHECK(got[kPacked * i + k] == want[k], "%d of %d: %x, not %x", k, i, got[kPacked * i + k],
            want[k]);
    }
  }
}

// ---- half
// ----------------------------------------------------------------------------------------

constexpr int kHalves = 16;

__global__ void half_kernel(const __half2* in, __half2* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const __half2 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  __half2* r = out + kHalves * i;
  r[0] = __hfma2(a, b, c);
  r[1] = __hfma2_sat(a, b, c);
  r[2] = __hfma2(__hneg2(a), __habs2(b), c);
  r[3] = __hfma2(a, __half2half2(__low2half(b)), __hneg2(c));
  r[4] = __hfma2(a, __floats2half2_rn(1.5f, -3.0f), c);
  r[5] = __hfma2(a, b, __floats2half2_rn(0.25f, 0.25f));
  r[6] = __hlt2(a, b);
  r[7] = __hgeu2(a, c);
  r[8] = h2floor(a);
  r[9] = h2ceil(b);
  r[10] = h2rint(c);
  r[11] = h2trunc(a);
  r[12] = h2sqrt(__habs2(a));
  r[13] =
      __halves2half2(__hfma(__high2half(a), __low2half(b), __high2half(c)), htanh(__low2half(a)));
  U x, y;
  std::memcpy(&x, &b, 4);
  asm("tanh.approx.f16x2 %0,%1;" : "=r"(y) : "r"(x));
  std::memcpy(&r[14], &y, 4);
  asm("ex2.approx.f16x2 %0,%1;" : "=r"(y) : "r"(x));
  std::memcpy(&r[15], &y, 4);
}

// The half nearest to v, which double arithmetic has rounded to odd or not at all.
static uint16_t nearest_half(double v) {
  if (v != v) return 0x7fff;
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  v = std::fabs(v);
  if (v >= 65520.0) return sign | 0x7c00;
  int e = 0;
  std::frexp(v, &e);
  const int unit = e - 11 < -24 ? -24 : e - 11;
  const double whole = std::nearbyint(std::ldexp(v, -unit));
  const double rounded = std::ldexp(whole, unit);
  if (rounded < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<int>(rounded * 0x1p24));
  std::frexp(rounded, &e);
  return static_cast<uint16_t>(sign | ((e + 14) << 10) +
                                          static_cast<int>(std::ldexp(rounded, 11 - e)) - 1024);
}

static double half_value(uint16_t h) {
  const int e = h >> 10 & 31, m = h & 1023;
  const double v = e == 31 ? (m ? NAN : INFINITY)
                   : e     ? std::ldexp(1024 + m, e - 25)
                           : std::ldexp(m, -24);
  return h & 0x8000 ? -v : v;
}

// a * b + c as a half: long double holds the sum of an 80-bit span nearly always; random halves of
// moderate size never need more.
static uint16_t fma_half(double a, double b, double c, bool saturates = false) {
  long double r = static_cast<long double>(a) * b + c;
  if (saturates) r = r > 0 ? (r < 1 ? r : 1) : 0;
  double d = static_cast<double>(r);
  if (d != static_cast<long double>(d) && d == d) {  // to odd
    uint64_t bits;
    std::memcpy(&bits, &d, 8);
    if (!(bits & 1)) bits += (r > d) == (d > 0) ? 1 : -1;
    std::memcpy(&d, &bits, 8);
  }
  return nearest_half(d);
}

static bool same_half(uint16_t a, uint16_t b) {
  return a == b || ((a & 0x7fff) > 0x7c00 && (b & 0x7fff) > 0x7c00);
}

static bool near_half(uint16_t got, double want) {
  return std::fabs(half_value(got) - want) <= std::fabs(want) * 0x1p-9 + 0x1p-24 ||
         same_half(got, nearest_half(want));
}

static void check_halves(const U* in, const U* got, int which) {
  const int shift = 16 * which;
  const auto half = [&](U v) { return static_cast<uint16_t>(v >> shift); };
  const double a = half_value(half(in[0])), b = half_value(half(in[1])),
               c = half_value(half(in[2]));
  const double low_b = half_value(static_cast<uint16_t>(in[1]));
  const uint16_t one = 0x3c00;
  const uint16_t want[12] = {fma_half(a, b, c),
                             fma_half(a, b, c, true),
                             fma_half(-a, std::fabs(b), c),
                             fma_half(a, low_b, -c),
                             fma_half(a, which ? -3.0 : 1.5, c),
                             fma_half(a, b, 0.25),
                             a < b ? one : uint16_t{0},
                             a < c ? uint16_t{0} : one,
                             nearest_half(std::floor(a)),
                             nearest_half(std::ceil(b)),
                             nearest_half(std::nearbyint(c)),
                             nearest_half(std::trunc(a))};
  for (int k = 0; k < 12; ++k) {
    if (k == 1 && a * b + c != a * b + c) continue;  // NaN saturates to 0
    CHECK(same_half(half(got[k]), want[k]), "%d: %x, not %x (%g %g %g)", k, half(got[k]), want[k],
          a, b, c);
  }
  CHECK(near_half(half(got[12]), std::sqrt(std::fabs(a))), "sqrt %g: %x", a, half(got[12]));
  CHECK(near_half(half(got[14]), std::tanh(b)), "tanh %g: %x", b, half(got[14]));
  CHECK(near_half(half(got[15]), std::exp2(b)), "exp2 %g: %x", b, half(got[15]));
}

static void test_half() {
  const int n = 2000;
  auto in = words(3 * n);
  // Half of them of moderate size, where nothing overflows.
  for (size_t i = 0; i < in.size(); i += 2) in[i] = (in[i] & 0x8fff8fff) | 0x30003000;
  Buffer<U> d(in), out(kHalves * n);
  half_kernel<<<(n + 63) / 64, 64>>>(reinterpret_cast<__half2*>(d.p),
                                     reinterpret_cast<__half2*>(out.p), n);
  const auto got = out.get();
  for (int i = 0; i < n; ++i) {
    for (int which = 0; which < 2; ++which) check_halves(&in[3 * i], &got[kHalves * i], which);
  }
}

__global__ void mufu_kernel(const float* in, float* out) {
  const int i = threadIdx.x;
  asm("tanh.approx.f32 %0,%1;" : "=f"(out[2 * i]) : "f"(in[i]));
  asm("sqrt.approx.f32 %0,%1;" : "=f"(out[2 * i + 1]) : "f"(fabsf(in[i])));
}

static void test_mufu() {
  std::vector<float> in(256);
  for (int i = 0; i < 256; ++i) in[i] = std::ldexp((i - 128) / 64.0f, i % 9 - 5);
  in[1] = INFINITY;
  in[2] = -INFINITY;
  Buffer<float> d(in), out(512);
  mufu_kernel<<<1, 256>>>(d.p, out.p);
  const auto got = out.get();
  for (int i = 0; i < 256; ++i) {
    const double tanh = std::tanh(static_cast<double>(in[i])), root = std::sqrt(std::fabs(in[i]));
    CHECK(std::fabs(got[2 * i] - tanh) <= 0x1p-20 * std::fabs(tanh), "tanh %g: %g", in[i],
          got[2 * i]);
    CHECK(got[2 * i + 1] == root || std::fabs(got[2 * i + 1] - root) <= 0x1p-22 * root,
          "sqrt %g: %g", in[i], got[2 * i + 1]);
  }
}

// ---- tensor core
// ---------------------------------------------------------------------------------

template <class A, class LayoutA, class B, class LayoutB, class C>
__global__ void matrix_kernel(const A* a, const B* b, C* c, bool saturates) {
  fragment<matrix_a, 16, 16, 16, A, LayoutA> fa;
  fragment<matrix_b, 16, 16, 16, B, LayoutB> fb;
  fragment<accumulator, 16, 16, 16, C> fc;
  nvcuda::wmma::load_matrix_sync(fa, a, 16);
  nvcuda::wmma::load_matrix_sync(fb, b, 16);
  nvcuda::wmma::load_matrix_sync(fc, c, 16, mem_row_major);
  if constexpr (sizeof(A) == 1) {
    saturates ? nvcuda::wmma::mma_sync(fc, fa, fb, fc, true)
              : nvcuda::wmma::mma_sync(fc, fa, fb, fc, false);
  } else {
    nvcuda::wmma::mma_sync(fc, fa, fb, fc);
  }
  nvcuda::wmma::store_matrix_sync(c, fc, 16, mem_row_major);
}

static double number(__half v) {
  uint16_t bits;
  std::memcpy(&bits, &v, 2);
  return half_value(bits);
}
static double number(int8_t v) {
  return v;
}
static double number(uint8_t v) {
  return v;
}

template <class A>
static A small_number(int v) {
  return static_cast<A>(v);
}
template <>
__half small_number<__half>(int v) {
  const uint16_t bits = nearest_half(v % 16 * 0.5);
  __half h;
  std::memcpy(&h, &bits, 2);
  return h;
}

template <class A, class LayoutA, class LayoutB, class C>
static void test_matrix(C start, bool saturates) {
  std::vector<A> a(256), b(256);
  std::vector<C> c(256, start);
  for (int i = 0; i < 256; ++i) {
    a[i] = small_number<A>(static_cast<int>(next_random()));
    b[i] = small_number<A>(static_cast<int>(next_random()));
    c[i] += static_cast<C>(i);
  }
  Buffer<A> da(a), db(b);
  Buffer<C> dc(c);
  matrix_kernel<A, LayoutA, A, LayoutB, C><<<1, 32>>>(da.p, db.p, dc.p, saturates);
  const auto got = dc.get();
  const bool row_a = std::is_same_v<LayoutA, row_major>, row_b = std::is_same_v<LayoutB, row_major>;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      double want = c[16 * i + j];
      for (int k = 0; k < 16; ++k) {
        want +=
            number(a[row_a ? 16 * i + k : 16 * k + i]) * number(b[row_b ? 16 * k + j : 16 * j + k]);
      }
      if (saturates) want = std::fmin(std::fmax(want, INT32_MIN), INT32_MAX);
      CHECK(got[16 * i + j] == want, "[%d][%d]: %g, not %g", i, j,
            static_cast<double>(got[16 * i + j]), want);
    }
  }
}

static void test_matrices() {
  test_matrix<__half, row_major, col_major, float>(0.5f, false);
  test_matrix<__half, col_major, row_major, float>(0.5f, false);
  test_matrix<int8_t, row_major, col_major, int>(-1000, false);
  test_matrix<uint8_t, row_major, col_major, int>(0, false);
  test_matrix<uint8_t, col_major, row_major, int>(7, false);
  test_matrix<uint8_t, row_major, col_major, int>(INT32_MAX - 100000, true);
  test_matrix<int8_t, col_major, row_major, int>(3, true);
}

// ---- lanes of a warp
// -----------------------------------------------------------------------------

__global__ void match_kernel(const U* in, U* out) {
  const U i = threadIdx.x;
  int all = 0;
  out[6 * i] = __match_any_sync(~0u, in[i]);
  out[6 * i + 1] = __match_all_sync(~0u, in[i] >> 16, &all) ^ static_cast<U>(all) << 31;
  out[6 * i + 2] = __match_any_sync(~0u, uint64_t{in[i]} << 32 | (in[i] & 1));
  if (i < 20) {
    out[6 * i + 3] = __match_any_sync(0xfffff, in[i] & 1);
    out[6 * i + 4] = __match_all_sync(0xfffff, in[i] >> 20, &all) + static_cast<U>(all);
  }
  auto group = cg::labeled_partition(cg::coalesced_threads(), in[i] & 3);
  out[6 * i + 5] = cg::reduce(group, i, cg::plus<U>());
}

static void test_match() {
  std::vector<U> in(32);
  for (U& v : in) v = next_random() % 5;
  in[29] |= 1u << 18;  // all but this one have the same high half
  Buffer<U> d(in), out(6 * 32);
  match_kernel<<<1, 32>>>(d.p, out.p);
  const auto got = out.get();
  for (U i = 0; i < 32; ++i) {
    U equal = 0, parity = 0, sum = 0;
    for (U k = 0; k < 32; ++k) {
      if (in[k] == in[i]) equal |= 1u << k;
      if (k < 20 && (in[k] & 1) == (in[i] & 1)) parity |= 1u << k;
      if ((in[k] & 3) == (in[i] & 3)) sum += k;
    }
    CHECK(got[6 * i] == equal && got[6 * i + 2] == equal, "lane %u: %x", i, got[6 * i]);
    CHECK(got[6 * i + 1] == 0, "lane %u: %x", i, got[6 * i + 1]);
    CHECK(got[6 * i + 5] == sum, "lane %u: %u, not %u", i, got[6 * i + 5], sum);
    if (i >= 20) continue;
    CHECK(got[6 * i + 3] == parity, "lane %u: %x", i, got[6 * i + 3]);
    CHECK(got[6 * i + 4] == 0x100000, "lane %u: %x", i, got[6 * i + 4]);
  }
}

// Two warps fill a buffer, two drain it, by barriers that one side only arrives at.
__global__ void produce_kernel(int* out, int full, int empty) {
  __shared__ int buffer[64];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 64;
  for (int round = 0; round < 5; ++round) {
    if (warp < 2) {
      if (round) asm volatile("bar.sync %0, 128;" ::"r"(empty));
      buffer[lane] = round * 100 + lane;
      __threadfence_block();
      asm volatile("bar.arrive %0, %1;" ::"r"(full), "r"(128));
    } else {
      asm volatile("bar.sync 1, 128;");
      out[round * 64 + lane] = buffer[63 - lane];
      if (round < 4) asm volatile("bar.arrive 2, 128;");
    }
  }
}

static void test_barriers() {
  Buffer<int> out(320);
  produce_kernel<<<1, 128>>>(out.p, 1, 2);
  const auto got = out.get();
  for (int i = 0; i < 320; ++i) CHECK(got[i] == i / 64 * 100 + 63 - i % 64, "%d: %d", i, got[i]);
}

__global__ void grid_kernel(int* values) {
  auto grid = cg::this_grid();
  values[grid.thread_rank()] = static_cast<int>(grid.thread_rank());
  grid.sync();
  int sum = 0;
  for (unsigned i = 0; i < grid.size(); ++i) sum += *(volatile int*)(values + i);
  grid.sync();
  values[grid.thread_rank()] = sum;
}

static void test_grid_sync() {
  Buffer<int> d(96);
  void* arguments[] = {&d.p};
  const cudaError_t e =
      cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(grid_kernel), 3, 32, arguments);
  CHECK(e == cudaSuccess, "%s", cudaGetErrorString(e));
  for (const int v : d.get()) CHECK(v == 95 * 96 / 2, "%d", v);
}

// ---- atomics
// -------------------------------------------------------------------------------------

// Lanes go in ascending order, so that every old value is known.
__device__ __host__ static U old_inc(U k, U limit) {
  return k % (limit + 1);
}

__device__ static void atomics_on(U* s, unsigned long long* q, U i, U* r) {
  r[0] = atomicInc(s, 6);
  r[1] = atomicDec(s + 1, 9);
  r[2] = atomicAnd(s + 2, ~(1u << i));
  r[3] = atomicOr(s + 3, 1u << i);
  r[4] = atomicXor(s + 4, i * 3);
  r[5] = atomicExch(s + 5, i);
  r[6] = atomicCAS(s + 6, i, i + 1);
  r[7] = static_cast<U>(atomicMin(reinterpret_cast<int*>(s) + 7, -static_cast<int>(i)));
  r[8] = static_cast<U>(atomicAdd(q, 1ull << 33) >> 33);
  r[9] = static_cast<U>(atomicCAS(q + 1, uint64_t{i} << 32, uint64_t{i + 1} << 32) >> 32);
  r[10] = static_cast<U>(atomicExch(q + 2, uint64_t{i} << 40) >> 40);
  r[11] = static_cast<U>(atomicMax(q + 3, uint64_t{i} << 36) >> 36);
}

constexpr int kAtomics = 12;

__global__ void atomics_kernel(U* words, unsigned long long* quads, U* out, int where) {
  __shared__ U s[8];
  __shared__ unsigned long long q[4];
  const U i = threadIdx.x;
  if (i < 8) s[i] = words[i];
  if (i < 4) q[i] = quads[i];
  __syncthreads();
  if (where == 0) {
    atomics_on(words, quads, i, out + kAtomics * i);
  } else if (where == 1) {
    atomics_on(s, q, i, out + kAtomics * i);
  } else {
    U* generic = out[0] ? s : words;  // out starts as zero
    unsigned long long* generic_quads = out[0] ? q : quads;
    atomics_on(generic, generic_quads, i, out + kAtomics * i);
  }
}

static void test_atomics(int where) {
  Buffer<U> d(std::vector<U>{0, 9, ~0u, 0, 0, 77, 0, 1}), out(kAtomics * 32);
  Buffer<unsigned long long> q(std::vector<unsigned long long>{0, 0, 0, 0});
  atomics_kernel<<<1, 32>>>(d.p, q.p, out.p, where);
  const auto got = out.get();
  U mixed = 0;
  for (U i = 0; i < 32; ++i) {
    const U before = i ? i - 1 : 0, below = (1u << i) - 1;
    const U want[kAtomics] = {old_inc(i, 6),
                              9 - i % 10,
                              ~below,
                              below,
                              mixed,
                              i ? before : 77,
                              i,
                              i ? static_cast<U>(-static_cast<int>(before)) : 1,
                              i,
                              i,
                              before,
                              before};
    for (int k = 0; k < kAtomics; ++k) {
      CHECK(got[kAtomics * i + k] == want[k], "%d, lane %u, atomic %d: %x, not %x", where, i, k,
            got[kAtomics * i + k], want[k]);
    }
    mixed ^= i * 3;
  }
}

// ---- calls
// ---------------------------------------------------------------------------------------

__device__ __noinline__ int add_one(int x) {
  return x + 1;
}
__device__ __noinline__ int triple(int x) {
  return x * 3;
}
using Function = int (*)(int);
__device__ Function functions[2] = {add_one, triple};

struct Shape {
  int x;
  __device__ virtual int area(int y) = 0;
};
struct Square : Shape {
  __device__ int area(int y) override { return x * x + y; }
};
struct Circle : Shape {
  __device__ int area(int y) override { return 3 * x * y; }
};

__device__ int fibonacci(int n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__global__ void calls_kernel(int* p) {
  const int i = threadIdx.x;
  Square square;
  Circle circle;
  square.x = circle.x = i;
  Shape* shape = p[i] & 1 ? static_cast<Shape*>(&square) : &circle;
  p[i] = functions[i % 2](i) * 1000000 + shape->area(2) * 1000 + fibonacci(i % 12);
}

static void test_calls() {
  std::vector<int> in(32);
  for (int i = 0; i < 32; ++i) in[i] = i / 3;
  Buffer<int> d(in);
  calls_kernel<<<1, 32>>>(d.p);
  const auto got = d.get();
  const int fibonacci_of[12] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  for (int i = 0; i < 32; ++i) {
    const int want = (i % 2 ? i * 3 : i + 1) * 1000000 +
                     (i / 3 & 1 ? i * i + 2 : 3 * i * 2) * 1000 + fibonacci_of[i % 12];
    CHECK(got[i] == want, "%d: %d, not %d", i, got[i], want);
  }
}

__global__ void uniform_kernel(U* out, U a, U b) {
  const U k = blockIdx.x + a;
  out[4 * blockIdx.x] = __popc(k);
  out[4 * blockIdx.x + 1] = __clz(k * b);
  out[4 * blockIdx.x + 2] = __brev(k);
  out[4 * blockIdx.x + 3] = k * b - 0x7fffffff;
}

static void test_uniform() {
  Buffer<U> out(400);
  uniform_kernel<<<100, 1>>>(out.p, 12345, 77);
  const auto got = out.get();
  for (U i = 0; i < 100; ++i) {
    const U k = i + 12345;
    U reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= (k >> bit & 1) << (31 - bit);
    CHECK(got[4 * i] == static_cast<U>(__builtin_popcount(k)), "%u", i);
    CHECK(got[4 * i + 1] == static_cast<U>(__builtin_clz(k * 77)), "%u", i);
    CHECK(got[4 * i + 2] == reversed, "%u", i);
    CHECK(got[4 * i + 3] == k * 77 - 0x7fffffff, "%u", i);
  }
}

__global__ void places_kernel(U* out) {
  asm("mov.u32 %0, %%smid;" : "=r"(out[2 * blockIdx.x]));
  asm("mov.u32 %0, %%nsmid;" : "=r"(out[2 * blockIdx.x + 1]));
}

static void test_places() {
  int sms = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
  Buffer<U> out(400);
  places_kernel<<<200, 1>>>(out.p);
  const auto got = out.get();
  for (U i = 0; i < 200; ++i) {
    CHECK(got[2 * i] == i % sms, "%u: SM %u", i, got[2 * i]);
    CHECK(got[2 * i + 1] == static_cast<U>(sms), "%u: of %u", i, got[2 * i + 1]);
  }
}

int main() {
  test_packed();
  test_half();
  test_mufu();
  test_matrices();
  test_match();
  test_barriers();
  test_grid_sync();
  for (int where = 0; where < 3; ++where) test_atomics(where);
  test_calls();
  test_uniform();
  test_places();
  const cudaError_t e = cudaDeviceSynchronize();
  CHECK(e == cudaSuccess, "%s", cudaGetErrorString(e));
  std::printf("%d failures\n", failures);
  return failures != 0;
}
