// cuFFT's functions: plans, layouts, streams, and what they refuse.
#include <cuComplex.h>
#include <cuda_runtime_api.h>
#include <library_types.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "api/fft/fft.h"
#include "check.h"
#include "device_array.h"

extern "C" {
int cufftCreate(int*);
int cufftDestroy(int);
int cufftSetStream(int, cudaStream_t);
int cufftSetAutoAllocation(int, int);
int cufftSetWorkArea(int, void*);
int cufftGetSize(int, size_t*);
int cufftGetVersion(int*);
int cufftGetProperty(libraryPropertyType, int*);
int cufftXtMakePlanMany(int, int, long long*, long long*, long long, long long, cudaDataType_t,
                        long long*, long long, long long, cudaDataType_t, long long, size_t*,
                        cudaDataType_t);
int cufftXtExec(int, void*, void*, int);
int cufftPlan1d(int*, int, int, int);
int cufftPlan2d(int*, int, int, int);
int cufftPlan3d(int*, int, int, int, int);
int cufftPlanMany(int*, int, int*, int*, int, int, int*, int, int, int, int);
int cufftMakePlan1d(int, int, int, int, size_t*);
int cufftMakePlan2d(int, int, int, int, size_t*);
int cufftMakePlan3d(int, int, int, int, int, size_t*);
int cufftMakePlanMany(int, int, int*, int*, int, int, int*, int, int, int, int, size_t*);
int cufftExecC2C(int, cuComplex*, cuComplex*, int);
int cufftExecR2C(int, float*, cuComplex*);
int cufftExecC2R(int, cuComplex*, float*);
int cufftExecZ2Z(int, cuDoubleComplex*, cuDoubleComplex*, int);
int cufftExecD2Z(int, double*, cuDoubleComplex*);
int cufftExecZ2D(int, cuDoubleComplex*, double*);
}

namespace {

using namespace softgpu::api;  // NOLINT: the status codes

constexpr int kR2C = 0x2a, kC2R = 0x2c, kC2C = 0x29, kD2Z = 0x6a, kZ2D = 0x6c, kZ2Z = 0x69;

bool near(double a, double b) {
  return std::fabs(a - b) < 1e-6 * std::max(1.0, std::fabs(b));
}

std::vector<cuComplex> ramp(size_t count) {
  std::vector<cuComplex> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = {static_cast<float>(i), 0};
  return out;
}

// The transform of 0, 1, .. n - 1 is n / 2 (-1 + i cot(pi k / n)) from the second number on.
void check_ramp(const cuComplex* got, int n, double scale) {
  CHECK(near(got[0].x, scale * n * (n - 1) / 2) && near(got[0].y, 0));
  for (int k = 1; k < n; ++k) {
    CHECK(near(got[k].x, -scale * n / 2));
    CHECK(near(got[k].y, scale * n / 2 / std::tan(M_PI * k / n)));
  }
}

}  // namespace

TEST(plans_are_small_numbers_and_end) {
  int first = 0, second = 0;
  CHECK_EQ(cufftCreate(&first), kFftSuccess);
  CHECK_EQ(cufftCreate(&second), kFftSuccess);
  CHECK(first > 0 && second > first);
  CHECK_EQ(cufftSetAutoAllocation(first, 0), kFftSuccess);
  CHECK_EQ(cufftSetWorkArea(first, nullptr), kFftSuccess);
  CHECK_EQ(cufftXtExec(first, &first, &second, -1), kFftInvalidPlan);  // not made
  size_t bytes = 9;
  CHECK_EQ(cufftMakePlan1d(first, 8, kC2C, 1, &bytes), kFftSuccess);
  CHECK_EQ(bytes, 0u);
  CHECK_EQ(cufftMakePlan1d(first, 8, kC2C, 1, &bytes), kFftInvalidPlan);  // once only
  bytes = 9;
  CHECK_EQ(cufftGetSize(first, &bytes), kFftSuccess);
  CHECK_EQ(bytes, 0u);
  CHECK_EQ(cufftDestroy(first), kFftSuccess);
  CHECK_EQ(cufftDestroy(first), kFftInvalidPlan);
  CHECK_EQ(cufftSetStream(first, nullptr), kFftInvalidPlan);
  CHECK_EQ(cufftDestroy(second), kFftSuccess);
  int version = 0, major = 0;
  CHECK_EQ(cufftGetVersion(&version), kFftSuccess);
  CHECK_EQ(cufftGetProperty(MAJOR_VERSION, &major), kFftSuccess);
  CHECK_EQ(version / 1000, major);
}

