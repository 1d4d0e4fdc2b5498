#include "checkpoint/resources/module_image.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string_view>

// Declared here since machines have libzstd's run-time library but not always its headers.
extern "C" {
size_t ZSTD_decompress(void* dst, size_t dst_capacity, const void* src, size_t src_size);
unsigned ZSTD_isError(size_t code);
}

namespace pyft::checkpoint {

namespace {

using Bytes = std::span<const std::byte>;

constexpr uint32_t kFatbinMagic = 0xba55ed50;
constexpr uint16_t kKindElf = 2;
constexpr uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // a client must not be believed

struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};

// Offsets measured on CUDA 13.0 wheels.
struct Entry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t payload_bytes;  // padded
  uint32_t compressed_bytes, unknown[3];
  uint64_t unknown2, flags, unknown3, uncompressed_bytes;
};
static_assert(sizeof(Entry) == 64);

template <class T>
bool load(Bytes from, uint64_t at, T* out) {
  if (at > from.size() || from.size() - at < sizeof *out) return false;
  std::memcpy(out, from.data() + at, sizeof *out);
  return true;
}

Bytes part(Bytes from, uint64_t at, uint64_t bytes) {
  return at <= from.size() && bytes <= from.size() - at ? from.subspan(at, bytes) : Bytes();
}

// The LZ4 block format: runs of literals and back references.
bool expand_lz4(Bytes in, std::vector<std::byte>* out) {
  size_t i = 0, o = 0;
  const auto length = [&](size_t base) {
    for (size_t more = 255; base >= 15 && more == 255 && i < in.size();)
      base += more = std::to_integer<size_t>(in[i++]);
    return base;
  };
  while (i < in.size()) {
    const auto token = std::to_integer<size_t>(in[i++]);
    const size_t literals = length(token >> 4);
    if (literals > in.size() - i || literals > out->size() - o) return false;
    std::memcpy(out->data() + o, in.data() + i, literals);
    i += literals;
    o += literals;
    if (o == out->size() || i + 2 > in.size()) break;
    uint16_t distance = 0;
    std::memcpy(&distance, in.data() + i, sizeof distance);
    i += sizeof distance;
    const size_t match = length(token & 15) + 4;
    if (distance == 0 || distance > o || match > out->size() - o) return false;
    for (size_t k = 0; k < match; ++k, ++o) (*out)[o] = (*out)[o - distance];
  }
  return o == out->size();
}

bool expand(const Entry& entry, Bytes packed, std::vector<std::byte>* out) {
  if (entry.uncompressed_bytes > kMostBytes) return false;
  out->resize(entry.uncompressed_bytes);
  if (entry.flags & kFlagLz4) return expand_lz4(packed, out);
  const size_t got = ZSTD_decompress(out->data(), out->size(), packed.data(), packed.size());
  return !ZSTD_isError(got) && got == out->size();
}

std::string_view text_at(Bytes table, uint64_t at) {
  if (at >= table.size()) return {};
  const auto* text = reinterpret_cast<const char*>(table.data()) + at;
  return {text, strnlen(text, table.size() - at)};
}

class Cubin {
 public:
  explicit Cubin(Bytes elf) : elf_(elf) {}

  bool read(std::vector<std::string>* names) {
    if (!load(elf_, 0, &header_) || std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0)
      return false;
    for (unsigned i = 0; i < header_.e_shnum; ++i) {
      Elf64_Shdr table;
      if (!section(i, &table)) return false;
      if (table.sh_type == SHT_SYMTAB && !read_symbols(table, names)) return false;
    }
    return true;
  }

 private:
  bool section(unsigned index, Elf64_Shdr* out) const {
    return index < header_.e_shnum &&
           load(elf_, header_.e_shoff + uint64_t{index} * sizeof(Elf64_Shdr), out);
  }

  // Bank 3 is what programs call __constant__; the others are the compiler's own.
  bool holds_variables(unsigned index) const {
    Elf64_Shdr names, one;
    if (!section(header_.e_shstrndx, &names) || !section(index, &one)) return false;
    const auto name = text_at(part(elf_, names.sh_offset, names.sh_size), one.sh_name);
    return name.starts_with(".nv.global") || name.starts_with(".nv.constant3");
  }

  bool read_symbols(const Elf64_Shdr& table, std::vector<std::string>* names) const {
    Elf64_Shdr strings;
    if (!section(table.sh_link, &strings)) return false;
    const Bytes symbols = part(elf_, table.sh_offset, table.sh_size);
    const Bytes texts = part(elf_, strings.sh_offset, strings.sh_size);
    Elf64_Sym symbol;
    for (uint64_t at = 0; load(symbols, at, &symbol); at += sizeof symbol) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || !holds_variables(symbol.st_shndx))
        continue;
      if (const auto name = text_at(texts, symbol.st_name); !name.empty())
        names->emplace_back(name);
    }
    return true;
  }

  Bytes elf_;
  Elf64_Ehdr header_{};
};

bool read_entry(Bytes fatbin, uint64_t at, const Entry& entry, std::vector<std::string>* names) {
  const bool packed = entry.flags & (kFlagLz4 | kFlagZstd);
  const uint64_t bytes = packed ? entry.compressed_bytes : entry.payload_bytes;
  const Bytes payload = part(fatbin, at + entry.header_bytes, bytes);
  if (payload.empty()) return false;
  std::vector<std::byte> elf;
  if (packed && !expand(entry, payload, &elf)) return false;
  return Cubin(packed ? Bytes(elf) : payload).read(names);
}

}  // namespace

bool is_empty_object(std::string_view name, uint64_t bytes) {
  if (bytes != 1 || !name.starts_with("_ZN")) return false;
  // Lengths and names of namespaces, mangled.
  for (const std::string_view space : {"6thrust", "3cub", "4cuda3std", "4cute"})
    if (name.find(space) != std::string_view::npos) return true;
  return false;
}

bool variable_names(Bytes image, std::vector<std::string>* names, std::string* why) {
  *why = "the image is damaged";
  FatbinHeader header{};
  if (!load(image, 0, &header)) return false;
  if (header.magic != kFatbinMagic) {
    if (Cubin(image).read(names)) return true;
    *why = "it is no machine code";
    return false;
  }
  uint64_t at = header.header_bytes;
  Entry entry{};
  while (at - header.header_bytes < header.bytes) {
    if (!load(image, at, &entry) || entry.header_bytes < sizeof entry) return false;
    if (entry.kind != kKindElf) {
      *why = "it is no machine code";
      return false;
    }
    if (!read_entry(image, at, entry, names)) return false;
    if (__builtin_add_overflow(at, entry.header_bytes + entry.payload_bytes, &at)) return false;
  }
  return true;
}

}  // namespace pyft::checkpoint
