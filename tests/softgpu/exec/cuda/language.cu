// What CUDA C++ programs use of the language: virtual functions, recursion, lambdas, locks between
// lanes, messages between blocks, cooperative groups, PTX. Each compared with plain C++.
//
// Not part of the build: test_cuda.py compiles it where nvcc is installed and says so where not.
#include "harness.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;
using U = uint32_t;
using U64 = unsigned long long;

static U64 next_random() {
  return next_random64();
}

// Pinned memory, which both sides use.
template <class T>
struct Shared {
  T* p = nullptr;
  explicit Shared(size_t n) {
    cudaMallocHost(&p, n * sizeof(T));
    std::memset(static_cast<void*>(p), 0, n * sizeof(T));
  }
  ~Shared() { cudaFreeHost(p); }
  T& operator[](size_t i) { return p[i]; }
};

static void finish(const char* what) {
  const cudaError_t e = cudaDeviceSynchronize();
  CHECK(e == cudaSuccess, "%s: %s", what, cudaGetErrorString(e));
}

// ---- integers ----------------------------------------------------------------------------------

struct Divided {
  int64_t q, r;
  U64 uq, ur;
  U64 high;
  int64_t shigh;
};

__global__ void divide_kernel(const int64_t* in, Divided* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int64_t a = in[2 * i], b = in[2 * i + 1];
  out[i] = {a / b,
            a % b,
            static_cast<U64>(a) / static_cast<U64>(b),
            static_cast<U64>(a) % static_cast<U64>(b),
            __umul64hi(a, b),
            __mul64hi(a, b)};
}

static void test_division() {
  constexpr int n = 3000;
  Shared<int64_t> in(2 * n);
  Shared<Divided> out(n);
  for (int i = 0; i < n; ++i) {
    in[2 * i] = static_cast<int64_t>(next_random() >> next_random() % 64);
    in[2 * i + 1] = static_cast<int64_t>(next_random() >> next_random() % 64) | 1;
    if (i % 3 == 0) in[2 * i] = -in[2 * i];
    if (i % 5 == 0) in[2 * i + 1] = -in[2 * i + 1];
    if (in[2 * i] == INT64_MIN) in[2 * i] = 5;
  }
  divide_kernel<<<(n + 127) / 128, 128>>>(in.p, out.p, n);
  finish("division");
  for (int i = 0; i < n; ++i) {
    const int64_t a = in[2 * i], b = in[2 * i + 1];
    const U64 ua = static_cast<U64>(a), ub = static_cast<U64>(b);
    const Divided& d = out[i];
    CHECK(d.q == a / b && d.r == a % b, "%lld / %lld", static_cast<long long>(a),
          static_cast<long long>(b));
    CHECK(d.uq == ua / ub && d.ur == ua % ub, "%llu / %llu", ua, ub);
    CHECK(d.high == static_cast<U64>(static_cast<unsigned __int128>(ua) * ub >> 64), "umul64hi");
    CHECK(d.shigh == static_cast<int64_t>(static_cast<__int128>(a) * b >> 64), "mul64hi");
  }
}

__global__ void ptx_kernel(const U* in, U* out) {
  const U a = in[threadIdx.x], b = in[threadIdx.x + 1], c = in[threadIdx.x + 2];
  U* r = out + threadIdx.x * 12;
  asm("prmt.b32 %0, %1, %2, 0x5216;" : "=r"(r[0]) : "r"(a), "r"(b));
  asm("bfi.b32 %0, %1, %2, 5, 9;" : "=r"(r[1]) : "r"(a), "r"(b));
  asm("bfe.s32 %0, %1, 7, 11;" : "=r"(r[2]) : "r"(a));
  asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(r[3]) : "r"(a), "r"(b), "r"(c));
  asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(r[4]) : "r"(a), "r"(b), "r"(c));
  asm("dp2a.lo.u32.s32 %0, %1, %2, %3;" : "=r"(r[5]) : "r"(a), "r"(b), "r"(c));
  asm("vadd4.u32.u32.u32.sat %0, %1, %2, %3;" : "=r"(r[6]) : "r"(a), "r"(b), "r"(c));
  asm("sad.s32 %0, %1, %2, %3;" : "=r"(r[7]) : "r"(a), "r"(b), "r"(c));
  asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(r[8]) : "r"(a), "r"(b), "r"(c));
  asm("mad.hi.s32 %0, %1, %2, %3;" : "=r"(r[9]) : "r"(a), "r"(b), "r"(c));
  asm("{ .reg .u32 t; add.cc.u32 t, %1, %2; addc.u32 %0, %3, 0; }"
      : "=r"(r[10])
      : "r"(a), "r"(b), "r"(c));
  asm("bfind.shiftamt.s32 %0, %1;" : "=r"(r[11]) : "r"(a));
}

