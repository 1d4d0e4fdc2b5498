// Cubins and fat binaries made by hand: small, but with everything that the loader reads.
#ifndef SOFTGPU_TESTS_LOADER_IMAGES_H_
#define SOFTGPU_TESTS_LOADER_IMAGES_H_

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace images {

using Bytes = std::vector<uint8_t>;

template <class T>
void put(Bytes& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

template <class T>
void add(Bytes& bytes, T value) {
  uint8_t raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  for (const uint8_t byte : raw) bytes.push_back(byte);
}

inline void add_text(Bytes& bytes, const std::string& text) {
  bytes.insert(bytes.end(), text.begin(), text.end());
  bytes.push_back(0);
}

// A record of .nv.info with 32-bit words as its payload.
inline void add_info(Bytes& bytes, uint8_t attribute, std::initializer_list<uint32_t> words) {
  add<uint8_t>(bytes, 4);
  add(bytes, attribute);
  add(bytes, static_cast<uint16_t>(4 * words.size()));
  for (const uint32_t word : words) add(bytes, word);
}

class CubinBuilder {
 public:
  uint32_t section(const std::string& name, uint32_t type, Bytes data, uint32_t info = 0,
                   uint32_t link = 0, uint64_t size = 0) {
    Elf64_Shdr header{};
    header.sh_name = static_cast<uint32_t>(names_.size());
    header.sh_type = type;
    header.sh_flags = SHF_ALLOC;
    header.sh_info = info;
    header.sh_link = link;
    header.sh_size = type == SHT_NOBITS ? size : data.size();
    add_text(names_, name);
    headers_.push_back(header);
    datas_.push_back(std::move(data));
    return static_cast<uint32_t>(headers_.size() - 1);
  }

  Bytes image() {
    const uint32_t names = section(".shstrtab", SHT_STRTAB, {});
    datas_[names] = names_;
    headers_[names].sh_size = names_.size();
    Bytes out(sizeof(Elf64_Ehdr));
    for (size_t i = 0; i < headers_.size(); ++i) {
      headers_[i].sh_offset = out.size();
      out.insert(out.end(), datas_[i].begin(), datas_[i].end());
      out.resize((out.size() + 15) & ~size_t{15});
    }
    Elf64_Ehdr elf{};
    std::memcpy(elf.e_ident, ELFMAG, SELFMAG);
    elf.e_ident[EI_CLASS] = ELFCLASS64;
    elf.e_machine = 190;
    elf.e_shoff = out.size();
    elf.e_shentsize = sizeof(Elf64_Shdr);
    elf.e_shnum = static_cast<uint16_t>(headers_.size());
    elf.e_shstrndx = static_cast<uint16_t>(names);
    put(out, 0, elf);
    for (const Elf64_Shdr& header : headers_) add(out, header);
    return out;
  }

 private:
  Bytes names_{0};
  std::vector<Elf64_Shdr> headers_{Elf64_Shdr{}};
  std::vector<Bytes> datas_{Bytes{}};
};

inline Bytes symbol(uint32_t name, uint8_t type, uint32_t section, uint64_t size) {
  Bytes out;
  Elf64_Sym entry{};
  entry.st_name = name;
  entry.st_info = static_cast<uint8_t>(STB_GLOBAL << 4 | type);
  entry.st_shndx = static_cast<uint16_t>(section);
  entry.st_size = size;
  add(out, entry);
  return out;
}

// Kernel "k" with parameters (8 bytes, 4 bytes), which does nothing; variables "v" and "w", the
// address of "v" in constant bank 4.
inline Bytes cubin(uint32_t local_bytes = 0) {
  CubinBuilder elf;
  Bytes text, info, module_info, symbols, strings{0}, relocations;
  add<uint64_t>(text, 0x000000000000794d);  // EXIT
  add<uint64_t>(text, 0x0003ea0003800000);
  const uint32_t code = elf.section(".text.k", SHT_PROGBITS, text, 8u << 24);
  const uint32_t global = elf.section(".nv.global", SHT_NOBITS, {}, 0, 0, 64);
  const uint32_t init = elf.section(".nv.global.init", SHT_PROGBITS, Bytes(32, 7));
  const uint32_t table = elf.section(".nv.constant4", SHT_PROGBITS, Bytes(16));
  elf.section(".nv.constant3", SHT_PROGBITS, Bytes(24, 3));
  elf.section(".nv.constant2.k", SHT_PROGBITS, Bytes(8, 2));
  elf.section(".nv.shared.k", SHT_NOBITS, {}, 0, 0, 128);
  add_info(info, 0x45, {0, 8u << 16 | 1, 4});        // parameter 1, with its size in full
  add_info(info, 0x17, {0, 0, 8u << 18 | 0x1f000});  // parameter 0
  add_info(info, 0x0a, {0, 12u << 16 | 0x160});
  add_info(info, 0x05, {128, 1, 1});
  elf.section(".nv.info.k", 0x70000000, info);
  for (const char* name : {"k", "v", "w"}) add_text(strings, name);
  symbols = Bytes(sizeof(Elf64_Sym));
  for (const Bytes& one : {symbol(1, STT_FUNC, code, 16), symbol(3, STT_OBJECT, global, 64),
                           symbol(5, STT_OBJECT, init, 32)}) {
    symbols.insert(symbols.end(), one.begin(), one.end());
  }
  const uint32_t names = elf.section(".strtab", SHT_STRTAB, strings);
  elf.section(".symtab", SHT_SYMTAB, symbols, 0, names);
  add_info(module_info, 0x12, {1, local_bytes});
  add_info(module_info, 0x2f, {1, 8});
  elf.section(".nv.info", 0x70000000, module_info);
  add(relocations, Elf64_Rela{8, ELF64_R_INFO(2ull, 2), 4});
  elf.section(".rela.nv.constant4", SHT_RELA, relocations, table);
  return elf.image();
}

// A fat binary with one entry for sm_75. `flags`: 0x2011 LZ4, 0x8011 zstd, 0x11 as it is.
inline Bytes fatbin(const Bytes& payload, uint64_t flags = 0x11, uint64_t size = 0,
                    uint32_t arch = 75) {
  const uint64_t padded = (payload.size() + 7) & ~uint64_t{7};
  Bytes out(80 + padded);
  put<uint32_t>(out, 0, 0xBA55ED50);
  put<uint16_t>(out, 4, 1);
  put<uint16_t>(out, 6, 16);
  put<uint64_t>(out, 8, 64 + padded);
  put<uint16_t>(out, 16, 2);  // machine code
  put<uint16_t>(out, 18, 0x101);
  put<uint32_t>(out, 20, 64);
  put<uint64_t>(out, 24, padded);
  put<uint32_t>(out, 32, static_cast<uint32_t>(size ? payload.size() : 0));
  put<uint32_t>(out, 44, arch);
  put<uint64_t>(out, 56, flags);
  put<uint64_t>(out, 72, size);
  std::copy(payload.begin(), payload.end(), out.begin() + 80);
  return out;
}

// The LZ4 block format, compressed greedily with one candidate per hash.
inline Bytes lz4(const Bytes& in) {
  Bytes out;
  std::vector<size_t> last(1 << 12, SIZE_MAX);
  const auto add_length = [&](size_t rest) {
    for (; rest >= 255; rest -= 255) out.push_back(255);
    out.push_back(static_cast<uint8_t>(rest));
  };
  const auto sequence = [&](size_t from, size_t literals, size_t distance, size_t match) {
    const size_t more = match ? match - 4 : 0;
    out.push_back(
        static_cast<uint8_t>(std::min<size_t>(literals, 15) << 4 | std::min<size_t>(more, 15)));
    if (literals >= 15) add_length(literals - 15);
    out.insert(out.end(), in.begin() + static_cast<long>(from),
               in.begin() + static_cast<long>(from + literals));
    if (!match) return;
    add(out, static_cast<uint16_t>(distance));
    if (more >= 15) add_length(more - 15);
  };
  size_t done = 0, at = 0;
  while (at + 12 < in.size()) {
    uint32_t word;
    std::memcpy(&word, in.data() + at, 4);
    size_t& candidate = last[word * 2654435761u >> 20];
    const size_t from = std::exchange(candidate, at);
    if (from == SIZE_MAX || at - from > 65535 ||
        std::memcmp(in.data() + from, in.data() + at, 4) != 0) {
      ++at;
      continue;
    }
    size_t match = 4;
    while (at + match + 5 < in.size() && in[from + match] == in[at + match]) ++match;
    sequence(done, at - done, at - from, match);
    done = at += match;
  }
  sequence(done, in.size() - done, 0, 0);
  return out;
}

}  // namespace images

#endif  // SOFTGPU_TESTS_LOADER_IMAGES_H_
