// Reads a cubin: an ELF file with one section per kernel and NVIDIA's own attribute records.
#ifndef SOFTGPU_LOADER_CUBIN_H_
#define SOFTGPU_LOADER_CUBIN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/kernel.h"

namespace softgpu {

enum class VariableSection : uint8_t { kGlobal, kGlobalInit, kConstant3 };

struct CubinVariable {
  VariableSection section = VariableSection::kGlobal;
  uint64_t offset = 0, size = 0;
};

// A 64-bit address in the constant4 table that is known only once memory has been given out.
struct CubinRelocation {
  uint64_t offset = 0;
  bool is_code = false;
  uint64_t code_address = 0;  // of vprintf, __assertfail
  VariableSection section = VariableSection::kGlobal;
  uint64_t addend = 0;  // offset of the object in its section plus the stored addend
};

struct CubinKernel {
  std::string name;
  std::span<const uint8_t> text, literals;  // literals: bank 2
  uint32_t register_count = 0, static_shared_bytes = 0, local_bytes = 0, max_threads = 1024;
  uint32_t param_base = 0x160, param_bytes = 0;
  std::vector<KernelParam> params;
  std::string problem;  // why it cannot run, if it cannot; the module's other kernels can
};

// All spans point into `image`.
struct Cubin {
  std::vector<uint8_t> image;
  std::map<std::string, CubinKernel> kernels;
  std::map<std::string, CubinVariable> variables;
  std::vector<CubinRelocation> relocations;
  std::span<const uint8_t> constant4, global_init, constant3;
  uint64_t global_bytes = 0;
};

// Every offset in the image is checked. Empty string on success, else one sentence.
std::string parse_cubin(std::vector<uint8_t> image, Cubin* cubin);

}  // namespace softgpu

#endif  // SOFTGPU_LOADER_CUBIN_H_
