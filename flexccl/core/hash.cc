#include "core/hash.h"

#include <bit>
#include <cstring>

#include "core/key.h"

namespace flexccl {
namespace {

constexpr std::size_t kLanes = 8, kBlock = kLanes * sizeof(std::uint64_t);

// Each lane takes every eighth word; each step is a bijection of the lane, so that two contents
// that differ in one word never meet again. Eight lanes keep a multiplier busy in every cycle.
struct Lanes {
  std::uint64_t lane[kLanes] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb,
                                0xd6e8feb86659fd93, 0xa0761d6478bd642f, 0xe7037ed1a0b428db,
                                0x8ebc6af09c88c6e3, 0x589965cc75374cc3};

  void absorb(const std::byte* block) {
    std::uint64_t words[kLanes];
    std::memcpy(words, block, sizeof words);
    for (std::size_t i = 0; i < kLanes; ++i)
      lane[i] = std::rotl((lane[i] ^ words[i]) * 0xff51afd7ed558ccd, 29);
  }
};

}  // namespace

Hash content_hash(std::span<const std::byte> content, const Hash& before) {
  struct {
    Lanes lanes;
    Hash before;
    std::uint64_t size;
  } state{{}, before, content.size()};
  std::size_t at = 0;
  for (; at + kBlock <= content.size(); at += kBlock) state.lanes.absorb(content.data() + at);
  if (at < content.size()) {
    std::byte last[kBlock] = {};
    std::memcpy(last, content.data() + at, content.size() - at);
    state.lanes.absorb(last);
  }
  const Bytes16 mixed = keyed_hash({}, bytes_of(state));
  Hash hash;
  std::memcpy(&hash, mixed.data(), sizeof hash);
  return hash;
}

}  // namespace flexccl
