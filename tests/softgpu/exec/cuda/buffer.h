// Memory of the device with elements of one type.
#ifndef PYFT_TESTS_SOFTGPU_EXEC_CUDA_BUFFER_H_
#define PYFT_TESTS_SOFTGPU_EXEC_CUDA_BUFFER_H_

#include "harness.h"

#include <cstddef>
#include <vector>

template <class T>
struct Buffer {
  T* p = nullptr;
  size_t n;
  explicit Buffer(size_t count) : n(count) {
    cudaMalloc(&p, n * sizeof(T));
    cudaMemset(p, 0, n * sizeof(T));
  }
  explicit Buffer(const std::vector<T>& v) : Buffer(v.size()) { set(v); }
  ~Buffer() { cudaFree(p); }
  void set(const std::vector<T>& v) {
    cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice);
  }
  std::vector<T> get() const {
    std::vector<T> v(n);
    const cudaError_t e = cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost);
    CHECK(e == cudaSuccess, "%s", cudaGetErrorString(e));
    return v;
  }
};

#endif  // PYFT_TESTS_SOFTGPU_EXEC_CUDA_BUFFER_H_
