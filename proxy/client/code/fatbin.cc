#include "client/code/fatbin.h"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace pyft::client {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kFatbinMagic = 0xba55ed50;
enum EntryKind : uint16_t { kPtx = 1, kElf = 2 };

struct Wrapper {
  uint32_t magic, version;
  const void* data;
  // Version 1: a file name. Version 2, of relocatable code: the fatbins that were linked to `data`.
  const void* more;
};

struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // after the header
};

struct EntryStart {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t payload_bytes;  // padded
  uint32_t compressed_bytes, unknown;
  uint32_t unknown2, arch;
};
static_assert(sizeof(EntryStart) == 32);

uint32_t magic_of(const void* image) {
  uint32_t magic;
  std::memcpy(&magic, image, sizeof magic);
  return magic;
}

size_t elf_bytes(const void* image) {
  Elf64_Ehdr elf;
  std::memcpy(&elf, image, sizeof elf);
  size_t end = elf.e_shoff + size_t{elf.e_shnum} * elf.e_shentsize;
  end = std::max(end, elf.e_phoff + size_t{elf.e_phnum} * elf.e_phentsize);
  for (unsigned i = 0; i < elf.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section,
                static_cast<const char*>(image) + elf.e_shoff + size_t{i} * elf.e_shentsize,
                sizeof section);
    if (section.sh_type != SHT_NOBITS)
      end = std::max<size_t>(end, section.sh_offset + section.sh_size);
  }
  return end;
}

struct Entry {
  EntryStart start;
  const std::byte* at;
  size_t bytes;
};

std::vector<Entry> entries_of(const std::byte* fatbin) {
  FatbinHeader header;
  std::memcpy(&header, fatbin, sizeof header);
  std::vector<Entry> entries;
  for (size_t at = 0; at + sizeof(EntryStart) <= header.bytes;) {
    Entry entry{{}, fatbin + header.header_bytes + at, 0};
    std::memcpy(&entry.start, entry.at, sizeof entry.start);
    entry.bytes = entry.start.header_bytes + entry.start.payload_bytes;
    if (entry.start.header_bytes < sizeof(EntryStart) || entry.bytes > header.bytes - at) return {};
    entries.push_back(entry);
    at += entry.bytes;
  }
  return entries;
}

// Newest architecture among the entries of one kind that runs on the device; -1: none.
int best_arch(const std::vector<Entry>& entries, uint16_t kind, int major, int minor) {
  int best = -1;
  for (const Entry& entry : entries) {
    const int arch = static_cast<int>(entry.start.arch);
    const bool runs =
        kind == kElf ? arch / 10 == major && arch % 10 <= minor : arch <= major * 10 + minor;
    if (entry.start.kind == kind && runs) best = std::max(best, arch);
  }
  return best;
}

}  // namespace

const void* unwrap(const void* image) {
  if (magic_of(image) != kWrapperMagic) return image;
  Wrapper wrapper;
  std::memcpy(&wrapper, image, sizeof wrapper);
  return wrapper.data;
}

size_t image_bytes(const void* image) {
  if (!image) return 0;
  const uint32_t magic = magic_of(image);
  if (magic == kFatbinMagic) {
    FatbinHeader header;
    std::memcpy(&header, image, sizeof header);
    return header.header_bytes + header.bytes;
  }
  if (std::memcmp(image, ELFMAG, SELFMAG) == 0) return elf_bytes(image);
  const char* text = static_cast<const char*>(image);
  const bool printable = (text[0] >= ' ' && text[0] <= '~') || text[0] == '\n' || text[0] == '\t';
  return printable ? std::strlen(text) + 1 : 0;
}

std::vector<std::byte> select_code(const void* image, int major, int minor) {
  const auto* bytes = static_cast<const std::byte*>(unwrap(image));
  const size_t size = image_bytes(bytes);
  if (!size) return {};
  if (magic_of(bytes) != kFatbinMagic) return {bytes, bytes + size};
  const std::vector<Entry> entries = entries_of(bytes);
  uint16_t kind = kElf;
  int arch = best_arch(entries, kind, major, minor);
  if (arch < 0) arch = best_arch(entries, kind = kPtx, major, minor);
  if (arch < 0) return {};
  FatbinHeader header;
  std::memcpy(&header, bytes, sizeof header);
  header.header_bytes = sizeof header;
  header.bytes = 0;
  std::vector<std::byte> out(sizeof header);
  for (const Entry& entry : entries) {
    if (entry.start.kind != kind || static_cast<int>(entry.start.arch) != arch) continue;
    out.insert(out.end(), entry.at, entry.at + entry.bytes);
    header.bytes += entry.bytes;
  }
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

}  // namespace pyft::client