static U byte_of(U v, int i) {
  return v >> 8 * i & 255;
}

static U bfind_shift(U v) {
  if (static_cast<int32_t>(v) < 0) v = ~v;
  return v ? static_cast<U>(__builtin_clz(v)) : ~0u;
}

static void test_ptx() {
  constexpr int n = 256;
  Shared<U> in(n + 2), out(12 * n);
  for (int i = 0; i < n + 2; ++i) in[i] = static_cast<U>(next_random() >> 20);
  ptx_kernel<<<1, n>>>(in.p, out.p);
  finish("ptx");
  for (int i = 0; i < n; ++i) {
    const U a = in[i], b = in[i + 1], c = in[i + 2];
    const U* r = &out[12 * i];
    CHECK(r[0] == (byte_of(b, 1) << 24 | byte_of(a, 2) << 16 | byte_of(a, 1) << 8 | byte_of(b, 2)),
          "prmt");
    CHECK(r[1] == ((b & ~(511u << 5)) | (a & 511) << 5), "bfi");
    CHECK(r[2] == static_cast<U>(static_cast<int32_t>(a << 14) >> 21), "bfe");
    CHECK(r[3] == (a ^ b ^ c), "lop3");
    U dot = c, pairs = c, saturated = 0;
    for (int k = 0; k < 4; ++k) {
      dot += static_cast<U>(static_cast<int8_t>(byte_of(a, k)) * static_cast<int>(byte_of(b, k)));
      const U sum = byte_of(a, k) + byte_of(b, k);
      saturated |= (sum > 255 ? 255 : sum) << 8 * k;
    }
    for (int k = 0; k < 2; ++k) {
      pairs += (a >> 16 * k & 0xffff) * static_cast<U>(static_cast<int8_t>(byte_of(b, k)));
    }
    CHECK(r[4] == dot, "dp4a");
    CHECK(r[5] == pairs, "dp2a");
    CHECK(r[6] == saturated, "vadd4: %08x instead of %08x", r[6], saturated);
    const auto wide = static_cast<int64_t>(static_cast<int32_t>(a)) - static_cast<int32_t>(b);
    CHECK(r[7] == static_cast<U>(wide < 0 ? -wide : wide) + c, "sad");
    CHECK(r[8] == (c & 31 ? b << (c & 31) | a >> (32 - (c & 31)) : b), "shf");
    const auto product = static_cast<int64_t>(static_cast<int32_t>(a)) * static_cast<int32_t>(b);
    CHECK(r[9] == static_cast<U>(product >> 32) + c, "mad.hi");
    CHECK(r[10] == c + (a + b < a), "addc");
    CHECK(r[11] == bfind_shift(a), "bfind");
  }
}

// ---- calls -------------------------------------------------------------------------------------

struct Shape {
  __device__ virtual int area(int x) const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  __device__ int area(int x) const override { return x * x; }
};
struct Strip : Shape {
  int width;
  __device__ explicit Strip(int w) : width(w) {}
  __device__ int area(int x) const override { return x * width; }
};

__device__ int twice(int x) {
  return 2 * x;
}
__device__ int negated(int x) {
  return -x;
}
__device__ int (*const table[])(int) = {twice, negated};

// A frame that no register file holds.
__device__ __noinline__ int deep(int n, const int* seed) {
  int frame[24];
  for (int i = 0; i < 24; ++i) frame[i] = seed[i % 4] + n * i;
  if (n == 0) return frame[threadIdx.x % 24];
  return deep(n - 1, frame + n % 20) + frame[(threadIdx.x + n) % 24];
}

