// Faults that hit what a launch has written: kernels, which are functions of this test, and calls
// of the BLAS part.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <vector>

#include "check.h"
#include "injection.h"

namespace {

// Bits that differ between what the same call gives without a fault and with one.
struct Region {
  const void* data;
  size_t bytes;
};
using Bits = std::vector<size_t>;
Bits differing(const std::vector<uint8_t>& right, const Region& region) {
  Bits found;
  const auto* now = static_cast<const uint8_t*>(region.data);
  for (size_t i = 0; i < region.bytes * 8; ++i) {
    if ((right[i / 8] ^ now[i / 8]) >> i % 8 & 1) found.push_back(i);
  }
  return found;
}

// Runs `call` without a fault and then, with `times` seeds, with one; returns which bytes of the
// region were hit how often. Each time it is exactly one bit of it.
std::map<size_t, int> hits(const Region& region, const std::function<void()>& call, int times,
                           const std::string& where = "kernel=cublas") {
  call();
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto* data = static_cast<const uint8_t*>(region.data);
  const std::vector<uint8_t> right(data, data + region.bytes);
  std::map<size_t, int> found;
  for (int seed = 0; seed < times; ++seed) {
    CHECK_EQ(inject("flip result=random " + where + " seed=" + std::to_string(seed)),
             std::string());
    call();
    CHECK_EQ(missed(), std::string());
    const Bits bits = differing(right, region);
    CHECK_EQ(bits.size(), size_t{1});
    if (bits.size() == 1) ++found[bits[0] / 8];
  }
  return found;
}

cublasHandle_t handle() {
  static cublasHandle_t made = [] {
    cublasHandle_t h;
    CHECK_EQ(cublasCreate(&h), CUBLAS_STATUS_SUCCESS);
    return h;
  }();
  return made;
}

template <class T>
void ones(T* to, size_t count, T one) {
  for (size_t i = 0; i < count; ++i) to[i] = one;
}

// Of a result of 2 rows in columns of 5 elements, each `element` bytes large, only rows are hit,
// and all of them are.
void expect_rows(const std::map<size_t, int>& found, size_t element, size_t columns) {
  for (const auto& [byte, count] : found) CHECK(byte / element % 5 < 2);
  std::map<size_t, int> elements;
  for (const auto& [byte, count] : found) elements[byte / element] += count;
  CHECK_EQ(elements.size(), 2 * columns);
}

const float one = 1, zero = 0;

}  // namespace

TEST(any_byte_of_a_product_is_hit_and_none_between_its_columns) {
  float *a = zeros<float>(4), *b = zeros<float>(6), *c = zeros<float>(15);
  ones(a, 4, 1.f);
  ones(b, 6, 1.f);
  const auto call = [&] {
    CHECK_EQ(
        cublasSgemm(handle(), CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 2, &one, a, 2, b, 2, &zero, c, 5),
        CUBLAS_STATUS_SUCCESS);
  };
  expect_rows(hits({c, 60}, call, 120), 4, 3);
}

TEST(products_of_halves_doubles_and_complex_numbers) {
  auto *a = zeros<uint16_t>(4), *b = zeros<uint16_t>(6), *c = zeros<uint16_t>(15);
  ones<uint16_t>(a, 4, 0x3c00);
  ones<uint16_t>(b, 6, 0x3c00);
  const auto halves = [&] {
    CHECK_EQ(cublasGemmEx(handle(), CUBLAS_OP_N, CUBLAS_OP_N, 2, 3, 2, &one, a, CUDA_R_16F, 2, b,
                          CUDA_R_16F, 2, &zero, c, CUDA_R_16F, 5, CUBLAS_COMPUTE_32F,
                          CUBLAS_GEMM_DEFAULT),
             CUBLAS_STATUS_SUCCESS);
  };
  expect_rows(hits({c, 30}, halves, 80), 2, 3);
  auto *za = zeros<cuDoubleComplex>(4), *zc = zeros<cuDoubleComplex>(10);
  ones(za, 4, make_cuDoubleComplex(1, 2));
  const cuDoubleComplex z1 = make_cuDoubleComplex(1, 0), z0 = make_cuDoubleComplex(0, 0);
  const auto complex = [&] {
    CHECK_EQ(
        cublasZgemm(handle(), CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &z1, za, 2, za, 2, &z0, zc, 5),
        CUBLAS_STATUS_SUCCESS);
  };
  expect_rows(hits({zc, 160}, complex, 80), 16, 2);
}

