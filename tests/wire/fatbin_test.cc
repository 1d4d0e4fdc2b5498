// What a program's containers of device code are read as: which bytes go to the server.
#include "client/code/fatbin.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "check.h"

using namespace pyft::client;  // NOLINT

namespace {

struct Wrapper {
  uint32_t magic, version;
  const void* data;
  const void* more;  // version 1: a file name; version 2: the parts that were linked
};

using Bytes = std::vector<std::byte>;

void append(Bytes* to, const void* from, size_t bytes) {
  const size_t before = to->size();
  to->resize(before + bytes);
  std::memcpy(to->data() + before, from, bytes);
}

// A fatbin with one entry of machine code, whose bytes are the text.
Bytes fatbin(const std::string& text, uint32_t arch = 75) {
  struct Entry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    uint32_t compressed_bytes, unknown, unknown2, arch;
    uint64_t rest[4];
  } entry{2, 0x101, sizeof(Entry), text.size(), 0, 0, 0, arch, {}};
  struct {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
  } header{0xba55ed50, 1, 16, sizeof entry + text.size()};
  Bytes out;
  append(&out, &header, sizeof header);
  append(&out, &entry, sizeof entry);
  append(&out, text.data(), text.size());
  return out;
}

bool names(const Bytes& code, const std::string& text) {
  return std::string(reinterpret_cast<const char*>(code.data()), code.size()).ends_with(text);
}

}  // namespace

TEST(the_linked_image_of_relocatable_code_is_taken) {
  const Bytes linked = fatbin("linked___"), first = fatbin("part one_"),
              second = fatbin("part two_");
  const void* parts[] = {first.data(), second.data(), nullptr};
  const Wrapper wrapper{0x466243b1, 2, linked.data(), parts};
  CHECK(unwrap(&wrapper) == linked.data());
  CHECK(names(select_code(&wrapper, 7, 5), "linked___"));
}

TEST(a_file_name_is_not_looked_at) {
  const Bytes only = fatbin("only_____");
  const Wrapper wrapper{0x466243b1, 1, only.data(), "program.cu"};
  CHECK(names(select_code(&wrapper, 7, 5), "only_____"));
}

TEST(an_image_that_is_none_has_no_bytes) {
  const Wrapper empty{0x466243b1, 2, nullptr, nullptr};
  CHECK_EQ(image_bytes(unwrap(&empty)), 0u);
  CHECK(select_code(&empty, 7, 5).empty());
  const Bytes other = fatbin("hopper___", 90);
  CHECK(select_code(other.data(), 7, 5).empty());
}

CHECK_MAIN