static int deep_on_host(int n, const int* seed, int thread) {
  int frame[24];
  for (int i = 0; i < 24; ++i) frame[i] = seed[i % 4] + n * i;
  if (n == 0) return frame[thread % 24];
  return deep_on_host(n - 1, frame + n % 20, thread) + frame[(thread + n) % 24];
}

template <class F>
__global__ void apply_kernel(int* out, F f) {
  out[threadIdx.x] = f(static_cast<int>(threadIdx.x));
}

__global__ void calls_kernel(int* out, int depth) {
  const int i = static_cast<int>(threadIdx.x);
  Square square;
  Strip strip(7);
  const Shape* shape = i % 3 ? static_cast<const Shape*>(&square) : &strip;
  const int seed[4] = {i, 1, 2, 3};
  out[3 * i] = shape->area(i);
  out[3 * i + 1] = table[i % 2](i);
  out[3 * i + 2] = deep(i % 2 ? depth : depth / 2, seed);
}

static void test_calls() {
  constexpr int n = 64, depth = 100;
  Shared<int> out(3 * n);
  CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 32768) == cudaSuccess, "stack limit");
  calls_kernel<<<1, n>>>(out.p, depth);
  finish("calls");
  for (int i = 0; i < n; ++i) {
    const int seed[4] = {i, 1, 2, 3};
    CHECK(out[3 * i] == (i % 3 ? i * i : 7 * i), "virtual call of %d: %d", i, out[3 * i]);
    CHECK(out[3 * i + 1] == (i % 2 ? -i : 2 * i), "table");
    CHECK(out[3 * i + 2] == deep_on_host(i % 2 ? depth : depth / 2, seed, i), "recursion");
  }
  const int offset = 5;
  apply_kernel<<<1, n>>>(out.p, [offset] __device__(int i) { return i * 3 + offset; });
  finish("lambda");
  for (int i = 0; i < n; ++i) CHECK(out[i] == i * 3 + offset, "lambda");
}

// ---- lanes, warps, blocks ----------------------------------------------------------------------

// Independent thread scheduling: a lane that holds the lock goes on while its neighbours spin.
__global__ void lock_kernel(int* lock, volatile int* counter) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *counter = *counter + 1;
  __threadfence();
  atomicExch(lock, 0);
}

// Here the compiler makes the holder wait for its neighbours, which spin.
__global__ void barred_lock_kernel(int* lock, volatile int* counter) {
  while (atomicCAS(lock, 0, 1) != 0) {
    if (threadIdx.x % 2) __nanosleep(20);
  }
  *counter = *counter + 1;
  __threadfence();
  atomicExch(lock, 0);
}

// Lane pairs hand a word to and fro.
__global__ void pairs_kernel(int* out) {
  __shared__ volatile int ball[32];
  const int me = static_cast<int>(threadIdx.x), other = me ^ 1;
  ball[me] = 0;
  __syncwarp();
  for (int round = 1; round <= 5; ++round) {
    if (me % 2 == 0) {
      ball[other] = round;
      while (ball[me] != round) {
      }
    } else {
      while (ball[me] != round) {
      }
      ball[other] = round;
    }
  }
  out[me] = ball[me];
}

__global__ void partial_kernel(U* out) {
  const U lane = threadIdx.x;
  U* r = out + lane * 5;
  const U mask = lane < 20 ? 0x000fffffu : 0xfff00000u;
  if (lane < 20) {
    r[0] = __shfl_down_sync(mask, lane * 3, 4);
    r[1] = __ballot_sync(mask, lane % 3 == 0);
  } else {
    r[0] = __shfl_xor_sync(mask, lane * 5, 1);
    r[1] = __any_sync(mask, lane == 31) + 2 * __all_sync(mask, lane > 19);
  }
  __syncwarp();
  r[2] = __match_any_sync(0xffffffffu, lane / 5);
  int same = 0;
  r[3] = __match_all_sync(0xffffffffu, lane / 32, &same) + static_cast<U>(same);
  if (lane % 4 == 1) r[4] = __activemask();
}

