// Blocks that wait for blocks that come later, and take locks, without a cooperative launch. Prints
// the results; every launch is large enough for several threads.
#include <cstdio>

constexpr int kBlocks = 24;

__device__ float spend(float x) {
  for (int i = 0; i < 400; ++i) x = x * 0.999f + 0.5f;
  return x;
}

__global__ void meet_kernel(unsigned* arrived, float* sum) {
  const float x = spend(static_cast<float>(blockIdx.x));
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1);
    while (*static_cast<volatile unsigned*>(arrived) % kBlocks != 0) {
    }
    atomicAdd(sum, x);
  }
}

__global__ void descending_kernel(volatile int* flags, float* last) {
  const float x = spend(static_cast<float>(blockIdx.x));
  if (threadIdx.x != 0) return;
  while (blockIdx.x + 1 < kBlocks && flags[blockIdx.x + 1] == flags[blockIdx.x]) {
  }
  *last = *last * 0.5f + x;
  __threadfence();
  flags[blockIdx.x] += 1;
}

__global__ void lock_kernel(int* lock, float* value) {
  const float x = spend(static_cast<float>(blockIdx.x));
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    *value = *value * 0.5f + x;
    __threadfence();
    atomicExch(lock, 0);
  }
}

int main() {
  char* memory = nullptr;
  cudaMalloc(&memory, 4096);
  cudaMemset(memory, 0, 4096);
  const auto words = reinterpret_cast<unsigned*>(memory);
  const auto floats = reinterpret_cast<float*>(memory + 1024);
  for (int round = 0; round < 3; ++round) {
    meet_kernel<<<kBlocks, 128>>>(words, floats);
    descending_kernel<<<kBlocks, 128>>>(reinterpret_cast<int*>(memory + 512), floats + 1);
    lock_kernel<<<kBlocks, 128>>>(reinterpret_cast<int*>(words + 1), floats + 2);
  }
  float results[3];
  const cudaError_t error = cudaMemcpy(results, floats, sizeof results, cudaMemcpyDeviceToHost);
  std::printf("%s %a %a %a\n", cudaGetErrorName(error), results[0], results[1], results[2]);
  return error != cudaSuccess;
}
