// Relocations of a cubin, and the code of separately compiled functions put together.
#include "loader/reader.h"

namespace softgpu {
namespace {

// Relocation types: an address of 64 bits, also as a generic one; its halves in bits 32..63 of an
// instruction; 47 bits of a code address in units of four bytes from bit 34 of an instruction.
constexpr uint32_t kRelocation64 = 2, kRelocationGeneric64 = 4, kRelocationLow = 56,
                   kRelocationHigh = 57, kRelocationCall = 58;
constexpr unsigned kCallFirst = 34, kCallWidth = 47;

bool is_code_place(const Section& s) {
  return s.name.starts_with(kText);
}

bool find_kind(uint32_t type, RelocationKind* kind) {
  switch (type) {
    case kRelocation64:
    case kRelocationGeneric64:
      *kind = RelocationKind::kAddress64;
      return true;
    case kRelocationLow:
      *kind = RelocationKind::kLow32;
      return true;
    case kRelocationHigh:
      *kind = RelocationKind::kHigh32;
      return true;
    case kRelocationCall:
      *kind = RelocationKind::kCall;
      return true;
    default:
      return false;
  }
}

size_t bytes_of(RelocationKind kind) {
  return kind == RelocationKind::kAddress64 ? 8 : 16;
}

// Addresses of the functions that the driver provides. Those the soft GPU lacks fault when called.
uint64_t driver_function(std::string_view name) {
  if (name == "vprintf") return kSyscallVprintf;
  if (name == "__assertfail") return kSyscallAssertfail;
  if (name == "malloc") return kSyscallMalloc;
  if (name == "free") return kSyscallFree;
  return 0;
}

}  // namespace

void apply_relocation(const CubinRelocation& relocation, uint64_t address,
                      std::span<uint8_t> target) {
  // A damaged cubin may have two sections of a name, and the relocations of the other one.
  const size_t bytes = bytes_of(relocation.kind);
  if (relocation.offset > target.size() || bytes > target.size() - relocation.offset) return;
  uint8_t* at = target.data() + relocation.offset;
  if (relocation.kind == RelocationKind::kAddress64) {
    std::memcpy(at, &address, sizeof address);
  } else if (relocation.kind == RelocationKind::kCall) {
    uint64_t low, high;
    std::memcpy(&low, at, 8);
    std::memcpy(&high, at + 8, 8);
    const uint64_t value = address >> 2 & ((uint64_t{1} << kCallWidth) - 1);
    const unsigned above = kCallFirst + kCallWidth - 64;
    low = (low & ((uint64_t{1} << kCallFirst) - 1)) | value << kCallFirst;
    high = high >> above << above | value >> (64 - kCallFirst);
    std::memcpy(at, &low, 8);
    std::memcpy(at + 8, &high, 8);
  } else {
    const bool is_low = relocation.kind == RelocationKind::kLow32;
    const auto half = static_cast<uint32_t>(is_low ? address : address >> 32);
    std::memcpy(at + 4, &half, sizeof half);
  }
}

// Only where code has relocations: there functions may call each other. Code addresses are offsets
// in the linked code.
void Reader::link_code() {
  bool any = false;
  for (const Section& s : sections_) {
    if (s.header.sh_type != SHT_REL && s.header.sh_type != SHT_RELA) continue;
    any =
        any || (s.header.sh_info < sections_.size() && is_code_place(sections_[s.header.sh_info]));
  }
  code_offsets_.assign(sections_.size(), 0);
  if (!any) return;
  // A trap first: a null pointer is the address of no function.
  constexpr uint64_t kTrap[2] = {0x000000040000795c, 0x300000};
  const auto* trap = reinterpret_cast<const uint8_t*>(kTrap);
  cubin_.linked_code.assign(trap, trap + sizeof kTrap);
  for (size_t i = 0; i < sections_.size(); ++i) {
    const Section& s = sections_[i];
    if (!is_code_place(s)) continue;
    code_offsets_[i] = cubin_.linked_code.size();
    cubin_.linked_code.insert(cubin_.linked_code.end(), s.data.begin(), s.data.end());
    const auto kernel = cubin_.kernels.find(std::string(s.name.substr(kText.size())));
    if (kernel != cubin_.kernels.end()) kernel->second.entry = code_offsets_[i];
  }
}

// Where the symbol lies; the symbol's value is added to the addend.
std::string Reader::resolve(uint32_t symbol, CubinRelocation* relocation) {
  const Elf64_Sym& entry = symbols_[symbol];
  const std::string_view name = symbol_names_[symbol];
  relocation->addend += entry.st_value;
  if (variable_section(entry.st_shndx, &relocation->section)) return "";
  relocation->is_code = true;
  if (entry.st_shndx < sections_.size() && is_code_place(sections_[entry.st_shndx]) &&
      !cubin_.linked_code.empty()) {
    relocation->code_address = code_offsets_[entry.st_shndx] + relocation->addend;
    return "";
  }
  relocation->code_address = driver_function(name);
  if (relocation->code_address) return "";
  return "the cubin needs the undefined symbol [" + std::string(name) + "]";
}

std::string Reader::read_relocation(const Elf64_Rela& entry, const Section& target, bool has_addend,
                                    CubinRelocation* relocation) {
  const uint32_t index = ELF64_R_SYM(entry.r_info), type = ELF64_R_TYPE(entry.r_info);
  if (!find_kind(type, &relocation->kind) || index >= symbols_.size()) {
    return "the cubin has a relocation of type [" + std::to_string(type) + "]";
  }
  const size_t bytes = bytes_of(relocation->kind);
  if (entry.r_offset > target.data.size() || bytes > target.data.size() - entry.r_offset) {
    return "a relocation lies outside its section [" + std::string(target.name) + "]";
  }
  if (has_addend) {
    relocation->addend = static_cast<uint64_t>(entry.r_addend);
  } else if (relocation->kind == RelocationKind::kAddress64) {
    take(target.data, entry.r_offset, &relocation->addend);
  }  // instructions have nothing stored: their linker writes addends
  relocation->offset += entry.r_offset;
  return resolve(index, relocation);
}

std::string Reader::read_relocations(const Section& table, const Section& target,
                                     CubinRelocation where) {
  const bool addends = table.header.sh_type == SHT_RELA;
  const size_t size = addends ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
  for (size_t at = 0; at + size <= table.data.size(); at += size) {
    Elf64_Rela entry{};
    std::memcpy(&entry, table.data.data() + at, size);
    CubinRelocation relocation = where;
    if (std::string error = read_relocation(entry, target, addends, &relocation); !error.empty()) {
      return error;
    }
    cubin_.relocations.push_back(relocation);
  }
  return "";
}

std::string Reader::read_relocations() {
  for (const Section& s : sections_) {
    if (s.header.sh_type != SHT_RELA && s.header.sh_type != SHT_REL) continue;
    if (s.header.sh_info >= sections_.size()) continue;
    const Section& target = sections_[s.header.sh_info];
    if (!(target.header.sh_flags & SHF_ALLOC)) continue;  // debug information
    CubinRelocation where;
    if (is_code_place(target)) {
      where.place = RelocationPlace::kCode;
      where.offset = code_offsets_[s.header.sh_info];
    } else if (target.name == ".nv.global.init") {
      where.place = RelocationPlace::kGlobalInit;
    } else if (target.name != ".nv.constant4") {
      return "the cubin has relocations in [" + std::string(target.name) + "]";
    }
    const std::string error = read_relocations(s, target, where);
    if (error.empty()) continue;
    if (where.place != RelocationPlace::kCode) return error;
    for (auto& [name, kernel] : cubin_.kernels) kernel.problem = error;  // they share the code
  }
  return "";
}

}  // namespace softgpu
