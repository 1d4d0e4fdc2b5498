#include "loader/fatbin.h"

#include <cstring>

// Declared here since machines have libzstd's run-time library but not always its headers.
extern "C" {
size_t ZSTD_decompress(void* dst, size_t dst_capacity, const void* src, size_t src_size);
unsigned ZSTD_isError(size_t code);
const char* ZSTD_getErrorName(size_t code);
}

namespace softgpu {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243B1;
constexpr uint32_t kFatbinMagic = 0xBA55ED50;
constexpr uint32_t kElfMagic = 0x464C457F;
constexpr uint16_t kKindElf = 2;
constexpr uint32_t kDeviceArch = 75;
constexpr uint32_t kMinimalArch = 70;  // Volta code runs on Turing unchanged
constexpr uint64_t kFlagLz4 = 0x2000;
constexpr uint64_t kFlagZstd = 0x8000;

struct Wrapper {
  uint32_t magic, version;
  const void* data;
  const void* filename_or_fatbins;
};

struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t size;  // of all entries
};

// Offsets measured on CUDA 13.0 wheels.
struct EntryHeader {
  uint16_t kind, version;
  uint32_t header_size;
  uint64_t payload_size;  // padded
  uint32_t compressed_size;
  uint32_t unknown1;
  uint32_t unknown2;
  uint32_t arch;
  uint64_t unknown3;
  uint64_t flags;
  uint64_t unknown4;
  uint64_t uncompressed_size;
};
static_assert(sizeof(EntryHeader) == 64);

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Size of an ELF image: the end of its last part.
size_t elf_size(const uint8_t* elf) {
  const auto section_offset = load<uint64_t>(elf + 0x28);
  const auto program_offset = load<uint64_t>(elf + 0x20);
  const size_t section_size = load<uint16_t>(elf + 0x3a), sections = load<uint16_t>(elf + 0x3c);
  const size_t program_size = load<uint16_t>(elf + 0x36), programs = load<uint16_t>(elf + 0x38);
  size_t end = section_offset + section_size * sections;
  end = std::max<size_t>(end, program_offset + program_size * programs);
  for (size_t i = 0; i < sections; ++i) {
    const uint8_t* header = elf + section_offset + i * section_size;
    if (load<uint32_t>(header + 4) == 8) continue;  // NOBITS
    end = std::max<size_t>(end, load<uint64_t>(header + 0x18) + load<uint64_t>(header + 0x20));
  }
  return end;
}

// The LZ4 block format: runs of literals and back references.
bool expand_lz4(const uint8_t* in, size_t in_size, std::vector<uint8_t>* out) {
  size_t i = 0, o = 0;
  const auto length = [&](size_t base) {
    for (uint8_t more = 255; base >= 15 && more == 255 && i < in_size;) base += more = in[i++];
    return base;
  };
  while (i < in_size) {
    const uint8_t token = in[i++];
    const size_t literals = length(token >> 4);
    if (literals > in_size - i || literals > out->size() - o) return false;
    std::memcpy(out->data() + o, in + i, literals);
    i += literals;
    o += literals;
    if (o == out->size() || i + 2 > in_size) break;
    const size_t distance = load<uint16_t>(in + i);
    i += 2;
    const size_t match = length(token & 15) + 4;
    if (distance == 0 || distance > o || match > out->size() - o) return false;
    for (size_t k = 0; k < match; ++k, ++o) (*out)[o] = (*out)[o - distance];
  }
  return o == out->size();
}

std::string unpack(const uint8_t* at, const EntryHeader& entry, std::vector<uint8_t>* cubin) {
  const uint8_t* payload = at + entry.header_size;
  if (!(entry.flags & (kFlagZstd | kFlagLz4))) {
    cubin->assign(payload, payload + entry.payload_size);
    return "";
  }
  cubin->resize(entry.uncompressed_size);
  if (entry.flags & kFlagLz4) {
    if (expand_lz4(payload, entry.compressed_size, cubin)) return "";
    return "the LZ4 data of a fat binary entry is damaged";
  }
  const size_t got = ZSTD_decompress(cubin->data(), cubin->size(), payload, entry.compressed_size);
  if (ZSTD_isError(got)) {
    return std::string("the zstd data of a fat binary entry cannot be read: [") +
           ZSTD_getErrorName(got) + "]";
  }
  if (got != cubin->size()) {
    return "a fat binary entry has [" + std::to_string(got) + "] bytes instead of [" +
           std::to_string(cubin->size()) + "]";
  }
  return "";
}

std::string extract_entry(const uint8_t* fatbin, std::vector<uint8_t>* cubin) {
  const auto header = load<FatbinHeader>(fatbin);
  const uint8_t* at = fatbin + header.header_size;
  const uint8_t* end = at + header.size;
  const uint8_t* best = nullptr;
  uint32_t best_arch = 0;
  std::string seen;
  while (at + sizeof(EntryHeader) <= end) {
    const auto entry = load<EntryHeader>(at);
    if (entry.header_size < sizeof(EntryHeader)) return "a fat binary entry has no header";
    const bool runs = entry.arch >= kMinimalArch && entry.arch <= kDeviceArch;
    if (entry.kind == kKindElf && runs && entry.arch > best_arch) {
      best = at;
      best_arch = entry.arch;
    }
    seen += (seen.empty() ? "" : ", ") + std::string(entry.kind == kKindElf ? "sm_" : "compute_") +
            std::to_string(entry.arch);
    at += entry.header_size + entry.payload_size;
  }
  if (!best) return "no machine code for sm_75 in the fat binary, which has [" + seen + "]";
  return unpack(best, load<EntryHeader>(best), cubin);
}

}  // namespace

std::string extract_cubin(const void* image, std::vector<uint8_t>* cubin) {
  const auto* bytes = static_cast<const uint8_t*>(image);
  auto magic = load<uint32_t>(bytes);
  if (magic == kWrapperMagic) {
    // Version 2 (relocatable code) has its linked result at `data` as well.
    bytes = static_cast<const uint8_t*>(load<Wrapper>(bytes).data);
    magic = load<uint32_t>(bytes);
  }
  if (magic == kFatbinMagic) return extract_entry(bytes, cubin);
  if (magic == kElfMagic) {
    cubin->assign(bytes, bytes + elf_size(bytes));
    return "";
  }
  return "the module image is neither a cubin nor a fat binary (PTX is not supported)";
}

}  // namespace softgpu
