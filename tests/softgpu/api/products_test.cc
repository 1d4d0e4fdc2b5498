// Matrix products of all types against the definition, on whole numbers: any order of summation
// gives the same bits.
#include <complex>
#include <memory>

#include "api/blas/blas.h"
#include "check.h"
#include "device_array.h"

namespace {

constexpr cublasOperation_t kOperations[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C};

cublasHandle_t handle() {
  static cublasHandle_t h = [] {
    cublasHandle_t made = nullptr;
    CHECK_EQ(cublasCreate_v2(&made), CUBLAS_STATUS_SUCCESS);
    return made;
  }();
  return h;
}

// What a type's elements are on the device, and as numbers.
template <class T>
struct Plain {
  using Stored = T;
  static Stored store(T value) { return value; }
  static T load(Stored value) { return value; }
};
template <cudaDataType_t type>
struct Small {
  using Stored = uint16_t;
  static Stored store(float value) {
    Stored out = 0;
    softgpu::api::store_floats(type, &value, 1, &out);
    return out;
  }
  static float load(Stored value) {
    float out = 0;
    softgpu::api::load_floats(type, &value, 1, &out);
    return out;
  }
};
using Half = Small<CUDA_R_16F>;
using Brain = Small<CUDA_R_16BF>;
using Single = std::complex<float>;
using Double = std::complex<double>;

template <class T>
T number(int i, int seed) {
  return static_cast<T>((i * 7 + seed * 13) % 11 - 5);
}
template <>
Single number<Single>(int i, int seed) {
  return {number<float>(i, seed), number<float>(i, seed + 1)};
}
template <>
Double number<Double>(int i, int seed) {
  return {number<double>(i, seed), number<double>(i, seed + 1)};
}

template <class F, class N>
std::vector<typename F::Stored> values(int count, int seed) {
  std::vector<typename F::Stored> out;
  for (int i = 0; i < count; ++i) out.push_back(F::store(number<N>(i, seed)));
  return out;
}

template <class T>
T conjugated(T value) {
  if constexpr (std::is_same_v<T, Single> || std::is_same_v<T, Double>) return std::conj(value);
  return value;
}

struct Shape {
  cublasOperation_t ta, tb;
  int m, n, k, batch = 1;
  int lda() const { return (ta == CUBLAS_OP_N ? m : k) + 1; }  // one unused row everywhere
  int ldb() const { return (tb == CUBLAS_OP_N ? k : n) + 1; }
  int ldc() const { return m + 1; }
  int size_a() const { return lda() * (ta == CUBLAS_OP_N ? k : m); }
  int size_b() const { return ldb() * (tb == CUBLAS_OP_N ? n : k); }
  int size_c() const { return ldc() * n; }
};

template <class T>
T element(const T* matrix, cublasOperation_t op, int ld, int row, int column) {
  if (op == CUBLAS_OP_N) return matrix[column * ld + row];
  const T value = matrix[row * ld + column];
  return op == CUBLAS_OP_C ? conjugated(value) : value;
}

// F, N: storage and numbers of A and B; G, R: of C.
template <class F, class N, class G, class R>
std::vector<typename G::Stored> expected(const Shape& s, R alpha, R beta) {
  std::vector<N> a, b;
  for (auto v : values<F, N>(s.size_a() * s.batch, 1)) a.push_back(F::load(v));
  for (auto v : values<F, N>(s.size_b() * s.batch, 2)) b.push_back(F::load(v));
  auto c = values<G, R>(s.size_c() * s.batch, 3);
  for (int i = 0; i < s.batch; ++i) {
    for (int column = 0; column < s.n; ++column) {
      for (int row = 0; row < s.m; ++row) {
        R sum{};
        for (int k = 0; k < s.k; ++k) {
          sum += static_cast<R>(element(&a[i * s.size_a()], s.ta, s.lda(), row, k)) *
                 static_cast<R>(element(&b[i * s.size_b()], s.tb, s.ldb(), k, column));
        }
        auto& at = c[i * s.size_c() + column * s.ldc() + row];
        at = G::store(alpha * sum + beta * G::load(at));
      }
    }
  }
  return c;
}

// The strided, the pointer-array and the single call, with factors on host and device.
template <class F, class N, class G, class R>
void check_type(cudaDataType_t in, cudaDataType_t out, cublasComputeType_t compute, R alpha,
                R beta) {
  for (int variant = 0; variant < 18; ++variant) {
    const Shape s{kOperations[variant % 3], kOperations[variant / 3 % 3], 5, 4, 7, 3};
    const bool on_device = variant >= 9;
    DeviceArray a(values<F, N>(s.size_a() * s.batch, 1)), b(values<F, N>(s.size_b() * s.batch, 2));
    DeviceArray c(values<G, R>(s.size_c() * s.batch, 3)), c2(c.read());
    const auto as = a.slots(s.size_a()), bs = b.slots(s.size_b()), cs = c2.slots(s.size_c());
    const DeviceArray factors(std::vector<R>{alpha, beta});
    const R* pa = on_device ? factors.get() : &alpha;
    const R* pb = on_device ? factors.get() + 1 : &beta;
    cublasSetPointerMode_v2(handle(),
                            on_device ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST);
    CHECK_EQ(
        cublasGemmStridedBatchedEx(handle(), s.ta, s.tb, s.m, s.n, s.k, pa, a.get(), in, s.lda(),
                                   s.size_a(), b.get(), in, s.ldb(), s.size_b(), pb, c.get(), out,
                                   s.ldc(), s.size_c(), s.batch, compute, CUBLAS_GEMM_DEFAULT),
        CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasGemmBatchedEx(handle(), s.ta, s.tb, s.m, s.n, s.k, pa,
                                 reinterpret_cast<const void* const*>(as.get()), in, s.lda(),
                                 reinterpret_cast<const void* const*>(bs.get()), in, s.ldb(), pb,
                                 reinterpret_cast<void**>(cs.get()), out, s.ldc(), s.batch, compute,
                                 CUBLAS_GEMM_DEFAULT),
             CUBLAS_STATUS_SUCCESS);
    cublasSetPointerMode_v2(handle(), CUBLAS_POINTER_MODE_HOST);
    const auto right = expected<F, N, G, R>(s, alpha, beta);
    CHECK(c.read() == right);
    CHECK(c2.read() == right);
  }
}

}  // namespace

