#include "loader/fatbin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "loader/readable.h"

// Declared here since machines have libzstd's run-time library but not always its headers.
extern "C" {
size_t ZSTD_decompress(void* dst, size_t dst_capacity, const void* src, size_t src_size);
unsigned long long ZSTD_getFrameContentSize(const void* src, size_t src_size);
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

// Copies an ELF image, which ends where the last of its parts does.
std::string copy_elf(const uint8_t* from, std::vector<uint8_t>* cubin) {
  Elf64_Ehdr elf;
  std::vector<uint8_t> table;
  if (!load_readable(from, &elf)) return "the cubin ends within its header";
  const uint64_t table_bytes = uint64_t{elf.e_shentsize} * elf.e_shnum;
  if (elf.e_shoff > kMaxImageBytes || !copy_readable(from + elf.e_shoff, table_bytes, &table)) {
    return "the cubin's section headers cannot be read";
  }
  uint64_t end = std::max(elf.e_shoff + table_bytes, sizeof elf);
  if (elf.e_phoff <= kMaxImageBytes) {
    end = std::max(end, elf.e_phoff + uint64_t{elf.e_phentsize} * elf.e_phnum);
  }
  for (size_t at = 0; at + sizeof(Elf64_Shdr) <= table.size(); at += elf.e_shentsize) {
    const auto section = load<Elf64_Shdr>(table.data() + at);
    if (section.sh_type == SHT_NOBITS) continue;
    if (section.sh_offset > kMaxImageBytes || section.sh_size > kMaxImageBytes) {
      return "a section of the cubin is at [" + std::to_string(section.sh_offset) + "], of [" +
             std::to_string(section.sh_size) + "] bytes";
    }
    end = std::max(end, section.sh_offset + section.sh_size);
    if (elf.e_shentsize == 0) break;
  }
  if (copy_readable(from, end, cubin)) return "";
  return "the cubin of [" + std::to_string(end) + "] bytes cannot be read to its end";
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

std::string damaged(const EntryHeader& entry) {
  const std::string kind = entry.flags & kFlagLz4 ? "LZ4" : "zstd";
  return "the " + kind + " data of a fat binary entry is damaged";
}

// Can the payload have the size that its header tells? Asked before there is room for it.
bool plausible(const EntryHeader& entry, const std::vector<uint8_t>& payload) {
  constexpr uint64_t kMostPerByte = 255;  // of LZ4
  if (entry.flags & kFlagLz4) return entry.uncompressed_size / kMostPerByte <= payload.size();
  return ZSTD_getFrameContentSize(payload.data(), payload.size()) == entry.uncompressed_size;
}

std::string unpack(const uint8_t* at, const EntryHeader& entry, std::vector<uint8_t>* cubin) {
  const bool packed = entry.flags & (kFlagZstd | kFlagLz4);
  const uint64_t bytes = packed ? entry.compressed_size : entry.payload_size;
  std::vector<uint8_t> payload;
  if (!copy_readable(at + entry.header_size, bytes, packed ? &payload : cubin)) {
    return "the [" + std::to_string(bytes) + "] bytes of a fat binary entry cannot be read";
  }
  if (!packed) return "";
  if (entry.uncompressed_size > kMaxImageBytes) {
    return "a fat binary entry claims [" + std::to_string(entry.uncompressed_size) + "] bytes";
  }
  if (!plausible(entry, payload)) return damaged(entry);
  resize_image(entry.uncompressed_size, cubin);
  if (entry.flags & kFlagLz4) {
    if (expand_lz4(payload.data(), payload.size(), cubin)) return "";
    return damaged(entry);
  }
  const size_t got = ZSTD_decompress(cubin->data(), cubin->size(), payload.data(), payload.size());
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

// What was seen instead of code that runs here, for the error; not more than a line of it.
void remember(const EntryHeader& entry, std::string* seen) {
  if (seen->size() > 200) return;
  *seen += (seen->empty() ? "" : ", ") + std::string(entry.kind == kKindElf ? "sm_" : "compute_") +
           std::to_string(entry.arch);
}

std::string extract_entry(const uint8_t* fatbin, std::vector<uint8_t>* cubin) {
  FatbinHeader header;
  if (!load_readable(fatbin, &header)) return "the fat binary ends within its header";
  uint64_t left = header.size;
  const uint8_t *at = fatbin + header.header_size, *best = nullptr;
  EntryHeader chosen{};
  std::string seen;
  while (left >= sizeof(EntryHeader)) {
    EntryHeader entry;
    if (!load_readable(at, &entry)) return "the fat binary ends before its last entry";
    if (entry.header_size < sizeof(EntryHeader)) return "a fat binary entry has no header";
    const bool runs = entry.arch >= kMinimalArch && entry.arch <= kDeviceArch;
    if (entry.kind == kKindElf && runs && entry.arch > chosen.arch) {
      best = at;
      chosen = entry;
    }
    remember(entry, &seen);
    if (entry.payload_size > left || entry.header_size > left - entry.payload_size) break;
    if (entry.payload_size > kMaxImageBytes) return "a fat binary entry is too large";
    left -= entry.header_size + entry.payload_size;
    at += entry.header_size + entry.payload_size;
  }
  if (!best) return "no machine code for sm_75 in the fat binary, which has [" + seen + "]";
  return unpack(best, chosen, cubin);
}

}  // namespace

std::string extract_cubin(const void* image, std::vector<uint8_t>* cubin) {
  const auto* bytes = static_cast<const uint8_t*>(image);
  uint32_t magic = 0;
  if (!load_readable(bytes, &magic)) return "the module image cannot be read";
  if (magic == kWrapperMagic) {
    Wrapper wrapper;
    if (!load_readable(bytes, &wrapper)) return "the fat binary wrapper cannot be read";
    // Version 2 (relocatable code) has its linked result at `data` as well.
    bytes = static_cast<const uint8_t*>(wrapper.data);
    if (!load_readable(bytes, &magic)) return "the fat binary of a wrapper cannot be read";
  }
  if (magic == kFatbinMagic) return extract_entry(bytes, cubin);
  if (magic == kElfMagic) return copy_elf(bytes, cubin);
  return "the module image is neither a cubin nor a fat binary (PTX is not supported)";
}

}  // namespace softgpu