static void test_lanes() {
  Shared<int> lock(1), counter(1), balls(32);
  lock_kernel<<<1, 64>>>(lock.p, counter.p);
  finish("lock");
  CHECK(counter[0] == 64, "lock: %d", counter[0]);
  barred_lock_kernel<<<1, 32>>>(lock.p, counter.p);
  finish("barred lock");
  CHECK(counter[0] == 96, "barred lock: %d", counter[0]);
  pairs_kernel<<<1, 32>>>(balls.p);
  finish("pairs");
  for (int i = 0; i < 32; ++i) CHECK(balls[i] == 5, "pairs");
  Shared<U> out(5 * 32);
  partial_kernel<<<1, 32>>>(out.p);
  finish("partial masks");
  for (U lane = 0; lane < 32; ++lane) {
    const U* r = &out[5 * lane];
    if (lane < 16) CHECK(r[0] == (lane + 4) * 3, "shfl_down %u", lane);
    if (lane < 20) CHECK(r[1] == 0x49249u, "ballot %x", r[1]);
    if (lane >= 20) CHECK(r[0] == (lane ^ 1) * 5 && r[1] == 3, "shfl_xor %u", lane);
    const U group = lane / 5;
    const U want = (group == 6 ? 3u : 31u) << 5 * group;
    CHECK(r[2] == want, "match_any %x instead of %x", r[2], want);
    CHECK(r[3] == 0u, "match_all %x", r[3]);  // all ones plus one
    if (lane % 4 == 1) CHECK(r[4] == 0x22222222u, "activemask %x", r[4]);
  }
}

__global__ void groups_kernel(const int* in, int* out) {
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  const int i = static_cast<int>(block.thread_rank());
  int* r = out + 5 * i;
  r[0] = cg::reduce(tile, in[i], cg::plus<int>());
  r[1] = cg::inclusive_scan(tile, in[i], cg::plus<int>());
  r[2] = tile.shfl_up(in[i], 3);
  r[3] = r[4] = 0;
  if (in[i] % 3 == 0) {
    const cg::coalesced_group active = cg::coalesced_threads();
    r[3] = static_cast<int>(active.size());
    r[4] = cg::reduce(active, 1, cg::plus<int>());
  }
}

static void test_groups() {
  constexpr int n = 128;
  Shared<int> in(n), out(5 * n);
  for (int i = 0; i < n; ++i) in[i] = static_cast<int>(next_random() % 1000);
  groups_kernel<<<1, n>>>(in.p, out.p);
  finish("groups");
  for (int i = 0; i < n; ++i) {
    int sum = 0, prefix = 0, active = 0;
    for (int k = i / 8 * 8; k < i / 8 * 8 + 8; ++k) sum += in[k];
    for (int k = i / 8 * 8; k <= i; ++k) prefix += in[k];
    for (int k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) active += in[k] % 3 == 0;
    const int* r = &out[5 * i];
    CHECK(r[0] == sum && r[1] == prefix, "tile of %d", i);
    CHECK(r[2] == in[i % 8 < 3 ? i : i - 3], "shfl_up of %d", i);
    if (in[i] % 3 == 0) CHECK(r[3] == active && r[4] == active, "coalesced %d", r[3]);
  }
}

// Each block waits for the one before it: blocks run in order, or all of them at once.
__global__ void chain_kernel(volatile int* flags, int* values) {
  const int b = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) {
    if (b) {
      while (!flags[b - 1]) {
      }
    }
    __threadfence();
    values[b] = b ? values[b - 1] + b : 1;
    __threadfence();
    flags[b] = 1;
  }
}

__global__ void grid_kernel(int* values, int* sums, int rounds) {
  const cg::grid_group grid = cg::this_grid();
  const int i = static_cast<int>(grid.thread_rank()), n = static_cast<int>(grid.num_threads());
  for (int round = 0; round < rounds; ++round) {
    values[i] = i * round;
    grid.sync();
    sums[i] = values[(i + 1) % n] + values[n - 1 - i];
    grid.sync();
  }
}

