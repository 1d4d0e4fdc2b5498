// What the loader makes of good and of damaged images.
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "images.h"
#include "loader/cubin.h"
#include "loader/fatbin.h"

using images::Bytes;

static std::string extracted(const Bytes& image, Bytes* out) {
  return softgpu::extract_cubin(image.data(), out);
}

TEST(a_cubin_tells_its_kernels_and_variables) {
  softgpu::Cubin cubin;
  CHECK_EQ(softgpu::parse_cubin(images::cubin(48), &cubin), std::string());
  CHECK_EQ(cubin.kernels.size(), 1u);
  const softgpu::CubinKernel& k = cubin.kernels.at("k");
  CHECK_EQ(k.register_count, 8u);
  CHECK_EQ(k.static_shared_bytes, 128u);
  CHECK_EQ(k.local_bytes, 48u);
  CHECK_EQ(k.max_threads, 128u);
  CHECK_EQ(k.param_bytes, 12u);
  CHECK_EQ(k.params.size(), 2u);
  CHECK_EQ(k.params[0].size, 8);
  CHECK_EQ(k.params[1].offset, 8);
  CHECK_EQ(k.params[1].size, 4);
  CHECK_EQ(cubin.variables.size(), 2u);
  CHECK_EQ(cubin.variables.at("v").size, 64u);
  CHECK_EQ(cubin.relocations.size(), 1u);
  CHECK_EQ(cubin.relocations[0].addend, 4u);
}

// What CUDA 12.1 and later write for kernels with more than 4 KB of parameters.
TEST(large_parameters_have_their_size_in_full) {
  images::CubinBuilder elf;
  Bytes info;
  elf.section(".text.k", SHT_PROGBITS, Bytes(16));
  images::add_info(info, 0x45, {0, 0x64a8u << 16 | 1, 8});
  images::add_info(info, 0x45, {0, 0, 0x64a8});
  images::add_info(info, 0x0a, {0, 0x64b0u << 16 | 0x1a80});
  elf.section(".nv.info.k", 0x70000000, info);
  softgpu::Cubin cubin;
  CHECK_EQ(softgpu::parse_cubin(elf.image(), &cubin), std::string());
  const softgpu::CubinKernel& k = cubin.kernels.at("k");
  CHECK_EQ(k.param_base, 0x1a80u);
  CHECK_EQ(k.param_bytes, 0x64b0u);
  CHECK_EQ(k.params[0].size, 0x64a8);
  CHECK_EQ(k.params[1].offset, 0x64a8);
}

TEST(lz4_entries_are_expanded) {
  // Literals and matches beyond their short forms, overlapping matches, far ones.
  Bytes content;
  for (uint32_t i = 0; i < 400; ++i) images::add(content, i * 2654435761u);
  content.resize(content.size() + 5000, 'a');
  for (uint32_t i = 0; i < 400; ++i) images::add(content, i * 2654435761u);
  for (int i = 0; i < 3000; ++i) content.push_back(static_cast<uint8_t>(i % 3));
  for (const size_t size : {size_t{1}, size_t{13}, size_t{100}, size_t{5000}, content.size()}) {
    const Bytes part(content.begin(), content.begin() + static_cast<long>(size));
    const Bytes packed = images::lz4(part);
    Bytes out;
    CHECK_EQ(extracted(images::fatbin(packed, 0x2011, size), &out), std::string());
    CHECK(out == part);
  }
  CHECK(images::lz4(content).size() < content.size() / 3);
}

TEST(damaged_lz4_data_is_refused) {
  const Bytes content(3000, 'x'), packed = images::lz4(content);
  Bytes out;
  for (size_t keep = 0; keep < packed.size(); ++keep) {
    const Bytes cut(packed.begin(), packed.begin() + static_cast<long>(keep));
    CHECK_EQ(extracted(images::fatbin(cut, 0x2011, content.size()), &out),
             std::string("the LZ4 data of a fat binary entry is damaged"));
  }
  for (const uint64_t wrong : {content.size() - 1, content.size() + 1}) {
    CHECK(!extracted(images::fatbin(packed, 0x2011, wrong), &out).empty());
  }
  CHECK_EQ(extracted(images::fatbin(packed, 0x2011, uint64_t{1} << 50), &out),
           std::string("a fat binary entry claims [1125899906842624] bytes"));
}

TEST(wrappers_of_both_versions_lead_to_their_fat_binary) {
  const Bytes cubin = images::cubin(), fatbin = images::fatbin(cubin);
  for (const uint32_t version : {1u, 2u}) {
    Bytes wrapper, out;
    images::add<uint32_t>(wrapper, 0x466243B1);
    images::add(wrapper, version);
    images::add(wrapper, fatbin.data());
    images::add<const void*>(wrapper, version == 2 ? fatbin.data() : nullptr);
    CHECK_EQ(extracted(wrapper, &out), std::string());
    CHECK(out.size() >= cubin.size());
    CHECK(std::memcmp(out.data(), cubin.data(), cubin.size()) == 0);
    images::put<uint64_t>(wrapper, 8, 16);
    CHECK_EQ(extracted(wrapper, &out), std::string("the fat binary of a wrapper cannot be read"));
  }
}

// An image that ends at the end of the mapped memory, cut at every length.
TEST(images_that_end_too_early_are_refused) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* const memory = static_cast<uint8_t*>(
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK(memory != MAP_FAILED);
  CHECK_EQ(mprotect(memory + 2 * page, page, PROT_NONE), 0);
  const Bytes content = images::cubin();
  const Bytes whole[] = {content, images::fatbin(content),
                         images::fatbin(images::lz4(content), 0x2011, content.size())};
  for (const Bytes& image : whole) {
    CHECK(image.size() < 2 * page);
    for (size_t keep = 0; keep < image.size(); ++keep) {
      uint8_t* const start = memory + 2 * page - keep;
      std::memcpy(start, image.data(), keep);
      Bytes out;
      const std::string problem = softgpu::extract_cubin(start, &out);
      const bool padding = keep + 8 > image.size();
      CHECK(padding || !problem.empty());
    }
    Bytes out;
    CHECK_EQ(extracted(image, &out), std::string());
  }
  munmap(memory, 3 * page);
}

CHECK_MAIN
