// The other half of separate.cu.
__device__ int offset = 9;
__constant__ int tens[4] = {10, 20, 30, 40};

__device__ __noinline__ int other(int x) {
  return x * 7 + 3;
}
