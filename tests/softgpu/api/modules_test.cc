#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "check.h"
#include "loader/cubin.h"
#include "loader/fatbin.h"

namespace {

void put(std::vector<uint8_t>& bytes, size_t offset, uint64_t value, size_t size) {
  std::memcpy(bytes.data() + offset, &value, size);
}

// A fat binary with one uncompressed entry for an architecture.
std::vector<uint8_t> fatbin(uint32_t arch) {
  std::vector<uint8_t> out(16 + 64 + 16);
  put(out, 0, 0xBA55ED50, 4);
  put(out, 4, 1, 2);
  put(out, 6, 16, 2);
  put(out, 8, out.size() - 16, 8);
  put(out, 16, 2, 2);       // kind: ELF
  put(out, 16 + 4, 64, 4);  // header size
  put(out, 16 + 8, 16, 8);  // payload
  put(out, 16 + 28, arch, 4);
  std::memcpy(out.data() + 80, "0123456789abcdef", 16);
  return out;
}

}  // namespace

TEST(fat_binary_entry_is_chosen_by_architecture) {
  std::vector<uint8_t> cubin;
  CHECK_EQ(softgpu::extract_cubin(fatbin(75).data(), &cubin), std::string());
  CHECK_EQ(std::string(cubin.begin(), cubin.end()), std::string("0123456789abcdef"));
  CHECK_EQ(softgpu::extract_cubin(fatbin(90).data(), &cubin),
           std::string("no machine code for sm_75 in the fat binary, which has [sm_90]"));
}

TEST(lz4_entry_is_expanded) {
  // "abcabcabcabcX": three literals, a match of nine at distance three, one literal.
  const std::vector<uint8_t> lz4 = {0x35, 'a', 'b', 'c', 3, 0, 0x10, 'X'};
  std::vector<uint8_t> image = fatbin(75);
  std::memcpy(image.data() + 80, lz4.data(), lz4.size());
  put(image, 16 + 16, lz4.size(), 4);
  put(image, 16 + 40, 0x2011, 8);
  put(image, 16 + 56, 13, 8);
  std::vector<uint8_t> cubin;
  CHECK_EQ(softgpu::extract_cubin(image.data(), &cubin), std::string());
  CHECK_EQ(std::string(cubin.begin(), cubin.end()), std::string("abcabcabcabcX"));
}

TEST(damaged_cubins_are_refused) {
  softgpu::Cubin cubin;
  CHECK_EQ(softgpu::parse_cubin(std::vector<uint8_t>(100), &cubin),
           std::string("the cubin is not an ELF file"));
  std::vector<uint8_t> elf(64);
  std::memcpy(elf.data(), "\177ELF\2", 5);
  put(elf, 18, 190, 2);   // machine
  put(elf, 58, 64, 2);    // section header size
  put(elf, 40, 1000, 8);  // section headers outside the file
  put(elf, 60, 1, 2);
  CHECK_EQ(softgpu::parse_cubin(elf, &cubin),
           std::string("section header [0] of the cubin lies outside the file"));
}

TEST(unknown_images_and_functions) {
  CUmodule module = nullptr;
  const std::vector<char> ptx = {'.', 'v', 'e', 'r', 's', 'i', 'o', 'n', 0, 0, 0, 0, 0, 0, 0, 0};
  CHECK_EQ(cuModuleLoadData(&module, ptx.data()), CUDA_ERROR_INVALID_IMAGE);
  int not_a_kernel = 0;
  CHECK_EQ(cudaLaunchKernel(&not_a_kernel, 1, 1, nullptr, 0, nullptr),
           cudaErrorInvalidDeviceFunction);
  CHECK_EQ(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
}

TEST(functions_are_found_by_name_in_their_newest_version) {
  void *by_name = nullptr, *none = &by_name;
  CUdriverProcAddressQueryResult found;
  CHECK_EQ(cuGetProcAddress("cuMemAlloc", &by_name, 13000, 0, &found), CUDA_SUCCESS);
  CHECK_EQ(cuGetProcAddress("cuNoSuchFunction", &none, 13000, 0, &found), CUDA_SUCCESS);
  CHECK_EQ(found, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(none == nullptr);
}

CHECK_MAIN
