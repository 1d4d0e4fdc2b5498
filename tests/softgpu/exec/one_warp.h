// Runs a few instruction words in one warp with chosen registers and looks at the result.
#ifndef SOFTGPU_TESTS_ONE_WARP_H_
#define SOFTGPU_TESTS_ONE_WARP_H_

#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "decode/instr.h"
#include "exec/lower.h"
#include "exec/upset.h"

namespace softgpu::exec {

// A sample of the fact sheet, "hi_lo" in hexadecimal without control bits, with fields replaced.
class Words {
 public:
  Words(std::string_view sample) {
    const size_t bar = sample.find('_');
    word_.hi = std::stoull(std::string(sample.substr(0, bar)), nullptr, 16);
    word_.lo = std::stoull(std::string(sample.substr(bar + 1)), nullptr, 16);
  }
  Words set(unsigned first, unsigned width, uint64_t value) const {
    Words copy = *this;
    uint64_t& half = first < 64 ? copy.word_.lo : copy.word_.hi;
    const unsigned shift = first % 64;
    const uint64_t mask = (width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1) << shift;
    half = (half & ~mask) | (value << shift & mask);
    return copy;
  }
  Words rd(uint8_t r) const { return set(16, 8, r); }
  Words ra(uint8_t r) const { return set(24, 8, r); }
  Words rb(uint8_t r) const { return set(32, 8, r); }
  Words rc(uint8_t r) const { return set(64, 8, r); }
  Words guard(uint8_t p) const { return set(12, 4, p); }
  Word word() const { return word_; }

 private:
  Word word_;
};

inline Words exit_word() {
  return Words("00003800000_000000000000794d");
}

// A block of one full warp. Registers and predicates are set before run() and read after it.
class OneWarp {
 public:
  explicit OneWarp(std::initializer_list<Words> words, uint32_t shared_bytes = 0) {
    for (const Words& w : words) text_.push_back(w.word());
    text_.push_back(exit_word().word());
    kernel_.name = "test";
    kernel_.text = {reinterpret_cast<const uint8_t*>(text_.data()), text_.size() * sizeof(Word)};
    launch_.kernel = &kernel_;
    launch_.block = {32, 1, 1};
    const std::string why = lower_program(kernel_, &program_);
    if (!why.empty()) std::cerr << why << "\n";
    CHECK(why.empty());
    pool_ = std::make_unique<Row[]>(program_.pool.size() + 1);
    for (size_t i = 0; i < program_.pool.size(); ++i) {
      for (uint32_t& lane : pool_[i].lane) lane = program_.pool[i].value;
    }
    state_.launch = &launch_;
    state_.program = &program_;
    state_.memory = &memory;
    state_.pool = pool_.get();
    state_.threads = 32;
    state_.warps = 1;
    state_.shared_bytes = shared_bytes;
    state_.local_bytes = 1024;
    init_block(&block, &state_);
    start_block(&block, 0, 0);
  }

  Warp& warp() { return block.warps[0]; }
  Row& reg(int r) { return warp().rows[program_.traits.register_row + static_cast<uint32_t>(r)]; }
  uint32_t& pred(int p) { return warp().pred[static_cast<size_t>(p)]; }
  void fill(int r, std::initializer_list<uint32_t> values) {
    size_t i = 0;
    for (uint32_t v : values) reg(r).lane[i++] = v;
  }
  // What goes wrong when it runs.
  void wrong(Upsets* upsets) { state_.upsets = &upsets_.emplace(state_, upsets); }
  // True when the program came to its end without a fault.
  bool run() {
    while (!run_block_round(&block)) {
    }
    return !block.fault;
  }

  AddressSpace memory;
  Block block;

 private:
  std::vector<Word> text_;
  Kernel kernel_;
  Launch launch_;
  Program program_;
  LaunchState state_;
  std::optional<UpsetRun> upsets_;
  std::unique_ptr<Row[]> pool_;
};

// Reproducible operands: random words mixed with the values where arithmetic changes its mind.
class Operands {
 public:
  uint32_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    const auto word = static_cast<uint32_t>(state_ >> 13);
    static constexpr uint32_t kEdges[] = {
        0,          1,          2,          31,         32,         33,         64,
        0x7fffffff, 0x80000000, 0xffffffff, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000,
        0x7fc00000, 0x7f800001, 0x00000001, 0x80000001, 0x00800000, 0x7f7fffff, 0x3effffff,
        0x4f000000, 0xcf000000, 0x5f000000, 0x33800000};
    const auto pick = static_cast<uint32_t>(state_ >> 50);
    return pick % 3 ? word : kEdges[pick / 3 % std::size(kEdges)];
  }
  void fill(Row* row) {
    for (uint32_t& lane : row->lane) lane = next();
  }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15u;
};

inline float as_float(uint32_t v) {
  return std::bit_cast<float>(v);
}
inline uint32_t as_word(float v) {
  return std::bit_cast<uint32_t>(v);
}
// The bits a float result has on the GPU.
inline uint32_t float_bits(float v) {
  return v == v ? as_word(v) : 0x7fffffffu;
}

}  // namespace softgpu::exec

#endif  // SOFTGPU_TESTS_ONE_WARP_H_