TEST(every_way_to_make_a_plan) {
  int plans[8] = {};
  int n[] = {2, 3, 4};
  long long wide[] = {2, 3, 4};
  size_t bytes = 0;
  CHECK_EQ(cufftPlan1d(&plans[0], 24, kC2C, 1), kFftSuccess);
  CHECK_EQ(cufftPlan2d(&plans[1], 6, 4, kC2C), kFftSuccess);
  CHECK_EQ(cufftPlan3d(&plans[2], 2, 3, 4, kC2C), kFftSuccess);
  CHECK_EQ(cufftPlanMany(&plans[3], 3, n, nullptr, 1, 0, nullptr, 1, 0, kC2C, 1), kFftSuccess);
  for (int i = 4; i < 8; ++i) CHECK_EQ(cufftCreate(&plans[i]), kFftSuccess);
  CHECK_EQ(cufftMakePlan2d(plans[4], 6, 4, kC2C, &bytes), kFftSuccess);
  CHECK_EQ(cufftMakePlan3d(plans[5], 2, 3, 4, kC2C, &bytes), kFftSuccess);
  CHECK_EQ(cufftMakePlanMany(plans[6], 3, n, n, 1, 24, n, 1, 24, kC2C, 1, &bytes), kFftSuccess);
  CHECK_EQ(cufftXtMakePlanMany(plans[7], 3, wide, nullptr, 1, 1, CUDA_C_32F, nullptr, 1, 1,
                               CUDA_C_32F, 1, &bytes, CUDA_C_32F),
           kFftSuccess);
  const DeviceArray<cuComplex> in(ramp(24));
  std::vector<std::vector<cuComplex>> results;
  for (const int plan : plans) {
    const DeviceArray<cuComplex> out(ramp(24));
    CHECK_EQ(cufftExecC2C(plan, in.get(), out.get(), -1), kFftSuccess);
    results.push_back(out.read());
    CHECK_EQ(cufftDestroy(plan), kFftSuccess);
  }
  check_ramp(results[0].data(), 24, 1);
  const auto same = [&](size_t a, size_t b) {
    for (size_t i = 0; i < 24; ++i)
      CHECK(results[a][i].x == results[b][i].x && results[a][i].y == results[b][i].y);
  };
  same(1, 4), same(2, 3), same(2, 5), same(2, 6), same(2, 7);
}

TEST(real_numbers_in_place_have_padded_rows) {
  const int rows = 3, n = 5, width = 2 * (n / 2 + 1);
  std::vector<float> values(rows * width, 77);
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < n; ++i) values[row * width + i] = static_cast<float>(i * (row + 1));
  int there = 0, back = 0;
  CHECK_EQ(cufftPlan1d(&there, n, kR2C, rows), kFftSuccess);
  CHECK_EQ(cufftPlan1d(&back, n, kC2R, rows), kFftSuccess);
  const DeviceArray<float> data(values);
  auto* const complex = reinterpret_cast<cuComplex*>(data.get());
  CHECK_EQ(cufftExecR2C(there, data.get(), complex), kFftSuccess);
  const std::vector<float> got = data.read();
  for (int row = 0; row < rows; ++row) {
    for (int k = 1; k <= n / 2; ++k) {
      CHECK(near(got[row * width + 2 * k], -(row + 1) * n / 2.0));
      CHECK(near(got[row * width + 2 * k + 1], (row + 1) * n / 2.0 / std::tan(M_PI * k / n)));
    }
  }
  CHECK_EQ(cufftExecC2R(back, complex, data.get()), kFftSuccess);
  const std::vector<float> again = data.read();
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < n; ++i) CHECK(near(again[row * width + i], n * i * (row + 1)));
  cufftDestroy(there), cufftDestroy(back);
}

TEST(numbers_of_each_precision) {
  const int n = 4;
  const DeviceArray<double> in({0, 1, 2, 3});
  const std::vector<cuDoubleComplex> zeros(n);
  const DeviceArray<cuDoubleComplex> out(zeros), both(zeros);
  int d2z = 0, z2d = 0, z2z = 0, half = 0;
  CHECK_EQ(cufftPlan1d(&d2z, n, kD2Z, 1), kFftSuccess);
  CHECK_EQ(cufftPlan1d(&z2d, n, kZ2D, 1), kFftSuccess);
  CHECK_EQ(cufftPlan1d(&z2z, n, kZ2Z, 1), kFftSuccess);
  CHECK_EQ(cufftExecD2Z(d2z, in.get(), out.get()), kFftSuccess);
  CHECK(out.read()[1].x == -2 && out.read()[1].y == 2 && out.read()[2].x == -2);
  CHECK_EQ(cufftExecZ2D(z2d, out.get(), in.get()), kFftSuccess);
  CHECK(in.read() == (std::vector<double>{0, 4, 8, 12}));
  CHECK_EQ(cufftExecZ2Z(z2z, out.get(), both.get(), 1), kFftSuccess);
  CHECK(std::isfinite(both.read()[3].x));
  // 1, 2, 0, -1 as halves.
  const DeviceArray<uint16_t> halves({0x3c00, 0x4000, 0, 0xbc00}), spectrum({1, 1, 1, 1, 1, 1});
  long long size = n;
  size_t bytes = 0;
  CHECK_EQ(cufftCreate(&half), kFftSuccess);
  CHECK_EQ(cufftXtMakePlanMany(half, 1, &size, nullptr, 1, 1, CUDA_R_16F, nullptr, 1, 1, CUDA_C_16F,
                               1, &bytes, CUDA_C_16F),
           kFftSuccess);
  CHECK_EQ(cufftXtExec(half, halves.get(), spectrum.get(), -1), kFftSuccess);
  CHECK(spectrum.read() == (std::vector<uint16_t>{0x4000, 0, 0x3c00, 0xc200, 0, 0}));
  for (const int plan : {d2z, z2d, z2z, half}) cufftDestroy(plan);
}

