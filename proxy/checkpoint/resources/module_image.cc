#include "checkpoint/resources/module_image.h"

#include <elf.h>

#include <algorithm>
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
constexpr uint16_t kMostParameters = 4096;          // more than fit in 32 KB

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

  bool is_elf() {
    return load(elf_, 0, &header_) && std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0;
  }

  bool read(std::vector<std::string>* names) {
    if (!is_elf()) return false;
    for (unsigned i = 0; i < header_.e_shnum; ++i) {
      Elf64_Shdr table;
      if (!section(i, &table)) return false;
      if (table.sh_type == SHT_SYMTAB && !read_symbols(table, names)) return false;
    }
    return true;
  }

  bool read(KernelParameters* kernels) {
    constexpr std::string_view kInfo = ".nv.info.";
    if (!is_elf()) return false;
    for (unsigned i = 0; i < header_.e_shnum; ++i) {
      Elf64_Shdr one;
      if (!section(i, &one)) return false;
      const std::string_view name = name_of(one);
      if (name.starts_with(kInfo))
        read_records(part(elf_, one.sh_offset, one.sh_size),
                     &(*kernels)[std::string(name.substr(kInfo.size()))]);
    }
    return true;
  }

 private:
  bool section(unsigned index, Elf64_Shdr* out) const {
    return index < header_.e_shnum &&
           load(elf_, header_.e_shoff + uint64_t{index} * sizeof(Elf64_Shdr), out);
  }

  std::string_view name_of(const Elf64_Shdr& one) const {
    Elf64_Shdr names;
    if (!section(header_.e_shstrndx, &names)) return {};
    return text_at(part(elf_, names.sh_offset, names.sh_size), one.sh_name);
  }

  // Bank 3 is what programs call __constant__; the others are the compiler's own.
  bool holds_variables(unsigned index) const {
    Elf64_Shdr one;
    if (!section(index, &one)) return false;
    const std::string_view name = name_of(one);
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

  // What a compiler says of a kernel: records, some with a payload of their own.
  static void read_records(Bytes records, std::vector<KernelParameter>* found) {
    constexpr uint8_t kWithPayload = 4, kParameter = 0x17, kLargeParameter = 0x45;
    struct Record {
      uint8_t format, attribute;
      uint16_t bytes;
    } record;
    for (uint64_t at = 0; load(records, at, &record); at += sizeof record) {
      if (record.format != kWithPayload) continue;
      const Bytes payload = part(records, at + sizeof record, record.bytes);
      at += record.bytes;
      if (record.attribute == kParameter || record.attribute == kLargeParameter)
        read_parameter(payload, record.attribute == kParameter, found);
    }
  }

  static void read_parameter(Bytes payload, bool packed, std::vector<KernelParameter>* found) {
    struct {
      uint32_t index;
      uint16_t ordinal, offset;
      uint32_t size;
    } one;
    if (!load(payload, 0, &one) || one.ordinal >= kMostParameters) return;
    if (found->size() <= one.ordinal) found->resize(one.ordinal + 1u);
    const uint32_t bytes = packed ? one.size >> 18 : one.size;
    (*found)[one.ordinal] = {one.offset, static_cast<uint16_t>(std::min(bytes, 0xffffu))};
  }

  Bytes elf_;
  Elf64_Ehdr header_{};
};

template <class Found>
bool read_entry(Bytes fatbin, uint64_t at, const Entry& entry, Found* found) {
  const bool packed = entry.flags & (kFlagLz4 | kFlagZstd);
  const uint64_t bytes = packed ? entry.compressed_bytes : entry.payload_bytes;
  const Bytes payload = part(fatbin, at + entry.header_bytes, bytes);
  if (payload.empty()) return false;
  std::vector<std::byte> elf;
  if (packed && !expand(entry, payload, &elf)) return false;
  return Cubin(packed ? Bytes(elf) : payload).read(found);
}

// Looks for something in a cubin, or in all of a fatbin.
template <class Found>
bool read_image(Bytes image, Found* found, std::string* why) {
  *why = "the image is damaged";
  FatbinHeader header{};
  if (!load(image, 0, &header)) return false;
  if (header.magic != kFatbinMagic) {
    if (Cubin(image).read(found)) return true;
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
    if (!read_entry(image, at, entry, found)) return false;
    if (__builtin_add_overflow(at, entry.header_bytes + entry.payload_bytes, &at)) return false;
  }
  return true;
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
  return read_image(image, names, why);
}

bool kernel_parameters(Bytes image, KernelParameters* kernels, std::string* why) {
  return read_image(image, kernels, why);
}

}  // namespace pyft::checkpoint
