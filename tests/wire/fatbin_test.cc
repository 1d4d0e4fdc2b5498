// What a program's containers of device code are read as: which bytes go to the server.
#include "client/code/fatbin.h"

#include <vector_types.h>

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

// Of client/code/module.h, where bytes are something else.
namespace pyft::client {
struct Kernel;
Kernel* kernel_of_function(const void* host_function);
}  // namespace pyft::client

// As compilers declare them in what they generate.
extern "C" {
void** __cudaRegisterFatBinary(void* image);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name,
                            int limit, uint3* tid, uint3* bid, dim3* block, dim3* grid, int* warp);
void __cudaRegisterVar(void** handle, char* host, char* device, const char* name, int ext,
                       size_t bytes, int constant, int global);
}

// A name lies in the library, and nothing that is looked up later may look at it.
TEST(a_library_that_is_unloaded_takes_its_names_with_it) {
  static char function, variable, other;
  static char name[] = "kernel_of_a_plugin";
  static int image;
  void** const plugin = __cudaRegisterFatBinary(&image);
  __cudaRegisterFunction(plugin, &function, name, name, -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  __cudaRegisterVar(plugin, &variable, name, name, 0, 4, 0, 0);
  void** const program = __cudaRegisterFatBinary(&image);
  __cudaRegisterFunction(program, &other, name, name, -1, nullptr, nullptr, nullptr, nullptr,
                         nullptr);
  __cudaUnregisterFatBinary(plugin);
  CHECK(kernel_of_function(&function) == nullptr);
  CHECK(kernel_of_function(&other) != nullptr);
}

CHECK_MAIN
