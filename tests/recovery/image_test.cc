// Names of variables and parameters of kernels in images of modules, which come from clients and
// may be anything.
#include <algorithm>

#include "check.h"
#include "checkpoint/resources/module_image.h"
#include "softgpu/loader/images.h"

using pyft::checkpoint::variable_names;

namespace {

struct Found {
  bool good;
  std::vector<std::string> names;
  std::string why;
};

Found look(const images::Bytes& image) {
  Found found;
  found.good = variable_names(std::as_bytes(std::span(image)), &found.names, &found.why);
  std::ranges::sort(found.names);
  return found;
}

// "kernel offset:bytes ..." of each kernel.
std::string parameters(const images::Bytes& image) {
  pyft::checkpoint::KernelParameters kernels;
  std::string why, text;
  if (!kernel_parameters(std::as_bytes(std::span(image)), &kernels, &why)) return why;
  for (const auto& [kernel, its] : kernels) {
    text += kernel;
    for (const auto& [offset, bytes] : its)
      text += " " + std::to_string(offset) + ":" + std::to_string(bytes);
  }
  return text;
}

const std::vector<std::string> kBoth = {"v", "w"};  // of images::cubin()

}  // namespace

TEST(variables_of_cubins_and_fatbins_are_found) {
  const images::Bytes cubin = images::cubin();
  CHECK(look(cubin).names == kBoth);
  CHECK(look(images::fatbin(cubin)).names == kBoth);
  CHECK(look(images::fatbin(images::lz4(cubin), 0x2011, cubin.size())).names == kBoth);
}

TEST(parameters_of_kernels_are_found) {
  const images::Bytes cubin = images::cubin();
  CHECK_EQ(parameters(cubin), "k 0:8 8:4");
  CHECK_EQ(parameters(images::fatbin(images::lz4(cubin), 0x2011, cubin.size())), "k 0:8 8:4");
  CHECK_EQ(parameters({'.', 'v', 'e', 'r', 's', 'i', 'o', 'n'}), "the image is damaged");
}

TEST(empty_objects_have_no_state) {
  using pyft::checkpoint::is_empty_object;
  CHECK(is_empty_object("_ZN6thrust12placeholders2_1E", 1));
  CHECK(is_empty_object("_ZN50_INTERNAL_8c9bd06e_4_k_cu_a94cuda3std3__45__cpo5beginE", 1));
  CHECK(is_empty_object("_ZN53_INTERNAL_0fcba5a6_29_flash_sm80_cu_0231a82c4cute1_E", 1));
  CHECK(!is_empty_object("_ZN6thrust12placeholders2_1E", 4));
  CHECK(!is_empty_object("_ZN2at6native4flagE", 1));
  CHECK(!is_empty_object("v6thrust", 1));
}

TEST(other_code_is_named) {
  const std::string ptx = ".version 9.0\n.target sm_90\n.address_size 64\n";
  const Found found = look(images::Bytes(ptx.begin(), ptx.end()));
  CHECK(!found.good);
  CHECK_EQ(found.why, "it is no machine code");
}

TEST(no_image_is_too_broken) {
  const images::Bytes cubin = images::cubin();
  const images::Bytes whole[] = {cubin, images::fatbin(cubin),
                                 images::fatbin(images::lz4(cubin), 0x2011, cubin.size())};
  for (const images::Bytes& image : whole) {
    for (size_t bytes = 0; bytes < image.size(); ++bytes) {
      const images::Bytes part = {image.begin(), image.begin() + static_cast<long>(bytes)};
      look(part), parameters(part);
    }
    for (size_t at = 0; at < image.size(); ++at) {
      images::Bytes changed = image;
      changed[at] ^= 0xff;
      look(changed), parameters(changed);
    }
  }
  const Found huge = look(images::fatbin(images::lz4(cubin), 0x2011, uint64_t{1} << 50));
  CHECK(!huge.good);
  CHECK_EQ(huge.why, "the image is damaged");
}

CHECK_MAIN
