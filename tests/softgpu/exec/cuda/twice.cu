// Launches that are executed twice (softgpu_again.h): both have written the same, memory has it
// once, and what cannot be compared is said.
//
// Not part of the build: test_twice.py compiles it where nvcc is installed and says so where not.
#include "buffer.h"
#include "harness.h"

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <cooperative_groups.h>
#include <dlfcn.h>

#include "softgpu.h"
#include "softgpu_again.h"

namespace {

struct Piece {
  unsigned long long address, bytes;
  std::string contents;
  bool operator==(const Piece& o) const {
    return address == o.address && bytes == o.bytes && contents == o.contents;
  }
};

struct Said {
  int end = -1;
  std::string kernel;
  std::vector<Piece> wrote[2];
  unsigned long long bytes(int again) const {
    unsigned long long sum = 0;
    for (const Piece& one : wrote[again]) sum += one.bytes;
    return sum;
  }
  bool equal() const { return wrote[0] == wrote[1]; }
};

template <class F>
F* found(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
}

Said twice(const std::function<void()>& launch, unsigned places = 0,
           unsigned long long most_bytes = 1 << 30) {
  Said said;
  softgpu_twice asked{};
  asked.places = places;
  asked.most_bytes = most_bytes;
  asked.context = &said;
  asked.wrote = [](void* to, int again, unsigned long long address, unsigned long long bytes) {
    const std::string contents(reinterpret_cast<const char*>(address), bytes);
    static_cast<Said*>(to)->wrote[again].push_back({address, bytes, contents});
  };
  asked.ended = [](void* to, softgpu_twice_end end, const char* kernel, unsigned long long,
                   unsigned long long) {
    static_cast<Said*>(to)->end = end;
    static_cast<Said*>(to)->kernel = kernel;
  };
  static const auto ask = found<decltype(softgpu_execute_twice)>("softgpu_execute_twice");
  ask(&asked);
  launch();
  ask(nullptr);
  const cudaError_t error = cudaDeviceSynchronize();
  CHECK(error == cudaSuccess, "error %d", error);
  return said;
}

void inject(const char* faults) {
  static const auto ask = found<decltype(softgpu_inject)>("softgpu_inject");
  char problem[200] = "";
  ask(faults, problem, sizeof problem);
  CHECK(!*problem, "%s", problem);
}

unsigned long long launches() {
  softgpu_state state;
  found<decltype(softgpu_device_state)>("softgpu_device_state")(0, &state);
  return state.launches;
}

template <class T>
void fill(Buffer<T>* buffer, const std::function<T(size_t)>& f) {
  std::vector<T> all(buffer->n);
  for (size_t i = 0; i < all.size(); ++i) all[i] = f(i);
  buffer->set(all);
}

constexpr int kBlocks = 40, kThreads = 128, kN = kBlocks * kThreads - 5;

__global__ void scale(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * 2 + 1;
}

__global__ void sum(const float* x, float* out, int n) {
  __shared__ float part[kThreads];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  for (int k = kThreads / 2; k; k /= 2) {
    if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
    __syncthreads();
  }
  if (!threadIdx.x) atomicAdd(out, part[0]);
}

// Places that an atomic gives out: which thread has which follows from the order alone.
__global__ void places(int* count, int* out) {
  out[atomicAdd(count, 1)] = blockIdx.x * blockDim.x + threadIdx.x;
}

__global__ void local(const int* index, int* out) {
  int all[16];
  for (int i = 0; i < 16; ++i) all[i] = index[(threadIdx.x + i) % 16] * i;
  out[threadIdx.x] = all[index[threadIdx.x % 16]] + all[threadIdx.x % 16];
}

__global__ void every_third(unsigned char* out) {
  out[3 * (blockIdx.x * blockDim.x + threadIdx.x)] = threadIdx.x;
}

// Each block waits for the one before it.
__global__ void chain(volatile int* done, int* order) {
  if (threadIdx.x) return;
  while (blockIdx.x && !done[blockIdx.x - 1]) {
  }
  order[blockIdx.x] = atomicAdd(order + gridDim.x, 1);
  __threadfence();
  done[blockIdx.x] = 1;
}

__global__ void last_wins(int* out) {
  out[threadIdx.x] = blockIdx.x;
}

__global__ void prints() {
  printf("once\n");
}

__global__ void where(unsigned* out) {
  asm volatile("mov.u32 %0, %%smid;" : "=r"(out[blockIdx.x]));
}

__global__ void when(long long* out) {
  *out = clock64();
}

__global__ void copy(const float* from, float* to) {
  to[threadIdx.x] = from[threadIdx.x];
}

__global__ void together(int* out) {
  out[blockIdx.x] = 1;
  cooperative_groups::this_grid().sync();
  out[gridDim.x + blockIdx.x] = out[(blockIdx.x + 1) % gridDim.x];
}

// ---- the same both times -----------------------------------------------------------------------

void in_place() {
  Buffer<float> x(kN + 100);
  fill<float>(&x, [](size_t i) { return static_cast<float>(i); });
  const auto before = launches();
  const Said said = twice([&] { scale<<<kBlocks, kThreads>>>(x.p, kN); });
  CHECK(said.end == SOFTGPU_TWICE_DONE, "end %d", said.end);
  CHECK(said.kernel.find("scale") != std::string::npos, "%s", said.kernel.c_str());
  CHECK(said.equal() && said.wrote[0].size() == 1, "%zu pieces", said.wrote[0].size());
  CHECK(said.bytes(1) == kN * 4, "%llu bytes", said.bytes(1));
  CHECK(said.wrote[0][0].address == reinterpret_cast<unsigned long long>(x.p), "elsewhere");
  CHECK(launches() == before + 1, "%llu", launches() - before);
  const auto got = x.get();
  for (int i = 0; i < kN + 100; ++i)
    CHECK(got[i] == (i < kN ? 2 * i + 1 : i), "[%d] is %f", i, got[i]);
}

void atomics(bool noise) {
  const int drawn = noise ? SOFTGPU_TWICE_ORDER : SOFTGPU_TWICE_DONE;
  Buffer<float> x(kN), out(1);
  fill<float>(&x, [](size_t i) { return 1.f / static_cast<float>(i + 1); });
  Said said = twice([&] { sum<<<kBlocks, kThreads>>>(x.p, out.p, kN); });
  CHECK(said.end == drawn && said.equal(), "end %d", said.end);
  const float first = out.get()[0];
  CHECK(first > 8.9 && first < 9.2, "%f: not once", first);
  Buffer<int> count(1), given(kBlocks * kThreads);
  said = twice([&] { places<<<kBlocks, kThreads>>>(count.p, given.p); });
  CHECK(said.end == drawn && said.equal(), "end %d", said.end);
  CHECK(count.get()[0] == kBlocks * kThreads, "%d", count.get()[0]);
  Buffer<int> one(kThreads);
  said = twice([&] { last_wins<<<kBlocks, kThreads>>>(one.p); });
  CHECK(said.end == drawn, "end %d", said.end);
}

void private_memory() {
  Buffer<int> index(16), out(kThreads);
  fill<int>(&index, [](size_t i) { return static_cast<int>((i * 7 + 3) % 16); });
  const Said said = twice([&] { local<<<1, kThreads>>>(index.p, out.p); });
  CHECK(said.end == SOFTGPU_TWICE_DONE && said.equal(), "end %d", said.end);
  CHECK(said.bytes(0) == kThreads * 4, "%llu: local memory is none", said.bytes(0));
  for (int i = 0; i < kThreads; ++i) {
    const auto at = [&](int k) { return ((i + k) % 16 * 7 + 3) % 16 * k; };
    const int expected = at((i % 16 * 7 + 3) % 16) + at(i % 16);
    CHECK(out.get()[i] == expected, "[%d] is %d, not %d", i, out.get()[i], expected);
  }
}

void single_bytes() {
  Buffer<unsigned char> out(3 * kThreads);
  fill<unsigned char>(&out, [](size_t) { return 200; });
  const Said said = twice([&] { every_third<<<1, kThreads>>>(out.p); });
  CHECK(said.end == SOFTGPU_TWICE_DONE && said.equal(), "end %d", said.end);
  CHECK(said.wrote[1].size() == kThreads, "%zu pieces", said.wrote[1].size());
  const auto got = out.get();
  for (int i = 0; i < 3 * kThreads; ++i)
    CHECK(got[i] == (i % 3 ? 200 : i / 3), "[%d] is %d", i, got[i]);
}

void blocks_that_wait_for_each_other(bool noise) {
  Buffer<int> done(kBlocks), order(kBlocks + 1);
  // With noise its atomic has its order; what blocks wait for is there all the same.
  const Said said = twice([&] { chain<<<kBlocks, 32>>>(done.p, order.p); });
  CHECK(said.end == (noise ? SOFTGPU_TWICE_ORDER : SOFTGPU_TWICE_DONE), "end %d", said.end);
  CHECK(said.equal(), "order");
  for (int i = 0; i < kBlocks; ++i) CHECK(order.get()[i] == i, "[%d] is %d", i, order.get()[i]);
}

// ---- what cannot be compared -------------------------------------------------------------------

void left_out() {
  Buffer<float> x(kN);
  Buffer<unsigned> sms(kBlocks);
  Buffer<long long> clock(1);
  CHECK(twice([] { prints<<<1, 1>>>(); }).end == SOFTGPU_TWICE_CALLS, "prints");
  CHECK(twice([&] { where<<<kBlocks, 1>>>(sms.p); }, 1).end == SOFTGPU_TWICE_CLOCK, "SMs");
  CHECK(twice([&] { when<<<1, 1>>>(clock.p); }).end == SOFTGPU_TWICE_CLOCK, "clocks");
  float* host = nullptr;
  cudaHostAlloc(&host, kThreads * 4, cudaHostAllocMapped);
  for (int i = 0; i < kThreads; ++i) host[i] = i;
  CHECK(twice([&] { copy<<<1, kThreads>>>(host, x.p); }).end == SOFTGPU_TWICE_HOST, "reads");
  CHECK(x.get()[7] == 7, "%f", x.get()[7]);
  CHECK(twice([&] { copy<<<1, kThreads>>>(x.p, host); }).end == SOFTGPU_TWICE_HOST, "writes");
  const Said large = twice([&] { scale<<<kBlocks, kThreads>>>(x.p, kN); }, 0, 8192);
  CHECK(large.end == SOFTGPU_TWICE_ROOM && large.wrote[0].empty(), "end %d", large.end);
  CHECK(x.get()[7] == 15, "%f", x.get()[7]);
  Buffer<int> out(8);
  int* p = out.p;
  void* arguments[] = {&p};
  const Said cooperative =
      twice([&] { cudaLaunchCooperativeKernel((void*)together, dim3(4), dim3(1), arguments, 0, 0); });
  CHECK(cooperative.end == SOFTGPU_TWICE_WAITS, "end %d", cooperative.end);
  CHECK(out.get()[7] == 1, "%d", out.get()[7]);
}

// ---- faults ------------------------------------------------------------------------------------

void an_upset_hits_the_first_execution() {
  Buffer<float> x(kN);
  inject("upset,op=FFMA,nth=3,lane=4,reg=0,mask=0x40000000");
  const Said said = twice([&] { scale<<<kBlocks, kThreads>>>(x.p, kN); });
  CHECK(said.end == SOFTGPU_TWICE_DONE && !said.equal(), "end %d", said.end);
  const auto got = x.get();
  int wrong = 0;
  for (const float one : got) wrong += one != 1;
  CHECK(wrong == 1, "%d: memory has what the first one has written", wrong);
  const std::string& second = said.wrote[1][0].contents;
  for (int i = 0; i < kN; ++i) {
    float one;
    std::memcpy(&one, second.data() + 4 * i, 4);
    CHECK(one == 1, "[%d] of the second one is %f", i, one);
  }
}

// With noise blocks are elsewhere in any case.
void a_stuck_bit_shows_elsewhere(bool noise) {
  Buffer<float> x(kN);
  const auto run = [&](unsigned places) {
    fill<float>(&x, [](size_t) { return 3; });
    return twice([&] { scale<<<kBlocks, kThreads>>>(x.p, kN); }, places);
  };
  inject("stuck,sm=1,unit=fma,lane=2,bit=22,to=1");  // of an index: nothing is written
  CHECK(noise || run(0).equal(), "both have the stuck bit");
  const Said moved = run(1);
  CHECK(moved.end == SOFTGPU_TWICE_DONE && !moved.equal(), "end %d", moved.end);
  inject("clear");
  CHECK(run(1).equal(), "cleared");
}

}  // namespace

int main(int argc, char**) {
  const bool noise = argc > 1;
  in_place();
  atomics(noise);
  private_memory();
  single_bytes();
  blocks_that_wait_for_each_other(noise);
  left_out();
  an_upset_hits_the_first_execution();
  a_stuck_bit_shows_elsewhere(noise);
  std::printf("%d failures\n", failures);
  return failures != 0;
}
