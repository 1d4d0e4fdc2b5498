#include "loader/cubin.h"

#include <algorithm>
#include <cstring>

#include "loader/reader.h"

namespace softgpu {
namespace {

constexpr uint16_t kMachineCuda = 190;
constexpr uint64_t kMaxGlobalBytes = uint64_t{1} << 40;  // no device has as much
constexpr uint32_t kInfoSection = 0x70000000;

// Attributes of .nv.info records.
constexpr uint8_t kFormatPayload = 4;
constexpr uint8_t kMaxThreads = 0x05, kParamBank = 0x0a, kMinStackSize = 0x12, kParamInfo = 0x17,
                  kRegisterCount = 0x2f;
constexpr uint8_t kParamInfo2 = 0x45;  // where parameters exceed 4 KB; with a size of 32 bits

// Calls `use(attribute, value16, payload)` for each record of a .nv.info section.
template <class Use>
void for_each_record(std::span<const uint8_t> data, Use use) {
  size_t at = 0;
  while (at + 4 <= data.size()) {
    uint16_t value = 0;
    take(data, at + 2, &value);
    const uint8_t format = data[at], attribute = data[at + 1];
    at += 4;
    const size_t size = format == kFormatPayload ? value : 0;
    if (size > data.size() - at) return;
    use(attribute, value, data.subspan(at, size));
    at += size;
  }
}

}  // namespace

std::span<const uint8_t> Reader::slice(uint64_t offset, uint64_t size, bool* ok) const {
  const auto& image = *cubin_.image;
  *ok = offset <= image.size() && size <= image.size() - offset;
  return *ok ? std::span<const uint8_t>(image).subspan(offset, size) : std::span<const uint8_t>();
}

std::string_view Reader::text_at(std::span<const uint8_t> strings, uint64_t offset) const {
  if (offset >= strings.size()) return "";
  const auto* begin = reinterpret_cast<const char*>(strings.data()) + offset;
  return {begin, strnlen(begin, strings.size() - offset)};
}

const Section* Reader::find(std::string_view name) const {
  for (const Section& s : sections_) {
    if (s.name == name) return &s;
  }
  return nullptr;
}

std::string Reader::read_sections() {
  Elf64_Ehdr elf;
  if (!take(*cubin_.image, 0, &elf) || std::memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0) {
    return "the cubin is not an ELF file";
  }
  if (elf.e_machine != kMachineCuda || elf.e_shentsize != sizeof(Elf64_Shdr)) {
    return "the cubin is an ELF file for machine [" + std::to_string(elf.e_machine) + "]";
  }
  for (uint32_t i = 0; i < elf.e_shnum; ++i) {
    Section s;
    bool ok = true;
    if (!take(*cubin_.image, elf.e_shoff + i * sizeof(Elf64_Shdr), &s.header)) {
      return "section header [" + std::to_string(i) + "] of the cubin lies outside the file";
    }
    if (s.header.sh_type != SHT_NOBITS) s.data = slice(s.header.sh_offset, s.header.sh_size, &ok);
    if (!ok) return "section [" + std::to_string(i) + "] of the cubin lies outside the file";
    sections_.push_back(s);
  }
  if (elf.e_shstrndx >= sections_.size()) return "the cubin has no section names";
  const auto names = sections_[elf.e_shstrndx].data;
  for (Section& s : sections_) s.name = text_at(names, s.header.sh_name);
  return "";
}

bool Reader::variable_section(uint32_t index, VariableSection* kind) const {
  if (index >= sections_.size()) return false;
  const std::string_view name = sections_[index].name;
  if (name == ".nv.global") {
    *kind = VariableSection::kGlobal;
  } else if (name == ".nv.global.init") {
    *kind = VariableSection::kGlobalInit;
  } else if (name == ".nv.constant3") {
    *kind = VariableSection::kConstant3;
  } else {
    return false;
  }
  return true;
}

std::string Reader::read_symbols() {
  for (const Section& table : sections_) {
    if (table.header.sh_type != SHT_SYMTAB) continue;
    if (table.header.sh_link >= sections_.size()) return "the cubin's symbols have no names";
    const auto names = sections_[table.header.sh_link].data;
    for (size_t at = 0; at + sizeof(Elf64_Sym) <= table.data.size(); at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      take(table.data, at, &symbol);
      symbols_.push_back(symbol);
      symbol_names_.push_back(text_at(names, symbol.st_name));
      VariableSection kind;
      if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && variable_section(symbol.st_shndx, &kind)) {
        cubin_.variables[std::string(symbol_names_.back())] = {kind, symbol.st_value,
                                                               symbol.st_size};
      }
    }
  }
  return "";
}

