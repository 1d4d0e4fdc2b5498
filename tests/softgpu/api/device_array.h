// Values on the device, for tests.
#ifndef TESTS_SOFTGPU_API_DEVICE_ARRAY_H_
#define TESTS_SOFTGPU_API_DEVICE_ARRAY_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>
#include <vector>

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    cudaMalloc(reinterpret_cast<void**>(&data_), bytes());
    cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  std::vector<T> read() const {
    std::vector<T> values(count_);
    cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost);
    return values;
  }
  T* get() const { return data_; }
  // The addresses of matrices of `size` elements that lie one behind the other.
  DeviceArray<T*> slots(size_t size) const {
    std::vector<T*> at(size ? count_ / size : 0);
    for (size_t i = 0; i < at.size(); ++i) at[i] = data_ + i * size;
    return DeviceArray<T*>(at);
  }

 private:
  size_t bytes() const { return count_ * sizeof(T); }
  T* data_ = nullptr;
  size_t count_;
};

#endif  // TESTS_SOFTGPU_API_DEVICE_ARRAY_H_
