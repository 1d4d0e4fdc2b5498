// bad <case>: a kernel that does what no kernel should, then the errors that the program sees.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

__device__ int (*no_function)(int);

__device__ __noinline__ int deep(int n, volatile int* out) {
  volatile int room[64];
  room[n & 63] = n;
  return n ? deep(n - 1, out) + room[n & 63] : *out;
}

__global__ void bad(int what, int* memory, long offset) {
  __shared__ int shared[32];
  int local[8] = {};
  if (threadIdx.x != 3) return;
  switch (what) {
    case 0:
      memory[offset] = 1;
      break;
    case 1:
      *reinterpret_cast<int*>(reinterpret_cast<char*>(memory) + offset) = 1;
      break;
    case 2:
      reinterpret_cast<volatile int*>(shared)[offset] = 1;
      break;
    case 3:
      reinterpret_cast<volatile int*>(local)[threadIdx.x * offset] = 1;
      break;
    case 4:
      __trap();
      break;
    case 5:
      if (offset != 7) asm volatile("brkpt;");
      break;
    case 6:
      memory[0] = no_function(3);
      break;
    case 7:
      no_function = reinterpret_cast<int (*)(int)>(offset);
      memory[0] = no_function(3);
      break;
    case 8:
      memory[0] = deep(static_cast<int>(offset), memory);
      break;
    case 9:
      atomicAdd(memory + offset, 1);
      break;
    case 10:
      memory[0] = *reinterpret_cast<volatile int*>(reinterpret_cast<char*>(shared) + offset);
      break;
    case 11:
      while (*static_cast<volatile int*>(memory) == 0) {
      }
      break;
    case 12:
      memory[0] = *static_cast<volatile int*>(nullptr);
      break;
    case 13:  // across the end of the shared window's bytes
      *reinterpret_cast<int4*>(reinterpret_cast<char*>(shared) + offset) = make_int4(1, 2, 3, 4);
      break;
  }
}

// A function of the library that is preloaded.
template <class Call>
Call* driver(const char* name) {
  return reinterpret_cast<Call*>(dlsym(RTLD_DEFAULT, name));
}

void protect(CUdeviceptr at, size_t bytes, CUmemAccess_flags flags) {
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, flags};
  driver<decltype(cuMemSetAccess)>("cuMemSetAccess")(at, bytes, &access, 1);
}

// Zeros that kernels may only read.
int* read_only() {
  constexpr size_t kBytes = 2 << 20;
  CUdeviceptr at = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  driver<decltype(cuMemCreate)>("cuMemCreate")(&handle, kBytes, &prop, 0);
  driver<decltype(cuMemAddressReserve)>("cuMemAddressReserve")(&at, kBytes, 0, 0, 0);
  driver<decltype(cuMemMap)>("cuMemMap")(at, kBytes, 0, handle, 0);
  protect(at, kBytes, CU_MEM_ACCESS_FLAGS_PROT_READ);
  return reinterpret_cast<int*>(at);
}

constexpr int kReadOnly = 100;  // added to the case

int main(int argc, char** argv) {
  const int what = atoi(argv[1]) % kReadOnly;
  const long offset = argc > 2 ? atol(argv[2]) : 0;
  int* memory = nullptr;
  cudaMalloc(&memory, 512);
  cudaMemset(memory, 0, 512);
  const bool protects = atoi(argv[1]) >= kReadOnly;
  if (protects) memory = read_only();
  bad<<<2, 32>>>(what, memory, offset);
  printf("%s ", cudaGetErrorName(cudaGetLastError()));
  printf("%s ", cudaGetErrorName(cudaDeviceSynchronize()));
  void* more = nullptr;
  printf("%s ", cudaGetErrorName(cudaMalloc(&more, 16)));
  printf("%s\n", cudaGetErrorName(cudaGetLastError()));
  return protects && memory[0];  // the soft GPU's memory is the program's
}