TEST(floats_and_doubles) {
  check_type<Plain<float>, float, Plain<float>, float>(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F,
                                                       2, -3);
  check_type<Plain<double>, double, Plain<double>, double>(CUDA_R_64F, CUDA_R_64F,
                                                           CUBLAS_COMPUTE_64F, 2, -3);
}

TEST(sixteen_bits_with_results_of_16_and_32) {
  check_type<Half, float, Half, float>(CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, 2, -3);
  check_type<Half, float, Plain<float>, float>(CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2, -3);
  check_type<Brain, float, Brain, float>(CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1, 1);
  check_type<Brain, float, Plain<float>, float>(CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2, -3);
}

TEST(complex_numbers) {
  check_type<Plain<Single>, Single, Plain<Single>, Single>(CUDA_C_32F, CUDA_C_32F,
                                                           CUBLAS_COMPUTE_32F, {2, 1}, {0, -3});
  check_type<Plain<Double>, Double, Plain<Double>, Double>(CUDA_C_64F, CUDA_C_64F,
                                                           CUBLAS_COMPUTE_64F, {2, 1}, {0, -3});
}

TEST(eight_bit_integers) {
  check_type<Plain<int8_t>, int8_t, Plain<int32_t>, int32_t>(CUDA_R_8I, CUDA_R_32I,
                                                             CUBLAS_COMPUTE_32I, 2, -3);
  check_type<Plain<int8_t>, int8_t, Plain<float>, float>(CUDA_R_8I, CUDA_R_32F, CUBLAS_COMPUTE_32F,
                                                         2, -3);
}

