// What single CUDA calls cost the program that makes them: run it by `pyft run`, with or without
// --direct. Prints one JSON object: name -> list of numbers.
//
//   call_bench                       all calls
//   call_bench rounds N launches M   N times M launches; before each round, and at the end, it
//                                    prints a line and waits for one, so that others can look
//
// The calls are those that compilers and PyTorch make: a launch is push, pop and __cudaLaunchKernel
// of a kernel that does nothing, with 256 bytes of parameters.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "loader/images.h"

namespace {

constexpr uint16_t kParameterBytes = 256;
constexpr int kLaunches = 200, kBursts = 250;  // a burst stays well under the queue of a device
constexpr size_t kLargeBytes = size_t{64} << 20;
constexpr int kRounds = 21;

uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

template <class F>
F* symbol(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (!found) {
    std::fprintf(stderr, "call_bench: no [%s]: run it by pyft run\n", name);
    std::exit(1);
  }
  return reinterpret_cast<F*>(found);
}
#define CUDA(name) (*symbol<decltype(name)>(#name))

void check(int code, const char* what) {
  if (!code) return;
  std::fprintf(stderr, "call_bench: [%s] fails with code [%d]\n", what, code);
  std::exit(1);
}

images::Bytes kernel_image() {
  using namespace images;  // NOLINT
  CubinBuilder elf;
  Bytes text, info, module_info, strings{0}, symbols(sizeof(Elf64_Sym));
  add<uint64_t>(text, 0x000000000000794d);  // EXIT
  add<uint64_t>(text, 0x0003ea0003800000);
  const uint32_t code = elf.section(".text.k", SHT_PROGBITS, text, 8u << 24);
  add_info(info, 0x45, {0, 0, kParameterBytes});
  add_info(info, 0x0a, {0, kParameterBytes << 16 | 0x160});
  elf.section(".nv.info.k", 0x70000000, info);
  add_text(strings, "k");
  const Bytes one = images::symbol(1, STT_FUNC, code, 16);
  symbols.insert(symbols.end(), one.begin(), one.end());
  const uint32_t names = elf.section(".strtab", SHT_STRTAB, strings);
  elf.section(".symtab", SHT_SYMTAB, symbols, 0, names);
  add_info(module_info, 0x2f, {1, 8});
  elf.section(".nv.info", 0x70000000, module_info);
  return fatbin(elf.image());
}

// As the code that nvcc makes for `k<<<1, 32>>>(parameters)`.
class Launcher {
 public:
  Launcher() : image_(kernel_image()) {
    wrapper_ = {0x466243b1, 1, image_.data(), nullptr};
    void** const module = symbol<void**(void*)>("__cudaRegisterFatBinary")(&wrapper_);
    symbol<void(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*)>(
        "__cudaRegisterFunction")(module, &host_, const_cast<char*>("k"), "k", -1, nullptr, nullptr,
                                  nullptr, nullptr, nullptr);
    symbol<void(void**)>("__cudaRegisterFatBinaryEnd")(module);
    check(symbol<cudaError_t(cudaKernel_t*, const void*)>("__cudaGetKernel")(&kernel_, &host_),
          "__cudaGetKernel");
  }
  cudaError_t operator()() {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    push_(dim3(1), dim3(32), 0, nullptr);
    pop_(&grid, &block, &shared, &stream);
    void* arguments[] = {parameters_};
    return launch_(kernel_, grid, block, arguments, shared, stream);
  }

 private:
  struct {
    int magic, version;
    const void* data;
    void* file;
  } wrapper_;
  images::Bytes image_;
  char host_ = 0, parameters_[kParameterBytes] = {};
  cudaKernel_t kernel_ = nullptr;
  unsigned (*push_)(dim3, dim3, size_t, cudaStream_t) =
      symbol<unsigned(dim3, dim3, size_t, cudaStream_t)>("__cudaPushCallConfiguration");
  cudaError_t (*pop_)(dim3*, dim3*, size_t*, void*) =
      symbol<cudaError_t(dim3*, dim3*, size_t*, void*)>("__cudaPopCallConfiguration");
  cudaError_t (*launch_)(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) =
      symbol<cudaError_t(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t)>(
          "__cudaLaunchKernel");
};

using Values = std::vector<double>;

double middle(Values values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Time of each call of `one`, less what reading the clock costs.
template <class F>
void time_each(int calls, double clock_ns, Values* out, F&& one) {
  for (int i = 0; i < calls; ++i) {
    const uint64_t start = now_ns();
    one();
    const double took = static_cast<double>(now_ns() - start) - clock_ns;
    out->push_back(took > 0 ? took : 0);
  }
}

// Nanoseconds per call, of many calls between two looks at the clock.
template <class F>
Values per_call(int rounds, int calls, F&& one) {
  Values values;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t start = now_ns();
    for (int i = 0; i < calls; ++i) one();
    values.push_back(static_cast<double>(now_ns() - start) / calls);
  }
  return values;
}

void print(const char* name, const Values& values, bool last = false) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < values.size(); ++i) std::printf("%s%.1f", i ? ", " : "", values[i]);
  std::printf("]%s\n", last ? "" : ",");
}

