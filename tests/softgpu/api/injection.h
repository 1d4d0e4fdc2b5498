// Faults on request, launches that they hit, and memory, for tests.
#ifndef TESTS_SOFTGPU_API_INJECTION_H_
#define TESTS_SOFTGPU_API_INJECTION_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "device/device.h"
#include "device/fault_injection.h"
#include "softgpu.h"
#include "work/handles.h"

// A launch on the device's legacy stream, or another one: the kernel is a function of the test.
inline void launch(int device, const char* kernel, std::vector<void*> params,
                   std::function<void()> body, cudaStream_t stream = nullptr) {
  cudaSetDevice(device);
  softgpu::Work work;
  work.run = [=, ticket = softgpu::LaunchTicket()]() mutable {
    const auto* bytes = reinterpret_cast<const uint8_t*>(params.data());
    return softgpu::run_launch(device, kernel, {bytes, 8 * params.size()}, &ticket,
                               [&]() -> softgpu::Fault {
                                 body();
                                 return {};
                               });
  };
  softgpu::device(device).scheduler().submit(softgpu::find_stream(stream), std::move(work));
}

inline void launch(int device) {
  launch(device, "empty", {}, [] {});
}

// Empty, or what is wrong with the request.
inline std::string inject(const std::string& text) {
  char problem[300] = "";
  const int bad = softgpu_inject(text.c_str(), problem, sizeof problem);
  CHECK_EQ(bad, problem[0] ? 1 : 0);
  return problem;
}

// What is left of the requests is told, and forgotten.
inline std::string missed() {
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  char text[2000] = "";
  softgpu_missed_faults(text, sizeof text);
  CHECK_EQ(inject("clear"), std::string());
  return text;
}

template <class T>
T* zeros(size_t count) {
  void* out = nullptr;
  CHECK_EQ(cudaMalloc(&out, count * sizeof(T)), cudaSuccess);
  CHECK_EQ(cudaMemset(out, 0, count * sizeof(T)), cudaSuccess);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return static_cast<T*>(out);
}

#endif  // TESTS_SOFTGPU_API_INJECTION_H_
