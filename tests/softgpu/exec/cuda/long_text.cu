// Prints what is longer than a line.
#include <cstdio>

__global__ void print_kernel(const char* text) {
  printf("%s|%700d\n", text, 7);
}

int main() {
  char* text = nullptr;
  cudaMalloc(&text, 1001);
  cudaMemset(text, 0, 1001);
  cudaMemset(text, 'x', 1000);
  print_kernel<<<1, 1>>>(text);
  return cudaDeviceSynchronize() != cudaSuccess;
}
