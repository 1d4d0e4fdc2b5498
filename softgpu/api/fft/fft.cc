// cuFFT's functions. A plan needs no memory of the device to work in.
#include "api/fft/fft.h"

#include <cuComplex.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "api/support.h"

namespace softgpu::api {
namespace {

constexpr int kVersion = 12000;  // of the library that PyTorch's wheel brings

// The sides of a cufftType.
struct Types {
  cudaDataType_t in, out;
};
constexpr Types kC2C{CUDA_C_32F, CUDA_C_32F}, kR2C{CUDA_R_32F, CUDA_C_32F},
    kC2R{CUDA_C_32F, CUDA_R_32F}, kZ2Z{CUDA_C_64F, CUDA_C_64F}, kD2Z{CUDA_R_64F, CUDA_C_64F},
    kZ2D{CUDA_C_64F, CUDA_R_64F};

bool types_of(int type, Types* out) {
  constexpr std::pair<int, Types> kTypes[] = {{0x29, kC2C}, {0x2a, kR2C}, {0x2c, kC2R},
                                              {0x69, kZ2Z}, {0x6a, kD2Z}, {0x6c, kZ2D}};
  for (const auto& [number, types] : kTypes) {
    if (number == type) return *out = types, true;
  }
  return false;
}

int create(int* plan) {
  if (!plan) return kFftInvalidValue;
  if (usable() != cudaSuccess) return kFftSetupFailed;
  *plan = add_fft_plan();
  return kFftSuccess;
}

int with_plan(int plan, const std::function<void(FftPlan*)>& use) {
  return use_fft_plan(plan, use) ? kFftSuccess : kFftInvalidPlan;
}

int made(FftStatus status, size_t* work_size) {
  if (status == kFftSuccess && work_size) *work_size = 0;
  return status;
}

int make_basic(int plan, std::initializer_list<int64_t> sizes, int type, int64_t batch,
               size_t* work_size) {
  Types types{};
  if (!types_of(type, &types)) return kFftInvalidType;
  return made(make_fft_plan(plan, sizes, {types.in, {}}, {types.out, {}}, batch), work_size);
}

using Three = std::array<int64_t, fft::kMaxRank>;

// A null array is an empty one.
template <class T>
std::span<const int64_t> widened(const T* from, int rank, Three* to) {
  if (!from) return {};
  const auto count = static_cast<size_t>(std::clamp(rank, 0, fft::kMaxRank));
  std::copy_n(from, count, to->begin());
  return {to->data(), count};
}

template <class T>
int make_many(int plan, int rank, const T* n, const T* inembed, FftSide in, const T* onembed,
              FftSide out, int64_t batch, size_t* work_size) {
  if (rank < 1 || rank > fft::kMaxRank || !n) return kFftInvalidValue;
  Three sizes{}, in_embed{}, out_embed{};
  in.embed = widened(inembed, rank, &in_embed);
  out.embed = widened(onembed, rank, &out_embed);
  return made(make_fft_plan(plan, widened(n, rank, &sizes), in, out, batch), work_size);
}

int make_many_of_type(int plan, int rank, const int* n, const int* inembed, FftSide in,
                      const int* onembed, FftSide out, int type, int batch, size_t* work_size) {
  Types types{};
  if (!types_of(type, &types)) return kFftInvalidType;
  in.type = types.in, out.type = types.out;
  return make_many(plan, rank, n, inembed, in, onembed, out, batch, work_size);
}

// Creates a plan and makes it, or nothing.
template <class Make>
int create_made(int* plan, Make make) {
  if (const int bad = create(plan)) return bad;
  const int status = make(*plan);
  if (status) remove_fft_plan(*plan);
  return status;
}

int execute(int plan, const void* in, void* out, int direction) {
  FftPlan copy;
  if (!use_fft_plan(plan, [&](FftPlan* p) { copy = *p; })) return kFftInvalidPlan;
  return execute_fft(copy, in, out, direction);
}

int execute_typed(int plan, Types types, const void* in, void* out, int direction) {
  bool fits = false;
  const int bad = with_plan(
      plan, [&](FftPlan* p) { fits = p->plan && p->in == types.in && p->out == types.out; });
  return bad || !fits ? kFftInvalidPlan : execute(plan, in, out, direction);
}

}  // namespace
}  // namespace softgpu::api

namespace api = softgpu::api;

SOFTGPU_API int cufftCreate(int* plan) {
  return api::create(plan);
}

SOFTGPU_API int cufftDestroy(int plan) {
  return api::remove_fft_plan(plan) ? api::kFftSuccess : api::kFftInvalidPlan;
}

SOFTGPU_API int cufftSetAutoAllocation(int plan, int) {
  return api::with_plan(plan, [](api::FftPlan*) {});
}

SOFTGPU_API int cufftSetWorkArea(int plan, void*) {
  return api::with_plan(plan, [](api::FftPlan*) {});
}

