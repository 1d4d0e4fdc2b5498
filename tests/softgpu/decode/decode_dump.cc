// decode_dump FILE: prints "pc text" for each instruction word of a raw text section, or
// "pc ERROR sentence". With -q only the errors, and the count of words. Exit status 1 on errors.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "decode/decode.h"

namespace {

std::vector<char> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

size_t dump(const std::vector<char>& text, bool quiet) {
  size_t errors = 0;
  for (size_t at = 0; at + softgpu::kInstrBytes <= text.size(); at += softgpu::kInstrBytes) {
    softgpu::Word word;
    std::memcpy(&word, text.data() + at, sizeof word);
    softgpu::Instr instr;
    const auto pc = static_cast<uint32_t>(at);
    const std::string error = softgpu::decode(word, pc, &instr);
    if (!error.empty()) {
      ++errors;
      std::printf("%x ERROR %s\n", pc, error.c_str());
    } else if (!quiet) {
      std::printf("%x %s\n", pc, softgpu::to_string(instr).c_str());
    }
  }
  if (quiet) std::printf("%zu words, %zu errors\n", text.size() / softgpu::kInstrBytes, errors);
  return errors;
}

}  // namespace

int main(int argc, char** argv) {
  const bool quiet = argc == 3 && std::strcmp(argv[1], "-q") == 0;
  if (argc != 2 && !quiet) {
    std::fprintf(stderr, "usage: decode_dump [-q] FILE\n");
    return 2;
  }
  return dump(read_file(argv[argc - 1]), quiet) ? 1 : 0;
}