TEST(all_matrices_of_a_batch_are_hit) {
  float *a = zeros<float>(12), *c = zeros<float>(40);
  ones(a, 12, 1.f);
  const auto strided = [&] {
    CHECK_EQ(cublasSgemmStridedBatched(handle(), CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, 2, 4,
                                       a, 2, 4, &zero, c, 5, 10, 3),
             CUBLAS_STATUS_SUCCESS);
  };
  expect_rows(hits({c, 160}, strided, 160), 4, 6);
  float** slots = zeros<float*>(4);
  for (int i = 0; i < 2; ++i) slots[i] = a, slots[2 + i] = c + 20 * i;
  std::memset(c, 0, 160);
  const auto by_pointers = [&] {
    CHECK_EQ(cublasSgemmBatched(handle(), CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, slots, 2, slots,
                                2, &zero, slots + 2, 5, 2),
             CUBLAS_STATUS_SUCCESS);
  };
  expect_rows(hits({c, 160}, by_pointers, 100), 4, 4);
}

TEST(products_by_the_light_library) {
  float *a = zeros<float>(4), *b = zeros<float>(6), *c = zeros<float>(15), *bias = zeros<float>(2);
  ones(a, 4, 1.f);
  ones(b, 6, 1.f);
  cublasLtHandle_t lt;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t la, lb, lc;
  CHECK_EQ(cublasLtCreate(&lt), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  cublasLtMatrixLayoutCreate(&la, CUDA_R_32F, 2, 2, 2);
  cublasLtMatrixLayoutCreate(&lb, CUDA_R_32F, 2, 3, 2);
  cublasLtMatrixLayoutCreate(&lc, CUDA_R_32F, 2, 3, 5);
  const auto call = [&] {
    CHECK_EQ(cublasLtMatmul(lt, desc, &one, a, la, b, lb, &zero, c, lc, c, lc, nullptr, nullptr, 0,
                            nullptr),
             CUBLAS_STATUS_SUCCESS);
  };
  expect_rows(hits({c, 60}, call, 100), 4, 3);
}

TEST(vectors_solutions_and_factors) {
  float *a = zeros<float>(4), *x = zeros<float>(2), *y = zeros<float>(10);
  a[0] = a[3] = x[0] = x[1] = 1;
  const auto product = [&] {
    CHECK_EQ(cublasSgemv(handle(), CUBLAS_OP_N, 2, 2, &one, a, 2, x, 1, &zero, y, 5),
             CUBLAS_STATUS_SUCCESS);
  };
  for (const auto& [byte, count] : hits({y, 40}, product, 40)) CHECK_EQ(byte / 4 % 5, size_t{0});
  float** slots = zeros<float*>(1);
  int *pivots = zeros<int>(2), *info = zeros<int>(1);
  float* m = zeros<float>(4);
  slots[0] = m;
  const auto factors = [&] {
    cudaDeviceSynchronize();
    m[0] = 4, m[1] = 1, m[2] = 2, m[3] = 3;
    CHECK_EQ(cublasSgetrfBatched(handle(), 2, slots, 2, pivots, info, 1), CUBLAS_STATUS_SUCCESS);
  };
  int in_matrix = 0;
  // Pivots and codes are results as well: 12 of 28 bytes.
  factors();
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<float> right(m, m + 4);
  for (int seed = 0; seed < 60; ++seed) {
    CHECK_EQ(inject("flip result=random kernel=cublas seed=" + std::to_string(seed)),
             std::string());
    factors();
    CHECK_EQ(missed(), std::string());
    in_matrix += std::memcmp(m, right.data(), 16) != 0;
  }
  CHECK(in_matrix > 15 && in_matrix < 55);
}

TEST(bytes_that_a_kernel_has_changed_are_hit_evenly) {
  uint8_t *in = zeros<uint8_t>(4096), *out = zeros<uint8_t>(4096);
  uint8_t* statistic = zeros<uint8_t>(512);
  const auto call = [&] {
    // The first pointer is changed least; the second and third overlap.
    launch(0, "norm", {statistic, out, out + 100, in}, [=] {
      std::memset(statistic, 1, 4);
      std::memset(out + 50, 1, 100);
    });
    cudaDeviceSynchronize();
  };
  const auto reset = [&] {
    std::memset(statistic, 0, 512);
    std::memset(out, 0, 4096);
  };
  int of_statistic = 0, lower = 0, upper = 0;
  for (int seed = 0; seed < 400; ++seed) {
    reset();
    CHECK_EQ(inject("flip result=random seed=" + std::to_string(seed)), std::string());
    call();
    CHECK_EQ(missed(), std::string());
    for (int i = 0; i < 512; ++i) of_statistic += statistic[i] != (i < 4);
    for (int i = 0; i < 4096; ++i) {
      if (out[i] != (i >= 50 && i < 150)) ++(i < 100 ? lower : upper);
    }
  }
  CHECK_EQ(of_statistic + lower + upper, 400);
  CHECK(of_statistic > 3 && of_statistic < 40);  // 4 of 104 bytes
  CHECK(lower > 130 && lower < 260);
  CHECK(upper > 130 && upper < 260);
}

TEST(the_same_seed_hits_the_same_bit_and_repetitions_other_ones) {
  uint8_t* out = zeros<uint8_t>(4096);
  const auto flipped = [&](const std::string& request) {
    std::memset(out, 0, 4096);
    CHECK_EQ(inject(request), std::string());
    launch(0, "fill", {out}, [=] { std::memset(out, 0xff, 4096); });
    CHECK_EQ(missed(), std::string());
    int at = -1;
    for (int i = 0; i < 4096; ++i) at = out[i] != 0xff ? i * 256 + out[i] : at;
    CHECK(at >= 0);
    return at;
  };
  CHECK_EQ(flipped("flip result=random seed=7"), flipped("flip result=random seed=7"));
  CHECK(flipped("flip result=random seed=7") != flipped("flip result=random seed=8"));
  CHECK_EQ(inject("flip result=random kernel=fill every=1 times=5 seed=7"), std::string());
  for (int i = 0; i < 3; ++i) launch(0, "fill", {out}, [=] { std::memset(out, i, 4096); });
  CHECK_EQ(missed(), std::string("softgpu: the fault [flip result=random kernel=fill every=1 "
                                 "times=5 seed=7] happened [3] times only: there were no more "
                                 "launches of [fill]\n"));
}

TEST(a_flip_waits_for_a_launch_that_can_have_it) {
  uint8_t *in = zeros<uint8_t>(512), *out = zeros<uint8_t>(512);
  float* y = zeros<float>(4);
  CHECK_EQ(inject("flip result=changed byte=2 bit=1"), std::string());
  launch(0, "empty", {}, [] {});
  launch(0, "reads", {in, out}, [] {});
  launch(0, "little", {out}, [=] { out[5] = 1; });  // has no third byte
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_EQ(static_cast<int>(out[5]), 1);
  launch(0, "enough", {in, out}, [=] { std::memset(out + 8, 0x40, 4); });
  CHECK_EQ(missed(), std::string());
  CHECK_EQ(static_cast<int>(out[10]), 0x42);
  // The second pointer or result, and of it a byte that is there.
  CHECK_EQ(inject("flip result=2 byte=600"), std::string());
  launch(0, "two", {in, out}, [] {});
  CHECK_EQ(cublasSscal(handle(), 4, &one, y, 1), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(
      missed(),
      std::string("softgpu: the fault [flip result=2 byte=600] did not happen: of [2] launches "
                  "none could have it; of the last one: no bit was flipped: the launch has "
                  "[1] results\n"));
  CHECK_EQ(static_cast<int>(out[0]), 0);
}

TEST(bytes_of_neighbours_are_not_hit) {
  uint8_t* first = zeros<uint8_t>(512);
  uint8_t* second = zeros<uint8_t>(512);
  float *x = zeros<float>(2), *y = zeros<float>(2);
  const auto at = [](const void* p) { return std::to_string(reinterpret_cast<uint64_t>(p)); };
  CHECK_EQ(inject("flip address=" + at(first) + " byte=512"), std::string());
  CHECK_EQ(inject("flip result=1 byte=512 in=1"), std::string());
  launch(0, "k", {first}, [] {});
  CHECK_EQ(missed(), std::string("softgpu: the fault [flip result=1 byte=512 in=1] did not happen: "
                                 "of [1] launches none could have it; of the last one: no bit was "
                                 "flipped: the allocation has [512] bytes from there on, none of "
                                 "number [512]\n"));
  for (int i = 0; i < 512; ++i) CHECK_EQ(first[i] | second[i], 0);
  CHECK_EQ(inject("flip result=1 byte=8"), std::string());
  CHECK_EQ(cublasSaxpy(handle(), 2, &one, x, 1, y, 1), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(missed(), std::string("softgpu: the fault [flip result=1 byte=8] did not happen: of [1] "
                                 "launches none could have it; of the last one: no bit was "
                                 "flipped: the result has [8] bytes, none of number [8]\n"));
  CHECK_EQ(inject("flip result=1 byte=7 bit=6"), std::string());
  CHECK_EQ(cublasSaxpy(handle(), 2, &one, x, 1, y, 1), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(missed(), std::string());
  CHECK_EQ(y[1], 2.f);
}

TEST(what_never_came_to_pass_is_told) {
  CHECK_EQ(inject("hang in=3"), std::string());
  launch(0, "a", {}, [] {});
  CHECK_EQ(missed(), std::string("softgpu: the fault [hang in=3] did not happen: [1] launches came "
                                 "since it was asked for, it was to be at number [3]\n"));
  CHECK_EQ(inject("error code=700 kernel=none device=0"), std::string());
  launch(0, "a", {}, [] {});
  CHECK_EQ(missed(), std::string("softgpu: the fault [error code=700 kernel=none device=0] did not "
                                 "happen: [0] launches of [none] on device [0] came since it was "
                                 "asked for, it was to be at number [1]\n"));
}

TEST(what_has_come_to_pass_is_noted) {
  uint8_t* out = zeros<uint8_t>(512);
  unsigned char notes[256] = {};
  softgpu_note_faults(notes);
  CHECK_EQ(inject("flip result=changed note=5; slow us=1 note=255 times=1; "
                  "flip address=" +
                  std::to_string(reinterpret_cast<uint64_t>(out)) + " note=0"),
           std::string());
  CHECK_EQ(static_cast<int>(notes[0]), 1);
  CHECK_EQ(static_cast<int>(notes[5]), 0);
  launch(0, "nothing", {}, [] {});
  CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
  CHECK_EQ(notes[5] * 10 + notes[255], 1);
  launch(0, "k", {out}, [=] { out[3] = 1; });
  CHECK_EQ(missed(), std::string());
  CHECK_EQ(static_cast<int>(notes[5]), 1);
  CHECK_EQ(inject("lost note=256"),
           std::string("the fault [lost note=256] is not understood: [note] is [256], not a whole "
                       "number from [0] to [255]"));
  CHECK_EQ(inject("flip result=random byte=3"),
           std::string("the fault [flip result=random byte=3] is not understood: [byte] is drawn: "
                       "[random] excludes it"));
  CHECK_EQ(inject("flip result=1 seed=3"),
           std::string("the fault [flip result=1 seed=3] is not understood: [seed] is for "
                       "[result=random] and [live=random]"));
  softgpu_note_faults(nullptr);
}

CHECK_MAIN
