#include "server/self_test.h"

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ring/wait.h"

namespace pyft::server {

namespace {

constexpr size_t kBytes = size_t{64} << 20;  // a multiple of the granularity
constexpr size_t kPiece = size_t{4} << 20;
constexpr uint32_t kPatterns[] = {0xa5a5a5a5, 0x5a5a5a5a};
constexpr int kSide = 256;
constexpr size_t kMatrix = size_t{kSide} * kSide;

std::string failed(const char* call, int code) {
  return std::string("[") + call + "] fails with code [" + std::to_string(code) + "]";
}

// Memory that is mapped as the program's is.
class Memory {
 public:
  explicit Memory(const backend::Table& table) : table_(table) {}
  Memory(const Memory&) = delete;
  ~Memory() {
    if (mapped_) table_.cuMemUnmap(address_, kBytes);
    if (created_) table_.cuMemRelease(handle_);
    if (address_) table_.cuMemAddressFree(address_, kBytes);
  }

  // Empty without `address()`: there is no memory to test, which is no fault of the GPU.
  std::string map(int ordinal, uint64_t patience_ns) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = ordinal;
    CUmemAccessDesc access{};
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const int created = create(prop, patience_ns);
    if (created == CUDA_ERROR_OUT_OF_MEMORY) return {};
    if (created) return failed("cuMemCreate", created);
    created_ = true;
    if (const int code = table_.cuMemAddressReserve(&address_, kBytes, 0, 0, 0))
      return failed("cuMemAddressReserve", code);
    if (const int code = table_.cuMemMap(address_, kBytes, 0, handle_, 0))
      return failed("cuMemMap", code);
    mapped_ = true;
    if (const int code = table_.cuMemSetAccess(address_, kBytes, &access, 1))
      return failed("cuMemSetAccess", code);
    return {};
  }

  CUdeviceptr address() const { return address_; }

 private:
  // The server before this one may have died so recently that its memory is not free again.
  int create(const CUmemAllocationProp& prop, uint64_t patience_ns) {
    const uint64_t until = ring::now_ns() + patience_ns;
    for (;;) {
      const int code = table_.cuMemCreate(&handle_, kBytes, &prop, 0);
      if (code != CUDA_ERROR_OUT_OF_MEMORY || ring::now_ns() >= until) return code;
      const timespec moment{0, 10'000'000};
      nanosleep(&moment, nullptr);
    }
  }

  const backend::Table& table_;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_{};
  bool created_ = false, mapped_ = false;
};

int read(const backend::Table& table, void* to, CUdeviceptr from, size_t bytes) {
  const int code = table.cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr);
  return code ? code : static_cast<int>(table.cuCtxSynchronize());
}

std::string keeps(const backend::Table& table, CUdeviceptr memory, uint32_t pattern) {
  if (const int code = table.cuMemsetD32Async(memory, pattern, kBytes / sizeof pattern, nullptr))
    return failed("cuMemsetD32Async", code);
  std::vector<uint32_t> piece(kPiece / sizeof pattern);
  for (size_t at = 0; at < kBytes; at += kPiece) {
    if (const int code = read(table, piece.data(), memory + at, kPiece))
      return failed("cuMemcpyDtoHAsync_v2", code);
    const auto wrong = std::ranges::find_if(piece, [=](uint32_t word) { return word != pattern; });
    if (wrong != piece.end())
      return "memory does not keep a pattern: [" + std::to_string(*wrong) + "] instead of [" +
             std::to_string(pattern) + "]";
  }
  return {};
}

// Small whole numbers: every product and sum is exact in whatever precision the library chooses.
std::vector<float> numbers(uint32_t seed) {
  std::vector<float> values(kMatrix);
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int>(seed >> 28) - 8);
  }
  return values;
}

// Column by column, as BLAS has them.
std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> c(kMatrix, 0);
  for (int column = 0; column < kSide; ++column)
    for (int k = 0; k < kSide; ++k) {
      const float factor = b[static_cast<size_t>(column * kSide + k)];
      for (int row = 0; row < kSide; ++row)
        c[static_cast<size_t>(column * kSide + row)] +=
            a[static_cast<size_t>(k * kSide + row)] * factor;
    }
  return c;
}

std::string multiplies(const backend::Table& table, CUdeviceptr memory) {
  constexpr size_t kMatrixBytes = kMatrix * sizeof(float);
  const std::vector<float> a = numbers(1), b = numbers(2);
  int code = table.cuMemcpyHtoDAsync_v2(memory, a.data(), kMatrixBytes, nullptr);
  if (!code)
    code = table.cuMemcpyHtoDAsync_v2(memory + kMatrixBytes, b.data(), kMatrixBytes, nullptr);
  if (code) return failed("cuMemcpyHtoDAsync_v2", code);
  cublasHandle_t blas = nullptr;
  const int created = table.cublasCreate_v2(&blas);
  if (created == CUBLAS_STATUS_ALLOC_FAILED) return {};
  if (created) return failed("cublasCreate_v2", created);
  const auto matrix = [=](size_t number) {
    return reinterpret_cast<float*>(memory + number * kMatrixBytes);
  };
  const float one = 1, zero = 0;
  const int status =
      table.cublasSgemm_v2(blas, CUBLAS_OP_N, CUBLAS_OP_N, kSide, kSide, kSide, &one, matrix(0),
                           kSide, matrix(1), kSide, &zero, matrix(2), kSide);
  std::vector<float> got(kMatrix);
  code = read(table, got.data(), memory + 2 * kMatrixBytes, kMatrixBytes);
  table.cublasDestroy_v2(blas);
  if (status) return failed("cublasSgemm_v2", status);
  if (code) return failed("cuMemcpyDtoHAsync_v2", code);
  return got == product(a, b) ? "" : "a product of matrices is wrong";
}

}  // namespace

std::string self_test(const backend::Table& table, int ordinal, uint64_t patience_ns) {
  Memory memory(table);
  std::string wrong = memory.map(ordinal, patience_ns);
  if (!memory.address()) return wrong;
  for (const uint32_t pattern : kPatterns)
    if (wrong.empty()) wrong = keeps(table, memory.address(), pattern);
  if (wrong.empty() && table.cublasCreate_v2 && table.cublasSgemm_v2)
    wrong = multiplies(table, memory.address());
  return wrong;
}

}  // namespace pyft::server
