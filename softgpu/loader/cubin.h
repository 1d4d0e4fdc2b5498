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

enum class RelocationPlace : uint8_t { kConstant4, kGlobalInit, kCode };
// What is stored: 64 bits; a half of them in the immediate of an instruction; the target of a call.
enum class RelocationKind : uint8_t { kAddress64, kLow32, kHigh32, kCall };

// An address that is known only once memory has been given out.
struct CubinRelocation {
  RelocationPlace place = RelocationPlace::kConstant4;
  RelocationKind kind = RelocationKind::kAddress64;
  uint64_t offset = 0;  // in the constant4 table, the initial values or the linked code
  bool is_code = false;
  uint64_t code_address = 0;  // of a function in the linked code or of the driver
  VariableSection section = VariableSection::kGlobal;
  uint64_t addend = 0;  // offset of the object in its section plus the stored addend
};

struct CubinKernel {
  std::string name;
  std::span<const uint8_t> text, literals;  // literals: bank 2
  uint32_t register_count = 0, static_shared_bytes = 0, local_bytes = 0, max_threads = 1024;
  uint32_t param_base = 0x160, param_bytes = 0;
  std::vector<KernelParam> params;
  uint64_t entry = 0;   // where `text` begins in the linked code, if there is that
  std::string problem;  // why it cannot run, if it cannot; the module's other kernels can
};

using SharedImage = std::shared_ptr<const std::vector<uint8_t>>;

// All spans point into `image`.
struct Cubin {
  SharedImage image;
  std::map<std::string, CubinKernel> kernels;
  std::map<std::string, CubinVariable> variables;
  std::vector<CubinRelocation> relocations;
  std::span<const uint8_t> constant4, global_init, constant3;
  uint64_t global_bytes = 0;
  // Separately compiled functions call each other: all code of the module in one piece, unpatched.
  // Empty where no code has relocations.
  std::vector<uint8_t> linked_code;
};

// Writes the address into what the relocation patches; `target` is the place it lies in.
void apply_relocation(const CubinRelocation& relocation, uint64_t address,
                      std::span<uint8_t> target);

// Every offset in the image is checked. Empty string on success, else one sentence.
std::string parse_cubin(SharedImage image, Cubin* cubin);
inline std::string parse_cubin(std::vector<uint8_t> image, Cubin* cubin) {
  return parse_cubin(std::make_shared<const std::vector<uint8_t>>(std::move(image)), cubin);
}

}  // namespace softgpu

#endif  // SOFTGPU_LOADER_CUBIN_H_