// The copies take turns, so that what else uses the memory meets them all.
void large_copies() {
  std::vector<char> host(kLargeBytes, 1), other(kLargeBytes, 2);
  void* device = nullptr;
  check(CUDA(cudaMalloc)(&device, kLargeBytes), "cudaMalloc");
  auto& copy = CUDA(cudaMemcpy);
  const auto wait = [] { check(CUDA(cudaDeviceSynchronize)(), "cudaDeviceSynchronize"); };
  Values plain, to_device, landed, to_host;
  for (int round = 0; round < kRounds; ++round) {
    const auto timed = [&](Values* into, const std::function<void()>& work) {
      const uint64_t start = now_ns();
      work();
      if (round) into->push_back(static_cast<double>(now_ns() - start));
    };
    timed(&plain, [&] { std::memcpy(other.data(), host.data(), kLargeBytes); });
    timed(&to_device, [&] {
      check(copy(device, host.data(), kLargeBytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    });
    wait();
    timed(&landed, [&] {
      check(copy(device, host.data(), kLargeBytes, cudaMemcpyHostToDevice), "cudaMemcpy");
      wait();
    });
    timed(&to_host, [&] {
      check(copy(other.data(), device, kLargeBytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    });
  }
  print("memcpy of 64 MiB", plain);
  print("64 MiB to the GPU", to_device);
  print("64 MiB to the GPU, landed", landed);
  print("64 MiB to the host", to_host, true);
}

// Waits for the device as often as a step of the GPT does, for its number of ring entries.
void rounds_of_launches(int rounds, int launches) {
  constexpr int kStep = 118;
  Launcher launch;
  auto& wait = CUDA(cudaStreamSynchronize);
  for (int round = 0; round <= rounds; ++round) {
    std::puts("round");
    std::fflush(stdout);
    for (int c = std::getchar(); c != '\n' && c != EOF;) c = std::getchar();
    for (int i = 0; i < launches && round < rounds; ++i) {
      check(launch(), "launch");
      if (i % kStep == kStep - 1) check(wait(nullptr), "cudaStreamSynchronize");
    }
    check(wait(nullptr), "cudaStreamSynchronize");
  }
}

void small_calls(double clock_ns) {
  cudaEvent_t event = nullptr;
  check(CUDA(cudaEventCreateWithFlags)(&event, cudaEventDisableTiming), "cudaEventCreate");
  check(CUDA(cudaEventRecord)(event, nullptr), "cudaEventRecord");
  check(CUDA(cudaEventSynchronize)(event), "cudaEventSynchronize");
  auto& query = CUDA(cudaEventQuery);
  auto& get_device = CUDA(cudaGetDevice);
  int device = 0;
  print("cudaEventQuery, complete", per_call(kRounds, 10'000, [&] { query(event); }));
  print("cudaGetDevice", per_call(kRounds, 10'000, [&] { get_device(&device); }));
  auto& info = CUDA(cudaMemGetInfo);
  size_t free_bytes = 0, total = 0;
  Values trips;
  time_each(4000, clock_ns, &trips, [&] { info(&free_bytes, &total); });
  print("cudaMemGetInfo", trips);
}

void all_calls() {
  Launcher launch;
  auto& wait = CUDA(cudaStreamSynchronize);
  for (int i = 0; i < 1000; ++i) check(launch(), "launch");
  check(wait(nullptr), "cudaStreamSynchronize");
  Values clock, enqueued, trips;
  time_each(10'000, 0, &clock, [] {});
  const double clock_ns = middle(clock);
  for (int burst = 0; burst < kBursts; ++burst) {
    time_each(kLaunches, clock_ns, &enqueued, [&] { launch(); });
    check(wait(nullptr), "cudaStreamSynchronize");
  }
  time_each(4000, clock_ns, &trips, [&] {
    launch();
    wait(nullptr);
  });
  std::printf("{");
  print("reading the clock", {clock_ns});
  print("launch, enqueued", enqueued);
  print("launch and cudaStreamSynchronize", trips);
  small_calls(clock_ns);
  large_copies();
  std::printf("}\n");
}

}  // namespace

int main(int count, char** arguments) {
  check(CUDA(cudaFree)(nullptr), "cudaFree");
  if (count == 5)
    rounds_of_launches(std::atoi(arguments[2]), std::atoi(arguments[4]));
  else
    all_calls();
}
