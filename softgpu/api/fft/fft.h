// cuFFT's plans, with types of our own: not every toolkit that we build with has its headers.
#ifndef SOFTGPU_API_FFT_FFT_H_
#define SOFTGPU_API_FFT_FFT_H_

#include <driver_types.h>
#include <library_types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "work/fft.h"

namespace softgpu::api {

// As cufftResult numbers them.
enum FftStatus : int {
  kFftSuccess = 0,
  kFftInvalidPlan = 1,
  kFftAllocationFailed = 2,
  kFftInvalidType = 3,
  kFftInvalidValue = 4,
  kFftExecutionFailed = 6,
  kFftSetupFailed = 7,
  kFftInvalidSize = 8,
};

inline constexpr int kFftForward = -1, kFftInverse = 1;

// One side of a transform as a program describes it.
struct FftSide {
  cudaDataType_t type = CUDA_C_32F;
  std::span<const int64_t> embed;  // sizes of what the signal is a part of; empty: basic
  int64_t stride = 1, apart = 0;
};

// What a cufftHandle stands for.
struct FftPlan {
  int device = 0;
  cudaStream_t stream = nullptr;
  std::shared_ptr<const fft::Plan> plan;  // empty until it is made
  cudaDataType_t in = CUDA_C_32F, out = CUDA_C_32F;
  bool basic = false;  // without gaps, but for real numbers in place
};

// The answer is a number from 1.
int add_fft_plan();
bool remove_fft_plan(int number);
// False if there is none. `use` is called under the table's lock.
bool use_fft_plan(int number, const std::function<void(FftPlan*)>& use);

// Layouts are basic if one side has no `embed`.
FftStatus make_fft_plan(int number, std::span<const int64_t> sizes, const FftSide& in,
                        const FftSide& out, int64_t batch);
FftStatus execute_fft(const FftPlan& plan, const void* in, void* out, int direction);

}  // namespace softgpu::api

#endif  // SOFTGPU_API_FFT_FFT_H_
