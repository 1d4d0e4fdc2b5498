// What a BLAS call reads or writes on the device and is not there: a fault, not the process's end.
// A device that has failed stays so, hence one for each call.
#include <cuda_runtime_api.h>

#include <functional>

#include "api/blas/blas.h"
#include "check.h"
#include "device_array.h"

namespace {

using Values = std::vector<float>;

struct Operands {
  cublasHandle_t handle;
  float* a;
  float* b;
  void* nowhere;
  const float* factor() const { return static_cast<const float*>(nowhere); }
  const cuComplex* unit() const { return static_cast<const cuComplex*>(nowhere); }
  cuComplex* za() const { return reinterpret_cast<cuComplex*>(a); }
  cuComplex* zb() const { return reinterpret_cast<cuComplex*>(b); }
};

void check_fault(int device, const std::function<cublasStatus_t(const Operands&)>& call) {
  CHECK_EQ(cudaSetDevice(device), cudaSuccess);
  cublasHandle_t h = nullptr;
  CHECK_EQ(cublasCreate_v2(&h), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cublasSetPointerMode_v2(h, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  DeviceArray<float> a(Values(16, 1)), b(Values(16, 1));
  CHECK_EQ(call({h, a.get(), b.get(), reinterpret_cast<void*>(0x1230)}), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

}  // namespace

TEST(factors_that_are_not_there) {
  constexpr auto none = CUBLAS_OP_N;
  constexpr auto left = CUBLAS_SIDE_LEFT;
  constexpr auto lower = CUBLAS_FILL_MODE_LOWER;
  constexpr auto diagonal = CUBLAS_DIAG_NON_UNIT;
  check_fault(0, [](const Operands& o) {
    return cublasSgemv_v2(o.handle, none, 2, 2, o.a, o.a, 2, o.a, 1, o.factor(), o.b, 1);
  });
  check_fault(
      1, [](const Operands& o) { return cublasSaxpy_v2(o.handle, 2, o.factor(), o.a, 1, o.b, 1); });
  check_fault(2, [](const Operands& o) { return cublasSscal_v2(o.handle, 2, o.factor(), o.b, 1); });
  check_fault(3, [](const Operands& o) {
    return cublasStrsm_v2(o.handle, left, lower, none, diagonal, 2, 2, o.factor(), o.a, 2, o.b, 2);
  });
  check_fault(4, [](const Operands& o) {
    return cublasCgemv_v2(o.handle, none, 2, 2, o.unit(), o.za(), 2, o.za(), 1, o.zb(), o.zb(), 1);
  });
  check_fault(5, [](const Operands& o) {
    return cublasCaxpy_v2(o.handle, 2, o.unit(), o.za(), 1, o.zb(), 1);
  });
  check_fault(6, [](const Operands& o) {
    return cublasCtrsm_v2(o.handle, left, lower, none, diagonal, 2, 2, o.unit(), o.za(), 2, o.zb(),
                          2);
  });
}

TEST(a_result_that_is_not_there) {
  check_fault(7, [](const Operands& o) {
    return cublasDotEx(o.handle, 2, o.a, CUDA_R_32F, 1, o.b, CUDA_R_32F, 1, o.nowhere, CUDA_R_32F,
                       CUDA_R_32F);
  });
}

CHECK_MAIN
