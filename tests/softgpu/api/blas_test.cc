#include <cuda_runtime_api.h>

#include <cmath>
#include <limits>
#include <vector>

#include "api/blas/blas.h"
#include "check.h"

namespace {

using Values = std::vector<float>;

// Small whole numbers: every order of summation gives the same bits.
Values numbers(size_t count, int seed) {
  Values v(count);
  for (size_t i = 0; i < count; ++i) v[i] = static_cast<float>((i * 7 + seed * 13) % 11) - 5;
  return v;
}

struct DeviceValues {
  explicit DeviceValues(const Values& v) : count(v.size()) {
    cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(float));
    cudaMemcpy(data, v.data(), count * sizeof(float), cudaMemcpyHostToDevice);
  }
  ~DeviceValues() { cudaFree(data); }
  Values read() const {
    Values v(count);
    cudaMemcpy(v.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost);
    return v;
  }
  float* data = nullptr;
  size_t count;
};

// alpha op(A) op(B) + beta C, column-major, no padding.
Values reference(bool ta, bool tb, int m, int n, int k, float alpha, const Values& a,
                 const Values& b, float beta, const Values& c) {
  Values out(c);
  for (int j = 0; j < n; ++j) {
    for (int i = 0; i < m; ++i) {
      float sum = 0;
      for (int l = 0; l < k; ++l) {
        sum += a[static_cast<size_t>(ta ? i * k + l : l * m + i)] *
               b[static_cast<size_t>(tb ? l * n + j : j * k + l)];
      }
      float& at = out[static_cast<size_t>(j * m + i)];
      at = alpha * sum + (beta == 0 ? 0 : beta * at);
    }
  }
  return out;
}

cublasHandle_t handle() {
  static cublasHandle_t h = [] {
    cublasHandle_t made = nullptr;
    CHECK_EQ(cublasCreate_v2(&made), CUBLAS_STATUS_SUCCESS);
    return made;
  }();
  return h;
}

}  // namespace

TEST(gemm_matches_the_definition) {
  const int m = 5, n = 7, k = 9;
  for (int variant = 0; variant < 8; ++variant) {
    const bool ta = variant & 1, tb = variant & 2;
    const float alpha = 2, beta = variant & 4 ? -3.f : 0.f;
    const Values a = numbers(m * k, 1), b = numbers(k * n, 2);
    Values c = numbers(m * n, 3);
    // beta 0 means C is not read: whatever is there must not leak out.
    if (beta == 0) c.assign(c.size(), std::numeric_limits<float>::quiet_NaN());
    DeviceValues da(a), db(b), dc(c);
    CHECK_EQ(
        cublasSgemm_v2(handle(), ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m,
                       n, k, &alpha, da.data, ta ? k : m, db.data, tb ? n : k, &beta, dc.data, m),
        CUBLAS_STATUS_SUCCESS);
    CHECK(dc.read() == reference(ta, tb, m, n, k, alpha, a, b, beta, c));
  }
}

TEST(batched_gemm_and_device_scalars) {
  const int m = 3, n = 4, k = 5, batch = 3;
  const Values a = numbers(m * k * batch, 1), b = numbers(k * n * batch, 2);
  DeviceValues da(a), db(b), dc(Values(m * n * batch)), factors({2, 0});
  CHECK_EQ(cublasSetPointerMode_v2(handle(), CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cublasSgemmStridedBatched(handle(), CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, factors.data,
                                     da.data, m, m * k, db.data, k, k * n, factors.data + 1,
                                     dc.data, m, m * n, batch),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cublasSetPointerMode_v2(handle(), CUBLAS_POINTER_MODE_HOST), CUBLAS_STATUS_SUCCESS);
  const Values got = dc.read();
  for (int i = 0; i < batch; ++i) {
    const Values one_a(a.begin() + i * m * k, a.begin() + (i + 1) * m * k);
    const Values one_b(b.begin() + i * k * n, b.begin() + (i + 1) * k * n);
    const Values one_c(got.begin() + i * m * n, got.begin() + (i + 1) * m * n);
    CHECK(one_c == reference(false, false, m, n, k, 2, one_a, one_b, 0, Values(m * n)));
  }
}

TEST(half_precision_rounds_to_nearest_even) {
  const Values values = {1.f,      1.f + 0x1p-11f, 1.f + 3 * 0x1p-11f, 65520.f, 0x1p-24f,
                         0x1p-25f, -2.5f};
  std::vector<uint16_t> halves(values.size());
  softgpu::api::store_floats(CUDA_R_16F, values.data(), static_cast<int64_t>(values.size()),
                             halves.data());
  const std::vector<uint16_t> expected = {0x3c00, 0x3c00, 0x3c02, 0x7c00, 1, 0, 0xc100};
  CHECK(halves == expected);
  Values back(values.size());
  softgpu::api::load_floats(CUDA_R_16F, halves.data(), static_cast<int64_t>(halves.size()),
                            back.data());
  CHECK_EQ(back[4], 0x1p-24f);
  CHECK_EQ(back[6], -2.5f);
}

TEST(bad_calls_are_refused) {
  const float one = 1;
  DeviceValues a(numbers(16, 1));
  CHECK_EQ(cublasSgemm_v2(handle(), CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a.data, 3, a.data, 4,
                          &one, a.data, 4),
           CUBLAS_STATUS_INVALID_VALUE);
  CHECK_EQ(cublasSgemm_v2(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a.data, 4, a.data, 4,
                          &one, a.data, 4),
           CUBLAS_STATUS_NOT_INITIALIZED);
}

TEST(vector_calls) {
  DeviceValues x(Values{1, 2, 3}), y(Values{4, 5, 6});
  float result = 0;
  CHECK_EQ(cublasSdot_v2(handle(), 3, x.data, 1, y.data, 1, &result), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(result, 32.f);
  const float two = 2;
  CHECK_EQ(cublasSaxpy_v2(handle(), 3, &two, x.data, 1, y.data, 1), CUBLAS_STATUS_SUCCESS);
  CHECK(y.read() == (Values{6, 9, 12}));
}

CHECK_MAIN

namespace {

// Addresses of `count` matrices of `size` elements in one allocation, as a device array.
struct DeviceSlots {
  DeviceSlots(const DeviceValues& values, size_t size, size_t count) {
    std::vector<float*> at(count);
    for (size_t i = 0; i < count; ++i) at[i] = values.data + i * size;
    cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(float*));
    cudaMemcpy(data, at.data(), count * sizeof(float*), cudaMemcpyHostToDevice);
  }
  ~DeviceSlots() { cudaFree(data); }
  float** data = nullptr;
};

struct DeviceNumbers {
  explicit DeviceNumbers(size_t count) {
    cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(int));
  }
  ~DeviceNumbers() { cudaFree(data); }
  int* data = nullptr;
};

bool near(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::fabs(a[i] - b[i]) < 1e-4f)) return false;
  }
  return a.size() == b.size();
}

}  // namespace

