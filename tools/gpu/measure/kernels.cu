// Kernels of the measurements, compiled to a cubin of their own.
#include <cassert>
#include <cstdint>

__device__ uint64_t counter = 7;

__device__ __noinline__ void somewhere(uint64_t* out) { *out = counter; }

extern "C" {

__global__ void sum_bytes(const unsigned char* bytes, uint64_t count, unsigned long long* out) {
  unsigned long long sum = 0;
  for (uint64_t i = threadIdx.x; i < count; i += blockDim.x) sum += bytes[i];
  atomicAdd(out, sum);
}

__global__ void code_address(uint64_t* out) {
  *out = reinterpret_cast<uint64_t>(&somewhere);
}

__global__ void spin_for_ever() {
  volatile uint64_t* const value = &counter;
  while (*value == 7) continue;
}

__global__ void do_trap() { __trap(); }
__global__ void do_illegal() { *reinterpret_cast<volatile uint64_t*>(0x10) = 1; }
__global__ void do_assert() { assert(counter != 7); }
}