static void test_blocks() {
  Shared<int> flags(64), values(256), sums(256);
  chain_kernel<<<64, 32>>>(flags.p, values.p);
  finish("chain");
  CHECK(values[63] == 1 + 63 * 64 / 2, "chain: %d", values[63]);
  int rounds = 4;
  void* arguments[] = {&values.p, &sums.p, &rounds};
  const cudaError_t e = cudaLaunchCooperativeKernel(reinterpret_cast<void*>(grid_kernel), dim3(4),
                                                    dim3(64), arguments, 0, nullptr);
  CHECK(e == cudaSuccess, "cooperative launch: %s", cudaGetErrorString(e));
  finish("grid");
  for (int i = 0; i < 256; ++i) CHECK(sums[i] == 3 * ((i + 1) % 256 + 255 - i), "grid.sync %d", i);
}

__global__ void wide_grid_kernel(U* seen) {
  const U block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  atomicAdd(&seen[block % 7], 1u);
}

static void test_grids() {
  Shared<U> seen(7);
  wide_grid_kernel<<<dim3(1, 65535, 1), 1>>>(seen.p);
  wide_grid_kernel<<<dim3(1, 1, 65535), dim3(1, 2, 1)>>>(seen.p);
  wide_grid_kernel<<<dim3(70000, 1, 1), 1>>>(seen.p);
  finish("grids");
  U total = 0;
  for (int i = 0; i < 7; ++i) total += seen[i];
  CHECK(total == 65535u * 3 + 70000, "blocks: %u", total);
  wide_grid_kernel<<<dim3(1, 65536, 1), 1>>>(seen.p);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration, "grid of 65536 in y");
}

// ---- memory ------------------------------------------------------------------------------------

struct __attribute__((packed)) Odd {
  uint8_t tag;
  uint16_t half;
  U word;
  double number;
};

__constant__ U constants[16000];  // nearly all of the 64 KiB

__global__ void memory_kernel(const Odd* in, Odd* out, uint4* wide, U* sums, int n) {
  const int i = static_cast<int>(threadIdx.x);
  Odd copy = in[i];
  copy.word += constants[(i * 977) % 16000];
  memcpy(out + i, &copy, sizeof copy);
  uint8_t text[40];
  memset(text, i, sizeof text);
  text[i % 40] = 1;
  memcpy(text + 3, text + 1, 5);
  U sum = 0;
  for (uint8_t c : text) sum = sum * 31 + c;
  sums[i] = sum;
  uint4 v = wide[n - 1 - i];
  v.w = v.x + v.y + v.z;
  __syncthreads();
  wide[n - 1 - i] = v;
}

static void test_memory() {
  constexpr int n = 96;
  std::vector<U> table(16000);
  for (U& v : table) v = static_cast<U>(next_random());
  CHECK(cudaMemcpyToSymbol(constants, table.data(), 64000) == cudaSuccess, "constants");
  Shared<Odd> in(n), out(n);
  Shared<uint4> wide(n);
  Shared<U> sums(n);
  for (int i = 0; i < n; ++i) {
    in[i] = {static_cast<uint8_t>(i), static_cast<uint16_t>(i * 77), static_cast<U>(i), i * 0.5};
    wide[i] = make_uint4(i, 2 * i, 3 * i, 0);
  }
  memory_kernel<<<1, n>>>(in.p, out.p, wide.p, sums.p, n);
  finish("memory");
  for (int i = 0; i < n; ++i) {
    CHECK(out[i].tag == i && out[i].half == i * 77 && out[i].number == i * 0.5, "copy of %d", i);
    const U word = out[i].word;
    CHECK(word == i + table[(i * 977) % 16000], "constant of %d", i);
    uint8_t text[40];
    std::memset(text, i, sizeof text);
    text[i % 40] = 1;
    uint8_t moved[5];
    std::memcpy(moved, text + 1, 5);
    std::memcpy(text + 3, moved, 5);
    U sum = 0;
    for (uint8_t c : text) sum = sum * 31 + c;
    CHECK(sums[i] == sum || i % 40 < 6, "bytes of %d", i);  // overlapping copies differ there
    CHECK(wide[i].w == static_cast<U>(6 * i), "wide %d", i);
  }
}

// Lists in memory of the device's own heap, which live on until another kernel frees them.
struct Node {
  int value;
  Node* next;
};

__global__ void build_kernel(Node** heads, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  heads[i] = nullptr;
  for (int k = 0; k < n; ++k) {
    auto* node = static_cast<Node*>(malloc(sizeof(Node) + i % 50));
    if (!node) return;
    *node = {i * k, heads[i]};
    heads[i] = node;
  }
}

