// Fills memory with a kernel. Exit code 0 if it is filled, else the CUDA error.
__global__ void fill(int* out) {
  out[threadIdx.x] = static_cast<int>(threadIdx.x) + 1;
}

int main() {
  int* memory = nullptr;
  int last = 0;
  if (const cudaError_t error = cudaMalloc(&memory, 32 * sizeof *memory)) return error;
  fill<<<1, 32>>>(memory);
  if (const cudaError_t error = cudaMemcpy(&last, memory + 31, sizeof last, cudaMemcpyDeviceToHost))
    return error;
  return last == 32 ? 0 : 1;
}
