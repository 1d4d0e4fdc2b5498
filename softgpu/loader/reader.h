// The reader of one cubin; shared by cubin.cc (sections, symbols, kernels) and relocation.cc only.
#ifndef SOFTGPU_LOADER_READER_H_
#define SOFTGPU_LOADER_READER_H_

#include <elf.h>

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/cubin.h"

namespace softgpu {

inline constexpr std::string_view kText = ".text.";

struct Section {
  std::string_view name;
  Elf64_Shdr header;
  std::span<const uint8_t> data;  // empty for NOBITS
};

class Reader {
 public:
  explicit Reader(Cubin* cubin) : cubin_(*cubin) {}
  std::string read();

 private:
  std::string read_sections();
  std::string read_symbols();
  void read_kernels();
  void read_kernel_info(CubinKernel& kernel, std::span<const uint8_t> records);
  void read_module_info(std::span<const uint8_t> records);
  void link_code();
  std::string read_relocations();
  std::string read_relocations(const Section& table, const Section& target, CubinRelocation where);
  std::string read_relocation(const Elf64_Rela& entry, const Section& target, bool has_addend,
                              CubinRelocation* relocation);
  std::string resolve(uint32_t symbol, CubinRelocation* relocation);
  std::span<const uint8_t> slice(uint64_t offset, uint64_t size, bool* ok) const;
  std::string_view text_at(std::span<const uint8_t> strings, uint64_t offset) const;
  const Section* find(std::string_view name) const;
  bool variable_section(uint32_t index, VariableSection* kind) const;

  Cubin& cubin_;
  std::vector<Section> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::vector<std::string_view> symbol_names_;
  std::vector<uint64_t> code_offsets_;  // by section, in the linked code
};

template <class T>
bool take(std::span<const uint8_t> from, uint64_t offset, T* value) {
  if (offset > from.size() || sizeof(T) > from.size() - offset) return false;
  std::memcpy(value, from.data() + offset, sizeof(T));
  return true;
}

}  // namespace softgpu

#endif  // SOFTGPU_LOADER_READER_H_