// A x = b for two matrices, with and without row exchanges, by LU and by least squares.
TEST(batched_factorisations_solve_equations) {
  const Values a{4, 2, 1, 1, 5, 2, 2, 1, 6, 3, 1, 0, 1, 4, 1, 0, 2, 5};
  const Values x{1, 2, 3, -1, 0.5, 2};
  Values b(6);
  for (size_t k = 0; k < 2; ++k) {
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) b[3 * k + i] += a[9 * k + 3 * j + i] * x[3 * k + j];
    }
  }
  for (const bool exchange : {true, false}) {
    DeviceValues da(a), db(b);
    DeviceSlots as(da, 9, 2), bs(db, 3, 2);
    DeviceNumbers pivots(6), infos(2);
    int* chosen = exchange ? pivots.data : nullptr;
    int info = -7;
    CHECK_EQ(cublasSgetrfBatched(handle(), 3, as.data, 3, chosen, infos.data, 2),
             CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(
        cublasSgetrsBatched(handle(), CUBLAS_OP_N, 3, 1, as.data, 3, chosen, bs.data, 3, &info, 2),
        CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(info, 0);
    CHECK(near(db.read(), x));
  }
  DeviceValues da(a), db(b);
  DeviceSlots as(da, 9, 2), bs(db, 3, 2);
  DeviceNumbers infos(2);
  int info = -7;
  CHECK_EQ(cublasSgelsBatched(handle(), CUBLAS_OP_N, 3, 3, 1, as.data, 3, bs.data, 3, &info,
                              infos.data, 2),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(info, 0);
  CHECK(near(db.read(), x));
}

TEST(batched_solve_of_nothing_needs_no_arrays) {
  const float one = 1;
  CHECK_EQ(cublasStrsmBatched(handle(), CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N,
                              CUBLAS_DIAG_NON_UNIT, 0, 1, &one, nullptr, 1, nullptr, 1, 1),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(complex_vectors_and_triangles) {
  // A = [2+i 0; 1 1-i] by columns, x = [1, i], and places for results.
  const Values a{2, 1, 1, 0, 0, 0, 1, -1}, x{1, 0, 0, 1};
  DeviceValues da(a), dx(x), dy(Values(4));
  const auto* pa = reinterpret_cast<const cuComplex*>(da.data);
  auto* px = reinterpret_cast<cuComplex*>(dx.data);
  auto* py = reinterpret_cast<cuComplex*>(dy.data);
  const cuComplex one{1, 0}, zero{0, 0};
  CHECK_EQ(cublasCgemv_v2(handle(), CUBLAS_OP_N, 2, 2, &one, pa, 2, px, 1, &zero, py, 1),
           CUBLAS_STATUS_SUCCESS);
  CHECK(near(dy.read(), {2, 1, 2, 1}));
  cuComplex plain{}, conjugated{};
  CHECK_EQ(cublasCdotu_v2(handle(), 2, px, 1, py, 1, &plain), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cublasCdotc_v2(handle(), 2, px, 1, py, 1, &conjugated), CUBLAS_STATUS_SUCCESS);
  CHECK(near({plain.x, plain.y, conjugated.x, conjugated.y}, {1, 3, 3, -1}));
  CHECK_EQ(cublasCtrsm_v2(handle(), CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
                          CUBLAS_DIAG_NON_UNIT, 2, 1, &one, pa, 2, py, 2),
           CUBLAS_STATUS_SUCCESS);
  CHECK(near(dy.read(), x));
  CHECK_EQ(cublasCaxpy_v2(handle(), 2, &one, px, 1, py, 1), CUBLAS_STATUS_SUCCESS);
  CHECK(near(dy.read(), {2, 0, 0, 2}));
}
