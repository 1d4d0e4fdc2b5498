// Uses the GPU in a destructor that runs after everything else, when CUDA has ended: its calls give
// an error, whichever it is, and nothing else happens.
struct Late {
  int* memory = nullptr;
  ~Late() {
    for (int i = 0; i < 100; ++i) cudaMemsetAsync(memory, i, 32);
    cudaDeviceSynchronize();
    cudaFree(memory);
  }
};

Late late;  // made before the first call: ends after what that call has registered

int main() {
  return cudaMalloc(&late.memory, 32);
}