void Reader::read_kernel_info(CubinKernel& kernel, std::span<const uint8_t> records) {
  for_each_record(records, [&](uint8_t attribute, uint16_t, std::span<const uint8_t> payload) {
    if (attribute == kParamBank) {
      uint16_t base = 0, size = 0;
      if (!take(payload, 4, &base) || !take(payload, 6, &size)) return;
      kernel.param_base = base;
      kernel.param_bytes = size;
    } else if (attribute == kMaxThreads) {
      uint32_t x = 0, y = 1, z = 1;
      if (!take(payload, 0, &x)) return;
      take(payload, 4, &y);
      take(payload, 8, &z);
      kernel.max_threads = std::min<uint64_t>(uint64_t{x} * y * z, 1024);
    } else if (attribute == kParamInfo || attribute == kParamInfo2) {
      uint16_t ordinal = 0, offset = 0;
      uint32_t packed = 0;
      if (!take(payload, 4, &ordinal) || !take(payload, 6, &offset) || !take(payload, 8, &packed)) {
        return;
      }
      if (kernel.params.size() <= ordinal) kernel.params.resize(ordinal + 1u);
      const uint32_t bytes = attribute == kParamInfo ? packed >> 18 & 0x3fff : packed;
      kernel.params[ordinal] = {offset, static_cast<uint16_t>(std::min(bytes, 0xffffu))};
    }
  });
}

void Reader::read_module_info(std::span<const uint8_t> records) {
  for_each_record(records, [&](uint8_t attribute, uint16_t, std::span<const uint8_t> payload) {
    uint32_t symbol = 0, value = 0;
    if (attribute != kMinStackSize && attribute != kRegisterCount) return;
    if (!take(payload, 0, &symbol) || !take(payload, 4, &value)) return;
    if (symbol >= symbols_.size()) return;
    const auto it = cubin_.kernels.find(std::string(symbol_names_[symbol]));
    if (it == cubin_.kernels.end()) return;
    (attribute == kMinStackSize ? it->second.local_bytes : it->second.register_count) = value;
  });
}

void Reader::read_kernels() {
  constexpr std::string_view kInfo = ".nv.info.", kLiterals = ".nv.constant2.",
                             kShared = ".nv.shared.";
  for (const Section& s : sections_) {
    if (!s.name.starts_with(kText)) continue;
    CubinKernel kernel;
    kernel.name = s.name.substr(kText.size());
    kernel.text = s.data;
    kernel.register_count = s.header.sh_info >> 24;
    cubin_.kernels[kernel.name] = std::move(kernel);
  }
  const auto kernel_of = [&](const Section& s, std::string_view prefix) -> CubinKernel* {
    if (!s.name.starts_with(prefix)) return nullptr;
    const auto it = cubin_.kernels.find(std::string(s.name.substr(prefix.size())));
    return it == cubin_.kernels.end() ? nullptr : &it->second;
  };
  for (const Section& s : sections_) {
    if (CubinKernel* info_of = kernel_of(s, kInfo)) {
      read_kernel_info(*info_of, s.data);
    } else if (CubinKernel* literals_of = kernel_of(s, kLiterals)) {
      literals_of->literals = s.data;
    } else if (CubinKernel* shared_of = kernel_of(s, kShared)) {
      shared_of->static_shared_bytes = static_cast<uint32_t>(s.header.sh_size);
    } else if (s.name == ".nv.info") {
      read_module_info(s.data);
    }
  }
}

std::string Reader::read() {
  if (std::string error = read_sections(); !error.empty()) return error;
  if (std::string error = read_symbols(); !error.empty()) return error;
  read_kernels();
  link_code();
  if (const Section* s = find(".nv.global")) cubin_.global_bytes = s->header.sh_size;
  if (const Section* s = find(".nv.global.init")) cubin_.global_init = s->data;
  if (const Section* s = find(".nv.constant3")) cubin_.constant3 = s->data;
  if (const Section* s = find(".nv.constant4")) cubin_.constant4 = s->data;
  if (cubin_.global_bytes > kMaxGlobalBytes) {
    return "the cubin has [" + std::to_string(cubin_.global_bytes) + "] bytes of variables";
  }
  return read_relocations();
}

std::string parse_cubin(SharedImage image, Cubin* cubin) {
  cubin->image = std::move(image);
  return Reader(cubin).read();
}

}  // namespace softgpu
