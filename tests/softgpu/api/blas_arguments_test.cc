// Arguments of the BLAS part that it cannot use: a status or a fault, and nothing is touched.
#include <cuda_runtime_api.h>

#include <functional>

#include "api/blas/blas.h"
#include "check.h"
#include "device_array.h"

namespace {

using Values = std::vector<float>;
using Call = std::function<cublasStatus_t(cublasHandle_t)>;

cublasHandle_t handle() {
  static cublasHandle_t h = [] {
    cublasHandle_t made = nullptr;
    CHECK_EQ(cublasCreate_v2(&made), CUBLAS_STATUS_SUCCESS);
    return made;
  }();
  return h;
}

// A kind of call with this operation, on matrices of 2 x 2.
std::vector<Call> calls_with(cublasOperation_t op, float* a, float* b) {
  static const float one = 1;
  static const cuComplex unit{1, 0};
  auto* za = reinterpret_cast<cuComplex*>(a);
  auto* zb = reinterpret_cast<cuComplex*>(b);
  constexpr auto left = CUBLAS_SIDE_LEFT;
  constexpr auto lower = CUBLAS_FILL_MODE_LOWER;
  constexpr auto diagonal = CUBLAS_DIAG_NON_UNIT;
  constexpr auto none = CUBLAS_OP_N;
  return {
      [=](auto h) { return cublasSgemm_v2(h, op, none, 2, 2, 2, &one, a, 2, a, 2, &one, b, 2); },
      [=](auto h) { return cublasSgemm_v2(h, none, op, 2, 2, 2, &one, a, 2, a, 2, &one, b, 2); },
      [=](auto h) {
        return cublasCgemm_v2(h, op, none, 2, 2, 2, &unit, za, 2, za, 2, &unit, zb, 2);
      },
      [=](auto h) { return cublasSgemv_v2(h, op, 2, 2, &one, a, 2, a, 1, &one, b, 1); },
      [=](auto h) { return cublasCgemv_v2(h, op, 2, 2, &unit, za, 2, za, 1, &unit, zb, 1); },
      [=](auto h) { return cublasStrsm_v2(h, left, lower, op, diagonal, 2, 2, &one, a, 2, b, 2); },
      [=](auto h) {
        return cublasCtrsm_v2(h, left, lower, op, diagonal, 2, 2, &unit, za, 2, zb, 2);
      },
      [=](auto h) {
        int info = 0;
        return cublasSgetrsBatched(h, op, 2, 1, nullptr, 2, nullptr, nullptr, 2, &info, 0);
      },
  };
}

}  // namespace

TEST(operations_that_there_are_not) {
  DeviceArray<float> a(Values(16, 1)), b(Values(16, 3));
  for (const int op : {int{CUBLAS_OP_CONJG}, 7, -1}) {
    for (const Call& call : calls_with(static_cast<cublasOperation_t>(op), a.get(), b.get())) {
      CHECK_EQ(call(handle()), CUBLAS_STATUS_INVALID_VALUE);
    }
  }
  CHECK(b.read() == Values(16, 3));
  for (const Call& call : calls_with(CUBLAS_OP_T, a.get(), b.get())) {
    CHECK_EQ(call(handle()), CUBLAS_STATUS_SUCCESS);
  }
}

TEST(triangles_that_there_are_not) {
  DeviceArray<float> a(Values(16, 1)), b(Values(16, 3));
  const float one = 1;
  const cuComplex unit{1, 0};
  const auto solve = [&](int side, int fill, int diagonal, int m, int n, int lda, int ldb) {
    const auto s = static_cast<cublasSideMode_t>(side);
    const auto f = static_cast<cublasFillMode_t>(fill);
    const auto d = static_cast<cublasDiagType_t>(diagonal);
    const cublasStatus_t status =
        cublasStrsm_v2(handle(), s, f, CUBLAS_OP_N, d, m, n, &one, a.get(), lda, b.get(), ldb);
    CHECK_EQ(cublasCtrsm_v2(handle(), s, f, CUBLAS_OP_N, d, m, n, &unit,
                            reinterpret_cast<cuComplex*>(a.get()), lda,
                            reinterpret_cast<cuComplex*>(b.get()), ldb),
             status);
    return status;
  };
  CHECK_EQ(solve(2, 0, 0, 2, 2, 2, 2), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_EQ(solve(0, CUBLAS_FILL_MODE_FULL, 0, 2, 2, 2, 2), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_EQ(solve(0, 0, 2, 2, 2, 2, 2), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_EQ(solve(0, 0, 0, -2, 2, 2, 2), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_EQ(solve(0, 0, 0, 2, -2, 2, 2), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_EQ(solve(CUBLAS_SIDE_LEFT, 0, 0, 2, 1, 1, 2), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_EQ(solve(CUBLAS_SIDE_RIGHT, 0, 0, 1, 2, 1, 1), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_EQ(solve(0, 0, 0, 2, 2, 2, 1), CUBLAS_STATUS_INVALID_VALUE);
  const auto none = CUBLAS_OP_N;
  CHECK_EQ(
      cublasStrsmBatched(handle(), CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, none, CUBLAS_DIAG_UNIT,
                         2, 2, &one, a.slots(4).get(), 2, b.slots(4).get(), 2, -1),
      CUBLAS_STATUS_INVALID_VALUE);
  CHECK(b.read() == Values(16, 3));
  CHECK_EQ(solve(CUBLAS_SIDE_RIGHT, 0, 0, 1, 2, 2, 1), CUBLAS_STATUS_SUCCESS);
}

TEST(scaling_backwards_touches_nothing) {
  DeviceArray<float> x(Values{1, 2, 3, 4});
  DeviceArray<double> wide(std::vector<double>{1, 2, 3, 4});
  const float two = 2;
  const double wide_two = 2;
  for (const int step : {-1, 0}) {
    CHECK_EQ(cublasSscal_v2(handle(), 2, &two, x.get() + 2, step), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasDscal_v2(handle(), 2, &wide_two, wide.get() + 2, step), CUBLAS_STATUS_SUCCESS);
  }
  CHECK(x.read() == (Values{1, 2, 3, 4}));
  CHECK(wide.read() == (std::vector<double>{1, 2, 3, 4}));
}

TEST(a_product_of_fewer_than_no_elements) {
  float result = 7;
  CHECK_EQ(cublasDotEx(handle(), -3, nullptr, CUDA_R_32F, 1, nullptr, CUDA_R_32F, 1, &result,
                       CUDA_R_32F, CUDA_R_32F),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(result, 0.f);
}

CHECK_MAIN