// Deeper than floats can sum exactly, at the extremes.
TEST(integer_sums_are_exact) {
  const int k = 5000, one = 1, zero = 0;
  std::vector<int8_t> low(k, -128);
  DeviceArray a(low);
  low[17] = 127;
  DeviceArray b(low);
  DeviceArray c(std::vector<int32_t>{-1});
  CHECK_EQ(cublasGemmEx(handle(), CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, k, &one, a.get(), CUDA_R_8I, 1,
                        b.get(), CUDA_R_8I, k, &zero, c.get(), CUDA_R_32I, 1, CUBLAS_COMPUTE_32I,
                        CUBLAS_GEMM_DEFAULT),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(c.read()[0], (k - 1) * 16384 - 128 * 127);
}

TEST(eight_bit_floats_are_refused) {
  const float one = 1;
  DeviceArray a(std::vector<uint8_t>(256));
  CHECK_EQ(cublasGemmEx(handle(), CUBLAS_OP_T, CUBLAS_OP_N, 16, 16, 16, &one, a.get(),
                        CUDA_R_8F_E4M3, 16, a.get(), CUDA_R_8F_E4M3, 16, &one, a.get(),
                        CUDA_R_8F_E4M3, 16, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
           CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(empty_products) {
  const float one = 1, half = 0.5f;
  DeviceArray c(std::vector<float>{2, 4, 6, 8});
  CHECK_EQ(cublasSgemm_v2(handle(), CUBLAS_OP_N, CUBLAS_OP_N, 0, 2, 2, &one, nullptr, 1, nullptr, 2,
                          &one, nullptr, 1),
           CUBLAS_STATUS_SUCCESS);
  // Nothing to sum: C is only scaled, and A and B are not looked at.
  CHECK_EQ(cublasSgemm_v2(handle(), CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 0, &one, nullptr, 2, nullptr, 1,
                          &half, c.get(), 2),
           CUBLAS_STATUS_SUCCESS);
  CHECK(c.read() == (std::vector<float>{1, 2, 3, 4}));
}

TEST(halves_with_factors_that_are_halves) {
  const Shape s{CUBLAS_OP_T, CUBLAS_OP_N, 5, 4, 7, 1};
  DeviceArray a(values<Half, float>(s.size_a(), 1)), b(values<Half, float>(s.size_b(), 2)),
      c(values<Half, float>(s.size_c(), 3));
  const uint16_t alpha = Half::store(2), beta = Half::store(-1);
  const auto half = [](const uint16_t* at) { return reinterpret_cast<const __half*>(at); };
  CHECK_EQ(
      cublasHgemm(handle(), s.ta, s.tb, s.m, s.n, s.k, half(&alpha), half(a.get()), s.lda(),
                  half(b.get()), s.ldb(), half(&beta), reinterpret_cast<__half*>(c.get()), s.ldc()),
      CUBLAS_STATUS_SUCCESS);
  CHECK((c.read() == expected<Half, float, Half, float>(s, 2, -1)));
}

TEST(groups_have_their_own_shapes) {
  using F = Plain<float>;
  const Shape shapes[] = {{CUBLAS_OP_N, CUBLAS_OP_T, 3, 2, 4, 2},
                          {CUBLAS_OP_T, CUBLAS_OP_N, 1, 5, 2, 1}};
  std::vector<float*> as, bs, cs;
  std::vector<std::unique_ptr<DeviceArray<float>>> kept;
  const auto add = [&](std::vector<float*>* to, int size, int batch, int seed) {
    kept.push_back(std::make_unique<DeviceArray<float>>(values<F, float>(size * batch, seed)));
    for (int i = 0; i < batch; ++i) to->push_back(kept.back()->get() + i * size);
  };
  for (const Shape& s : shapes) {
    add(&as, s.size_a(), s.batch, 1);
    add(&bs, s.size_b(), s.batch, 2);
    add(&cs, s.size_c(), s.batch, 3);
  }
  const Shape &x = shapes[0], &y = shapes[1];
  const cublasOperation_t ta[] = {x.ta, y.ta}, tb[] = {x.tb, y.tb};
  const int m[] = {x.m, y.m}, n[] = {x.n, y.n}, k[] = {x.k, y.k}, lda[] = {x.lda(), y.lda()},
            ldb[] = {x.ldb(), y.ldb()}, ldc[] = {x.ldc(), y.ldc()}, sizes[] = {x.batch, y.batch};
  const float alpha[] = {2, -1}, beta[] = {0, 3};
  DeviceArray pa(as), pb(bs), pc(cs);
  CHECK_EQ(cublasSgemmGroupedBatched(handle(), ta, tb, m, n, k, alpha, pa.get(), lda, pb.get(), ldb,
                                     beta, pc.get(), ldc, 2, sizes),
           CUBLAS_STATUS_SUCCESS);
  CHECK((kept[2]->read() == expected<F, float, F, float>(x, 2, 0)));
  CHECK((kept[5]->read() == expected<F, float, F, float>(y, -1, 3)));
}

CHECK_MAIN