SOFTGPU_API int cufftSetStream(int plan, cudaStream_t stream) {
  return api::with_plan(plan, [=](api::FftPlan* p) { p->stream = stream; });
}

SOFTGPU_API int cufftGetSize(int plan, size_t* work_size) {
  if (!work_size) return api::kFftInvalidValue;
  return api::with_plan(plan, [=](api::FftPlan*) { *work_size = 0; });
}

SOFTGPU_API int cufftGetVersion(int* version) {
  if (!version) return api::kFftInvalidValue;
  return *version = api::kVersion, api::kFftSuccess;
}

// Major, minor and patch version.
SOFTGPU_API int cufftGetProperty(libraryPropertyType type, int* value) {
  if (!value || type < MAJOR_VERSION || type > PATCH_LEVEL) return api::kFftInvalidValue;
  *value = type == MAJOR_VERSION ? api::kVersion / 1000 : 0;
  return api::kFftSuccess;
}

SOFTGPU_API int cufftMakePlan1d(int plan, int nx, int type, int batch, size_t* work_size) {
  return api::make_basic(plan, {nx}, type, batch, work_size);
}

SOFTGPU_API int cufftMakePlan2d(int plan, int nx, int ny, int type, size_t* work_size) {
  return api::make_basic(plan, {nx, ny}, type, 1, work_size);
}

SOFTGPU_API int cufftMakePlan3d(int plan, int nx, int ny, int nz, int type, size_t* work_size) {
  return api::make_basic(plan, {nx, ny, nz}, type, 1, work_size);
}

SOFTGPU_API int cufftMakePlanMany(int plan, int rank, int* n, int* inembed, int istride, int idist,
                                  int* onembed, int ostride, int odist, int type, int batch,
                                  size_t* work_size) {
  return api::make_many_of_type(plan, rank, n, inembed, {CUDA_C_32F, {}, istride, idist}, onembed,
                                {CUDA_C_32F, {}, ostride, odist}, type, batch, work_size);
}

SOFTGPU_API int cufftXtMakePlanMany(int plan, int rank, long long* n, long long* inembed,
                                    long long istride, long long idist, cudaDataType_t input,
                                    long long* onembed, long long ostride, long long odist,
                                    cudaDataType_t output, long long batch, size_t* work_size,
                                    cudaDataType_t) {
  return api::make_many(plan, rank, n, inembed, {input, {}, istride, idist}, onembed,
                        {output, {}, ostride, odist}, batch, work_size);
}

SOFTGPU_API int cufftPlan1d(int* plan, int nx, int type, int batch) {
  return api::create_made(
      plan, [=](int made) { return api::make_basic(made, {nx}, type, batch, nullptr); });
}

SOFTGPU_API int cufftPlan2d(int* plan, int nx, int ny, int type) {
  return api::create_made(
      plan, [=](int made) { return api::make_basic(made, {nx, ny}, type, 1, nullptr); });
}

SOFTGPU_API int cufftPlan3d(int* plan, int nx, int ny, int nz, int type) {
  return api::create_made(
      plan, [=](int made) { return api::make_basic(made, {nx, ny, nz}, type, 1, nullptr); });
}

SOFTGPU_API int cufftPlanMany(int* plan, int rank, int* n, int* inembed, int istride, int idist,
                              int* onembed, int ostride, int odist, int type, int batch) {
  return api::create_made(plan, [=](int made) {
    return api::make_many_of_type(made, rank, n, inembed, {CUDA_C_32F, {}, istride, idist}, onembed,
                                  {CUDA_C_32F, {}, ostride, odist}, type, batch, nullptr);
  });
}

SOFTGPU_API int cufftXtExec(int plan, void* input, void* output, int direction) {
  return api::execute(plan, input, output, direction);
}

SOFTGPU_API int cufftExecC2C(int plan, cuComplex* in, cuComplex* out, int direction) {
  return api::execute_typed(plan, api::kC2C, in, out, direction);
}

SOFTGPU_API int cufftExecR2C(int plan, float* in, cuComplex* out) {
  return api::execute_typed(plan, api::kR2C, in, out, api::kFftForward);
}

SOFTGPU_API int cufftExecC2R(int plan, cuComplex* in, float* out) {
  return api::execute_typed(plan, api::kC2R, in, out, api::kFftInverse);
}

SOFTGPU_API int cufftExecZ2Z(int plan, cuDoubleComplex* in, cuDoubleComplex* out, int direction) {
  return api::execute_typed(plan, api::kZ2Z, in, out, direction);
}

SOFTGPU_API int cufftExecD2Z(int plan, double* in, cuDoubleComplex* out) {
  return api::execute_typed(plan, api::kD2Z, in, out, api::kFftForward);
}

SOFTGPU_API int cufftExecZ2D(int plan, cuDoubleComplex* in, double* out) {
  return api::execute_typed(plan, api::kZ2D, in, out, api::kFftInverse);
}
