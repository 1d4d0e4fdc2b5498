// Warp-instructions per second of the soft GPU's executor, with spread.
//
//   exec_bench [name] [rounds]
//
// The kernels are exec_bench_kernels.cu, stored as SASS words so that no compiler is needed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/address_space.h"
#include "core/kernel.h"
#include "exec_bench_kernels.inc"

namespace {

using namespace softgpu;  // NOLINT: a program of its own

constexpr uint32_t kElements = 1 << 20;

struct Bench {
  const char* name;
  std::span<const uint64_t[2]> words;
  uint32_t registers, shared_bytes;
  Dim3 grid, block;
  std::vector<uint64_t> params;  // each 8 bytes, in order
};

struct Memory {
  std::vector<float> a, b, c;
  AddressSpace space;
  Memory() : a(kElements + 64), b(kElements + 64), c(kElements + 64) {
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<float>(i % 1000) * 0.01f - 5.0f;
      b[i] = static_cast<float>(i % 777);
    }
    for (std::vector<float>* v : {&a, &b, &c}) space.add(address(*v), v->size() * 4);
  }
  static uint64_t address(const std::vector<float>& v) {
    return (reinterpret_cast<uint64_t>(v.data()) + 63) & ~uint64_t{63};
  }
};

double run_once(const Launch& launch, AddressSpace& space, uint64_t* instructions) {
  LaunchStats stats;
  const auto begin = std::chrono::steady_clock::now();
  const Fault fault = run_kernel(launch, {}, space, &stats);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (fault) {
    std::fprintf(stderr, "%s\n", fault.message.c_str());
    std::exit(1);
  }
  *instructions = stats.warp_instructions;
  return took.count();
}

void run(const Bench& bench, int rounds, Memory* memory) {
  Kernel kernel;
  kernel.name = bench.name;
  kernel.text = {reinterpret_cast<const uint8_t*>(bench.words.data()), bench.words.size_bytes()};
  kernel.register_count = bench.registers;
  kernel.static_shared_bytes = bench.shared_bytes;
  Launch launch;
  launch.kernel = &kernel;
  launch.grid = bench.grid;
  launch.block = bench.block;
  launch.params.resize(bench.params.size() * 8);
  kernel.param_bytes = static_cast<uint32_t>(launch.params.size());
  std::memcpy(launch.params.data(), bench.params.data(), launch.params.size());

  uint64_t instructions = 0;
  run_once(launch, memory->space, &instructions);
  std::vector<double> rates;
  for (int i = 0; i < rounds; ++i) {
    const double seconds = run_once(launch, memory->space, &instructions);
    rates.push_back(static_cast<double>(instructions) / seconds / 1e6);
  }
  std::sort(rates.begin(), rates.end());
  std::printf("%-12s %10llu warp-instructions  %7.1f M/s  (%.1f .. %.1f in %d rounds)\n",
              bench.name, static_cast<unsigned long long>(instructions), rates[rates.size() / 2],
              rates.front(), rates.back(), rounds);
}

// A 32-bit value in the low half and another in the high half of a parameter word.
constexpr uint64_t two(uint32_t low, uint32_t high) {
  return low | uint64_t{high} << 32;
}

std::vector<Bench> benches(const Memory& memory) {
  const uint64_t a = Memory::address(memory.a), b = Memory::address(memory.b),
                 c = Memory::address(memory.c);
  const uint32_t n = kElements;
  return {
      {"ffma_loop", k_ffma_loop, 22, 0, {64, 1, 1}, {256, 1, 1}, {c, 100}},
      {"add_vec4", k_add_vec4, 18, 0, {n / 1024, 1, 1}, {256, 1, 1}, {a, b, c, n / 4}},
      {"add_stride", k_add_stride, 14, 0, {64, 1, 1}, {256, 1, 1}, {a, b, c, n}},
      {"gelu", k_gelu, 12, 0, {n / 256, 1, 1}, {256, 1, 1}, {a, c, n}},
      {"block_sum", k_block_sum, 10, 1024, {512, 1, 1}, {256, 1, 1}, {a, c, n}},
      {"matmul", k_matmul, 64, 2048, {16, 16, 1}, {16, 16, 1}, {a, b, c, 256}},
      {"index_math", k_index_math, 12, 0, {n / 256, 1, 1}, {256, 1, 1}, {a, c, two(n, 768), 13}},
  };
}

}  // namespace

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  Memory memory;
  for (const Bench& bench : benches(memory)) {
    if (only.empty() || only == bench.name) run(bench, rounds, &memory);
  }
}