TEST(what_cannot_be_is_refused) {
  int plan = 0;
  long long n[] = {4, 4, 4, 4}, none = 0;
  size_t bytes = 0;
  const auto make = [&](int rank, long long* sizes, cudaDataType_t in, cudaDataType_t out,
                        long long batch, long long* embed, long long stride) {
    CHECK_EQ(cufftCreate(&plan), kFftSuccess);
    const int status = cufftXtMakePlanMany(plan, rank, sizes, embed, stride, 64, in, embed, stride,
                                           64, out, batch, &bytes, CUDA_C_32F);
    cufftDestroy(plan);
    return status;
  };
  CHECK_EQ(make(4, n, CUDA_C_32F, CUDA_C_32F, 1, nullptr, 1), kFftInvalidValue);
  CHECK_EQ(make(0, n, CUDA_C_32F, CUDA_C_32F, 1, nullptr, 1), kFftInvalidValue);
  CHECK_EQ(make(1, nullptr, CUDA_C_32F, CUDA_C_32F, 1, nullptr, 1), kFftInvalidValue);
  CHECK_EQ(make(1, &none, CUDA_C_32F, CUDA_C_32F, 1, nullptr, 1), kFftInvalidSize);
  CHECK_EQ(make(1, n, CUDA_C_32F, CUDA_C_32F, 0, nullptr, 1), kFftInvalidSize);
  CHECK_EQ(make(1, n, CUDA_R_32F, CUDA_R_32F, 1, nullptr, 1), kFftInvalidType);
  CHECK_EQ(make(1, n, CUDA_C_32F, CUDA_C_64F, 1, nullptr, 1), kFftInvalidType);
  CHECK_EQ(make(1, n, CUDA_C_32F, CUDA_R_8I, 1, nullptr, 1), kFftInvalidType);
  CHECK_EQ(make(2, n, CUDA_C_32F, CUDA_C_32F, 1, n, 0), kFftInvalidValue);
  CHECK_EQ(make(2, n, CUDA_C_32F, CUDA_C_32F, 1, n, 1), kFftSuccess);
  CHECK_EQ(cufftPlan1d(&plan, 8, 0x99, 1), kFftInvalidType);
  CHECK_EQ(cufftPlan1d(&plan, 8, kC2C, 1), kFftSuccess);
  const DeviceArray<cuComplex> data(ramp(8));
  CHECK_EQ(cufftExecC2C(plan, data.get(), data.get(), 0), kFftInvalidValue);
  CHECK_EQ(cufftExecC2C(plan, nullptr, data.get(), 1), kFftInvalidValue);
  CHECK_EQ(cufftExecR2C(plan, reinterpret_cast<float*>(data.get()), data.get()), kFftInvalidPlan);
  cufftDestroy(plan);
}

// Work stays in the order of its stream, and in a graph it is done at each launch.
TEST(streams_and_captures) {
  cudaStream_t stream = nullptr;
  CHECK_EQ(cudaStreamCreate(&stream), cudaSuccess);
  int plan = 0;
  CHECK_EQ(cufftPlan1d(&plan, 6, kC2C, 1), kFftSuccess);
  CHECK_EQ(cufftSetStream(plan, stream), kFftSuccess);
  const DeviceArray<cuComplex> in(ramp(6)), out(ramp(6));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  CHECK_EQ(cufftExecC2C(plan, in.get(), out.get(), -1), kFftSuccess);
  CHECK_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cufftDestroy(plan);  // the graph keeps what it needs
  CHECK_EQ(out.read()[1].x, 1.0f);
  CHECK_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (const float scale : {1.0f, 3.0f}) {
    std::vector<cuComplex> values = ramp(6);
    for (cuComplex& value : values) value.x *= scale;
    CHECK_EQ(cudaMemcpyAsync(in.get(), values.data(), 6 * sizeof values[0], cudaMemcpyHostToDevice,
                             stream),
             cudaSuccess);
    CHECK_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    check_ramp(out.read().data(), 6, static_cast<double>(scale));
  }
  CHECK_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  CHECK_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

// The last test: device 1 is lost by it.
TEST(memory_that_is_not_there_ends_the_device) {
  CHECK_EQ(cudaSetDevice(1), cudaSuccess);
  int plan = 0;
  CHECK_EQ(cufftPlan1d(&plan, 1 << 20, kC2C, 64), kFftSuccess);
  const DeviceArray<cuComplex> data(ramp(8));
  CHECK_EQ(cufftExecC2C(plan, data.get(), data.get(), -1), kFftSuccess);
  CHECK_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  CHECK_EQ(cufftExecC2C(plan, data.get(), data.get(), -1), kFftExecutionFailed);
  CHECK_EQ(cudaSetDevice(0), cudaSuccess);
}

CHECK_MAIN
