// With SOFTGPU_FAULT="lost device=1; 2:700; hang device=2 at=1; 9:700; error:8,code=700,device=3",
// read before the first device. There is no ninth launch, and device 3 is another process's.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "check.h"
#include "softgpu.h"

// Before the first device: a file that is not there is not made.
static const bool emptied = [] {
  return std::ofstream(std::getenv("SOFTGPU_FAULT_NOTES"), std::ios::trunc).good();
}();

static void launch() {
  cublasHandle_t handle;
  void* x = nullptr;
  const float two = 2;
  CHECK_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cudaMalloc(&x, 512), cudaSuccess);
  CHECK_EQ(cublasSscal(handle, 1, &two, static_cast<float*>(x), 1), CUBLAS_STATUS_SUCCESS);
}

TEST(devices_may_be_lost_from_the_beginning) {
  CHECK_EQ(cudaSetDevice(1), cudaSuccess);
  void* out = nullptr;
  CHECK_EQ(cudaMalloc(&out, 8), cudaErrorUnknown);
}

// The process ends all the same.
TEST(a_hang_from_the_environment) {
  CHECK_EQ(cudaSetDevice(2), cudaSuccess);
  launch();
  softgpu_state state{};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!state.hanging && std::chrono::steady_clock::now() < end) {
    CHECK_EQ(softgpu_device_state(2, &state), 0);
    std::this_thread::yield();
  }
  CHECK_EQ(state.hanging, 1);
}

// Launches without a device count over all of them: this is the second.
TEST(the_second_launch_of_the_process_fails) {
  CHECK_EQ(cudaSetDevice(0), cudaSuccess);
  launch();
  CHECK_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

TEST(what_has_happened_is_written_down) {
  CHECK(emptied);
  std::ostringstream text;
  text << std::ifstream(std::getenv("SOFTGPU_FAULT_NOTES")).rdbuf();
  CHECK_EQ(text.str(), std::string("happened SOFTGPU_FAULT=lost device=1\n"
                                   "happened SOFTGPU_FAULT=hang device=2 at=1\n"
                                   "happened SOFTGPU_FAULT=2:700\n"));
}

static std::string missed() {
  char text[1000] = "";
  softgpu_missed_faults(text, sizeof text);
  return text;
}

TEST(what_another_process_has_had_is_not_missed) {
  const std::string pid = "] has not come to [pid " + std::to_string(getpid()) + "]: ";
  const std::string here = "softgpu: the fault [9:700" + pid +
                           "[2] launches came since it was asked for, it was to be at number [9]\n";
  const std::string fault = "error:8,code=700,device=3";
  CHECK_EQ(missed(), here + "softgpu: the fault [" + fault + pid +
                         "[0] launches on device [3] came since it was asked for, it was to be at "
                         "number [8]\n");
  std::ofstream(std::getenv("SOFTGPU_FAULT_NOTES"), std::ios::app)
      << "happened SOFTGPU_FAULT=" << fault << "\n";
  CHECK_EQ(missed(), here);
}

CHECK_MAIN
