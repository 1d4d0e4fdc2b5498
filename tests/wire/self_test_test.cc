// The self-test of a GPU, on devices of this test's making: host memory, and a matrix product.
#include "server/self_test.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "check.h"

using pyft::backend::Table;

namespace {

std::vector<std::byte> memory;
size_t held = 0;              // mappings and memory not given back
size_t forgets_at = 0;        // byte of memory whose bit 3 is stuck at 0; 0: none
float error_of_products = 0;  // in one element
int create_code = 0;
int refusals = 0;  // of memory, before there is some

std::byte* at(CUdeviceptr address) {
  return reinterpret_cast<std::byte*>(address);
}

void stick() {
  if (forgets_at) memory[forgets_at] &= ~std::byte{8};
}

cublasStatus_t multiply(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                        const float*, const float* a, int lda, const float* b, int ldb,
                        const float*, float* c, int ldc) {
  for (int column = 0; column < n; ++column)
    for (int row = 0; row < m; ++row) {
      double sum = 0;  // another order and precision than the test's own
      for (int i = k - 1; i >= 0; --i) sum += double{a[i * lda + row]} * b[column * ldb + i];
      c[column * ldc + row] = static_cast<float>(sum);
    }
  c[ldc + 5] += error_of_products;
  return CUBLAS_STATUS_SUCCESS;
}

void take_memory(Table* table) {
  table->cuMemAddressReserve = [](CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                                  unsigned long long) {
    memory.resize(bytes);
    *address = reinterpret_cast<CUdeviceptr>(memory.data());
    ++held;
    return CUDA_SUCCESS;
  };
  table->cuMemAddressFree = [](CUdeviceptr, size_t) { return --held, CUDA_SUCCESS; };
  table->cuMemCreate = [](CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp* prop,
                          unsigned long long) {
    if (refusals-- > 0) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!create_code && prop->location.id == 3) ++held;
    return static_cast<CUresult>(create_code);
  };
  table->cuMemRelease = [](CUmemGenericAllocationHandle) { return --held, CUDA_SUCCESS; };
  table->cuMemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                       unsigned long long) { return ++held, CUDA_SUCCESS; };
  table->cuMemUnmap = [](CUdeviceptr, size_t) { return --held, CUDA_SUCCESS; };
  table->cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    return CUDA_SUCCESS;
  };
}

Table device() {
  Table table{};
  held = forgets_at = 0;
  error_of_products = 0;
  create_code = refusals = 0;
  take_memory(&table);
  table.cuMemsetD32Async = [](CUdeviceptr address, unsigned value, size_t count, CUstream) {
    for (size_t i = 0; i < count; ++i) std::memcpy(at(address) + i * 4, &value, 4);
    stick();
    return CUDA_SUCCESS;
  };
  table.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr from, size_t bytes, CUstream) {
    std::memcpy(to, at(from), bytes);
    return CUDA_SUCCESS;
  };
  table.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr to, const void* from, size_t bytes, CUstream) {
    std::memcpy(at(to), from, bytes);
    return CUDA_SUCCESS;
  };
  table.cuCtxSynchronize = [] { return CUDA_SUCCESS; };
  table.cublasCreate_v2 = [](cublasHandle_t*) { return CUBLAS_STATUS_SUCCESS; };
  table.cublasDestroy_v2 = [](cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; };
  table.cublasSgemm_v2 = multiply;
  return table;
}

}  // namespace

TEST(a_sound_device_passes_and_gets_everything_back) {
  CHECK_EQ(pyft::server::self_test(device(), 3), "");
  CHECK_EQ(held, 0u);
}

TEST(one_stuck_bit_is_found) {
  const Table table = device();
  forgets_at = 40'000'001;
  const std::string why = pyft::server::self_test(table, 3);
  CHECK(why.find("memory does not keep a pattern") == 0);
  CHECK_EQ(held, 0u);
}

TEST(one_wrong_element_of_a_product_is_found) {
  const Table table = device();
  error_of_products = 1;
  CHECK_EQ(pyft::server::self_test(table, 3), "a product of matrices is wrong");
}

TEST(a_call_that_fails_is_named) {
  const Table table = device();
  create_code = CUDA_ERROR_ECC_UNCORRECTABLE;
  CHECK_EQ(pyft::server::self_test(table, 3), "[cuMemCreate] fails with code [214]");
  CHECK_EQ(held, 0u);
}

// What the server before this one had may come back late, or others may have it.
TEST(a_device_without_free_memory_is_not_at_fault) {
  constexpr uint64_t kLong = 60'000'000'000;
  const Table table = device();
  refusals = 3;
  forgets_at = 40'000'001;
  CHECK(!pyft::server::self_test(table, 3, kLong).empty());  // it was tested
  refusals = 1;
  CHECK_EQ(pyft::server::self_test(table, 3, 0), "");
  CHECK_EQ(held, 0u);
}

CHECK_MAIN
