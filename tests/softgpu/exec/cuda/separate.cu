// Separately compiled device code (nvcc -rdc=true) with separate_callee.cu: what the linker leaves
// to be relocated are addresses of functions and variables in code and in initial values.
#include <cstdio>

__device__ int factor = 5;
__device__ int last;
__constant__ int small[3] = {1, 2, 3};
extern __device__ int other(int x);
extern __device__ int offset;
extern __constant__ int tens[4];

__device__ __noinline__ int mine(int x) {
  return x * factor + small[x & 1];
}

using Function = int (*)(int);
__device__ Function functions[2] = {mine, other};
__device__ int* place = &last;

__global__ void calls(int* p) {
  const int i = threadIdx.x;
  p[i] = other(i) + mine(i) + offset + tens[i & 3] + functions[i & 1](i);
  if (i == 31) *place = i;
  if (i == 7) printf("seven %d\n", last);
}

__global__ void shares(int* p) {
  __shared__ int s[32];
  s[threadIdx.x] = other(static_cast<int>(threadIdx.x));
  __syncthreads();
  p[threadIdx.x] = s[31 - threadIdx.x] + last;
}

int main() {
  int* p = nullptr;
  int got[32];
  int failures = 0;
  cudaMalloc(&p, sizeof got);
  calls<<<1, 32>>>(p);
  cudaMemcpy(got, p, sizeof got, cudaMemcpyDeviceToHost);
  for (int i = 0; i < 32; ++i) {
    const int m = i * 5 + (i & 1) + 1, o = i * 7 + 3;
    failures += got[i] != o + m + 9 + 10 * (1 + (i & 3)) + (i & 1 ? o : m);
  }
  shares<<<1, 32>>>(p);
  cudaMemcpy(got, p, sizeof got, cudaMemcpyDeviceToHost);
  for (int i = 0; i < 32; ++i) failures += got[i] != (31 - i) * 7 + 3 + 31;
  const cudaError_t e = cudaDeviceSynchronize();
  std::printf("%d failures, %s\n", failures, cudaGetErrorString(e));
  return failures != 0 || e != cudaSuccess;
}
