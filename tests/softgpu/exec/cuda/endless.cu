// A kernel without an end; SOFTGPU_WATCHDOG stops it.
#include <cstdio>
__global__ void endless(volatile int* p) {
  while (!*p) {
  }
}
int main() {
  int* p = nullptr;
  cudaMalloc(&p, 4);
  cudaMemset(p, 0, 4);
  endless<<<1, 32>>>(p);
  std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  return 0;
}
