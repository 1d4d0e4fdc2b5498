// cuBLAS calls whose answers are the host's, rotations, copies of vectors and matrices, and what
// cuBLASLt's library is told of a product.
#include <cstring>
#include <map>
#include <vector>

#include "api/mock_table.h"
#include "check.h"
#include "one_process.h"
#include "ring/layout.h"

namespace {

using namespace pyft;  // NOLINT: a test

struct Seen {
  uint64_t a = 0, b = 0, infos = 0, pitch[2] = {};
  int order = 0, columns = 0, count = 0;
  float cosine = 0;
  cuComplex sine{};
} seen;

uint64_t number(const void* address) {
  return reinterpret_cast<uint64_t>(address);
}

cublasStatus_t give_blas(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(0x3000);
  return CUBLAS_STATUS_SUCCESS;
}

// As cuBLAS does it: the code, and the number of the argument that is wrong.
cublasStatus_t solve(cublasHandle_t, cublasOperation_t, int n, int columns, const float* const a[],
                     int, const int* pivots, float* const b[], int, int* info, int count) {
  *info = n < 0 ? -2 : 0;
  seen = {number(a), number(b), number(pivots), {}, n, columns, count, 0, {}};
  return n < 0 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t least_squares(cublasHandle_t, cublasOperation_t, int, int n, int columns,
                             double* const a[], int, double* const c[], int, int* info, int* infos,
                             int count) {
  *info = 0;
  seen = {number(a), number(c), number(infos), {}, n, columns, count, 0, {}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t rotate(cublasHandle_t, int n, cuComplex* x, int, cuComplex* y, int, const float* c,
                      const cuComplex* s) {
  seen = {number(x), number(y), 0, {}, n, 0, 0, *c, *s};
  return CUBLAS_STATUS_SUCCESS;
}

CUresult copy_lines(const CUDA_MEMCPY2D* copy, CUstream) {
  seen.pitch[0] = copy->srcPitch;
  seen.pitch[1] = copy->dstPitch;
  return CUDA_SUCCESS;
}

std::map<int, std::string> attributes;  // as the library gets them
int heuristics = 0;

cublasStatus_t set_attribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t id,
                             const void* value, size_t bytes) {
  attributes[id] = std::string(static_cast<const char*>(value), bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t choose(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                      cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                      cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t*,
                      int* found) {
  ++heuristics;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

OneProcess& process() {
  static backend::Table table = [] {
    backend::Table t = backend::mock_table();
    t.cublasCreate_v2 = give_blas;
    t.cublasSgetrsBatched = solve;
    t.cublasDgelsBatched = least_squares;
    t.cublasCrot_v2 = rotate;
    t.cuMemcpy2DAsync_v2 = copy_lines;
    t.cublasLtMatmulDescSetAttribute = set_attribute;
    t.cublasLtMatmulAlgoGetHeuristic = choose;
    return t;
  }();
  static auto* const made = new OneProcess(&table);
  return *made;
}

cublasHandle_t blas() {
  static cublasHandle_t handle = [] {
    process();
    cublasHandle_t made = nullptr;
    CHECK_EQ(cublasCreate_v2(&made), CUBLAS_STATUS_SUCCESS);
    return made;
  }();
  return handle;
}

template <class T>
T* device(uint64_t offset) {
  return reinterpret_cast<T*>(pyft::ring::kDeviceWindowBase + offset);
}

TEST(batched_solves_answer_with_the_wrong_argument_at_the_call) {
  int info = 7;
  auto* const a = device<const float*>(0);
  auto* const b = device<float*>(4096);
  const auto solved = [&](int n, int* told) {
    return cublasSgetrsBatched(blas(), CUBLAS_OP_N, n, 3, a, 4, device<int>(8192), b, 4, told, 5);
  };
  CHECK_EQ(solved(2, &info), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(info, 0);
  CHECK_EQ(seen.a, number(a));
  CHECK_EQ(seen.b, number(b));
  CHECK_EQ(seen.infos, number(device<int>(8192)));
  CHECK_EQ(seen.order, 2);
  CHECK_EQ(seen.columns, 3);
  CHECK_EQ(seen.count, 5);
  CHECK_EQ(solved(-1, &info), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_EQ(info, -2);
  CHECK_EQ(solved(2, nullptr), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(batched_least_squares_have_infos_on_the_device_or_none) {
  int info = 7;
  for (int* const infos : {device<int>(64), static_cast<int*>(nullptr)}) {
    CHECK_EQ(cublasDgelsBatched(blas(), CUBLAS_OP_N, 8, 4, 2, device<double*>(0), 8,
                                device<double*>(4096), 8, &info, infos, 6),
             CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(info, 0);
    CHECK_EQ(seen.infos, number(infos));
    CHECK_EQ(seen.count, 6);
  }
}

TEST(rotations_take_a_real_and_a_complex_scalar) {
  const float cosine = 0.5f;
  const cuComplex sine{0.25f, -2.0f};
  CHECK_EQ(
      cublasCrot_v2(blas(), 9, device<cuComplex>(0), 1, device<cuComplex>(512), 1, &cosine, &sine),
      CUBLAS_STATUS_SUCCESS);
  process().calls();
  CHECK_EQ(seen.order, 9);
  CHECK_EQ(seen.cosine, 0.5f);
  CHECK_EQ(seen.sine.x, 0.25f);
  CHECK_EQ(seen.sine.y, -2.0f);
}

TEST(vectors_and_matrices_are_copied_line_by_line) {
  blas();
  void* memory = nullptr;
  CHECK_EQ(cudaMalloc(&memory, 1 << 20), cudaSuccess);
  process().calls();
  std::vector<double> host(64);
  CHECK_EQ(cublasSetVector(8, 8, host.data(), 1, memory, 1), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(process().calls(), "cuMemcpyHtoDAsync_v2");
  CHECK_EQ(cublasGetMatrixAsync(4, 8, 8, memory, 4, host.data(), 4, nullptr),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(process().calls(), "cuMemcpyDtoHAsync_v2");
  auto* const second = static_cast<char*>(memory) + 4096;
  CHECK_EQ(cublasSetMatrixAsync(3, 5, 8, memory, 4, second, 6, nullptr), CUBLAS_STATUS_SUCCESS);
  process().calls();
  CHECK_EQ(seen.pitch[0], 4u * 8);
  CHECK_EQ(seen.pitch[1], 6u * 8);
  CHECK_EQ(cublasSetMatrix(5, 5, 8, host.data(), 4, memory, 5), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_EQ(cublasSetVector(8, 8, host.data(), 0, memory, 1), CUBLAS_STATUS_INVALID_VALUE);
  CHECK_EQ(cublasGetVectorAsync(0, 8, memory, 1, host.data(), 1, nullptr), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(process().calls(), "");
  CHECK_EQ(cudaFree(memory), cudaSuccess);
}

// A product of fp8 matrices, of which the library is asked for algorithms.
struct Product {
  Product() {
    CHECK_EQ(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
             CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasLtMatrixLayoutCreate(&layout, CUDA_R_8F_E4M3, 16, 16, 16),
             CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
  }
  ~Product() {
    cublasLtMatmulDescDestroy(desc);
    cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulPreferenceDestroy(preference);
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t id, T value) {
    CHECK_EQ(cublasLtMatmulDescSetAttribute(desc, id, &value, sizeof value), CUBLAS_STATUS_SUCCESS);
  }
  void ask() {
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    CHECK_EQ(
        cublasLtMatmulAlgoGetHeuristic(reinterpret_cast<cublasLtHandle_t>(blas()), desc, layout,
                                       layout, layout, layout, preference, 1, &result, &found),
        CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(found, 1);
  }
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};

template <class T>
std::string bytes_of_value(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

TEST(a_product_has_the_attributes_that_were_set_and_no_others) {
  Product product;
  product.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
  product.set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t{CUBLAS_OP_T});
  product.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t{CUDA_R_16BF});
  product.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, pyft::ring::kDeviceWindowBase + 0x1000);
  attributes.clear();
  product.ask();
  const std::map<int, std::string> wanted{
      {CUBLASLT_MATMUL_DESC_FAST_ACCUM, bytes_of_value(int8_t{1})},
      {CUBLASLT_MATMUL_DESC_TRANSA, bytes_of_value(int32_t{CUBLAS_OP_T})},
      {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bytes_of_value(int32_t{CUDA_R_16BF})},
      {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
       bytes_of_value(pyft::ring::kDeviceWindowBase + 0x1000)}};
  CHECK(attributes == wanted);
}

TEST(another_address_of_a_scale_asks_for_no_algorithm_again) {
  Product product;
  product.set(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, pyft::ring::kDeviceWindowBase + 0x1000);
  product.ask();
  const int before = heuristics;
  product.set(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, pyft::ring::kDeviceWindowBase + 0x2000);
  product.ask();
  CHECK_EQ(heuristics, before);
  product.set(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, uint64_t{0});
  product.ask();
  CHECK_EQ(heuristics, before + 1);
}

}  // namespace

CHECK_MAIN
