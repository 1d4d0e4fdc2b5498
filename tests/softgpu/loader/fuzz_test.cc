// Damaged cubins and fat binaries never make the loader touch memory that is not theirs. Built
// with the address sanitizer. `fuzz_test <rounds> <seed>` runs longer.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "images.h"
#include "loader/cubin.h"
#include "loader/fatbin.h"

namespace {

using images::Bytes;

class Fuzzer {
 public:
  explicit Fuzzer(uint64_t seed) : random_(seed) {
    const Bytes cubin = images::cubin();
    seeds_ = {cubin, images::fatbin(cubin),
              images::fatbin(images::lz4(cubin), 0x2011, cubin.size())};
  }

  void round() {
    Bytes image = seeds_[below(seeds_.size())];
    for (uint64_t changes = 1 + below(4); changes; --changes) change(image);
    Bytes out;
    if (!softgpu::extract_cubin(image.data(), &out).empty()) {
      ++refused_;
      return;
    }
    // What a cubin says must not depend on how it came.
    softgpu::Cubin cubin;
    if (!softgpu::parse_cubin(std::move(out), &cubin).empty()) {
      ++refused_;
      return;
    }
    ++accepted_;
    apply(cubin);
  }

  uint64_t refused() const { return refused_; }
  uint64_t accepted() const { return accepted_; }

 private:
  uint64_t below(uint64_t end) { return random_() % end; }

  // Whole fields, since headers are made of those: an edge, a small number, a near or any value.
  void change(Bytes& image) {
    const size_t width = size_t{1} << below(4);
    const size_t at = below(image.size() - width + 1) / width * width;
    if (at + width > image.size()) return;
    uint64_t value = 0;
    std::memcpy(&value, image.data() + at, width);
    const uint64_t edges[] = {0, 1, UINT64_MAX, uint64_t{1} << 31, uint64_t{1} << 63, image.size()};
    switch (below(4)) {
      case 0:
        value = edges[below(std::size(edges))];
        break;
      case 1:
        value = below(300);
        break;
      case 2:
        value += below(17) - 8;
        break;
      default:
        value = random_();
    }
    std::memcpy(image.data() + at, &value, width);
  }

  // As module/module.cc does.
  static void apply(const softgpu::Cubin& cubin) {
    Bytes constants(cubin.constant4.begin(), cubin.constant4.end());
    Bytes initial(cubin.global_init.begin(), cubin.global_init.end());
    Bytes code = cubin.linked_code;
    for (const softgpu::CubinRelocation& r : cubin.relocations) {
      Bytes& place = r.place == softgpu::RelocationPlace::kCode         ? code
                     : r.place == softgpu::RelocationPlace::kGlobalInit ? initial
                                                                        : constants;
      softgpu::apply_relocation(r, 0x123456789abcdef0, place);
    }
    uint64_t sum = 0;  // every span is readable
    for (const auto& [name, kernel] : cubin.kernels) {
      for (const uint8_t byte : kernel.text) sum += byte;
      for (const uint8_t byte : kernel.literals) sum += byte;
    }
    for (const uint8_t byte : cubin.constant3) sum += byte;
    volatile uint64_t used = sum;
    static_cast<void>(used);
  }

  std::mt19937_64 random_;
  std::vector<Bytes> seeds_;
  uint64_t refused_ = 0, accepted_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  Fuzzer fuzzer(seed);
  for (uint64_t i = 0; i < rounds; ++i) fuzzer.round();
  std::printf("seed %llu: %llu images refused, %llu accepted\n",
              static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(fuzzer.refused()),
              static_cast<unsigned long long>(fuzzer.accepted()));
  // Both must be exercised, or the damage is of the wrong kind.
  return fuzzer.refused() > rounds / 10 && fuzzer.accepted() > rounds / 10 ? 0 : 1;
}