__global__ void consume_kernel(Node** heads, int* sums) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (Node* node = heads[i]; node;) {
    sums[i] += node->value;
    Node* next = node->next;
    free(node);
    node = next;
  }
}

__global__ void exhaust_kernel(int* taken) {
  while (malloc(1 << 20)) ++*taken;
}

static void test_heap() {
  constexpr int n = 128;
  Shared<Node*> heads(n);
  Shared<int> sums(n), taken(1);
  for (int round = 0; round < 2; ++round) {  // the second one uses what the first has freed
    build_kernel<<<4, 32>>>(heads.p, 10);
    consume_kernel<<<4, 32>>>(heads.p, sums.p);
    finish("heap");
  }
  for (int i = 0; i < n; ++i) CHECK(sums[i] == 2 * 45 * i, "list of %d: %d", i, sums[i]);
  exhaust_kernel<<<1, 1>>>(taken.p);
  finish("exhausted heap");
  CHECK(taken[0] == 7, "MiB in a heap of 8 MiB: %d", taken[0]);
}

__device__ float atomic_max(float* p, float v) {
  int old = __float_as_int(*p);
  while (v > __int_as_float(old)) {
    const int seen = atomicCAS(reinterpret_cast<int*>(p), old, __float_as_int(v));
    if (seen == old) break;
    old = seen;
  }
  return __int_as_float(old);
}

__global__ void __launch_bounds__(128, 2) atomics_kernel(float* most, double* sum, U* ring, U* bits) {
  const U i = blockIdx.x * blockDim.x + threadIdx.x;
  atomic_max(most, static_cast<float>((i * 7919u) % 10007u));
  atomicAdd(sum, 0.25 * i);
  atomicInc(ring, 9);
  atomicOr(bits, 1u << i % 32);
  atomicXor(bits + 1, i);
  if (i % 2) atomicAnd(bits + 2, ~(1u << i % 32));
}

static void test_atomics() {
  Shared<float> most(1);
  Shared<double> sum(1);
  Shared<U> ring(1), bits(3);
  bits[2] = ~0u;
  atomics_kernel<<<8, 128>>>(most.p, sum.p, ring.p, bits.p);
  finish("atomics");
  float want = 0;
  U all = 0;
  for (U i = 0; i < 1024; ++i) {
    const auto v = static_cast<float>((i * 7919u) % 10007u);
    want = v > want ? v : want;
    all ^= i;
  }
  CHECK(most[0] == want, "max %f", most[0]);
  CHECK(sum[0] == 0.25 * 1023 * 512, "sum %f", sum[0]);
  CHECK(ring[0] == 1024 % 10, "ring %u", ring[0]);
  CHECK(bits[0] == ~0u && bits[1] == all && bits[2] == 0x55555555u, "bits");
}

// ---- clocks, output ----------------------------------------------------------------------------

__global__ void clock_kernel(long long* out) {
  const long long before = clock64();
  U64 early, late;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(early));
  __nanosleep(100);
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(late));
  out[0] = clock64() - before;
  out[1] = static_cast<long long>(late - early);
}

__global__ void print_kernel(const char* text) {
  printf("%s|%5d|%-4u|%lld|%.3e|%c|%%|%#x|%*d\n", text, -12, 7u, -(1ll << 40), 12345.678, 'q', 255, 6,
         9);
  printf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\n",
         1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
         27, 28, 29, 30, 31);
}

static void test_output() {
  Shared<long long> out(2);
  clock_kernel<<<1, 1>>>(out.p);
  finish("clocks");
  CHECK(out[0] > 0 && out[1] >= 0, "clocks %lld %lld", out[0], out[1]);
  Shared<char> text(16);
  std::strcpy(text.p, "device text");
  print_kernel<<<1, 1>>>(text.p);
  finish("print");
}

int main() {
  test_division();
  test_ptx();
  test_calls();
  test_lanes();
  test_groups();
  test_blocks();
  test_grids();
  test_memory();
  test_heap();
  test_atomics();
  test_output();
  std::printf("%d failures\n", failures);
  return failures ? 1 : 0;
}
