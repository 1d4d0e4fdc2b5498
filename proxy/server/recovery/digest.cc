#include "server/recovery/digest.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

// Declared here since machines have libxxhash's run-time library but not always its headers. The
// interface of XXH3 is stable from version 0.8.0 on.
extern "C" {
struct XXH128Hash {
  uint64_t low, high;
};
XXH128Hash XXH3_128bits_withSeed(const void* data, size_t bytes, uint64_t seed);
void* XXH3_createState();
int XXH3_freeState(void* state);
int XXH3_128bits_reset_withSeed(void* state, uint64_t seed);
int XXH3_128bits_update(void* state, const void* data, size_t bytes);
XXH128Hash XXH3_128bits_digest(const void* state);
}

namespace pyft::server {

namespace {
// Fits the first-level cache twice: what has been copied is hashed from there.
constexpr uint64_t kChunk = 16 << 10;
constexpr uint64_t kZeros = 64 << 10;
}  // namespace

ring::Digest digest(const void* data, uint64_t bytes, uint64_t seed) {
  const XXH128Hash hash = XXH3_128bits_withSeed(data, bytes, seed);
  return {hash.low, hash.high};
}

ring::Digest zero_digest(uint64_t bytes, uint64_t seed) {
  static std::unordered_map<uint64_t, ring::Digest> known;
  static uint64_t known_seed = seed;
  if (std::exchange(known_seed, seed) != seed) known.clear();
  const auto [found, fresh] = known.try_emplace(bytes);
  if (fresh) {
    const std::vector<std::byte> zeros(std::min(bytes, kZeros));
    Hasher hasher(seed);
    for (uint64_t at = 0; at < bytes; at += zeros.size())
      hasher.add(zeros.data(), std::min<uint64_t>(zeros.size(), bytes - at));
    found->second = hasher.digest();
  }
  return found->second;
}

void Hasher::Free::operator()(void* state) const {
  XXH3_freeState(state);
}

Hasher::Hasher(uint64_t seed) : seed_(seed), state_(XXH3_createState()) {
  if (!state_) std::abort();
  restart();
}

void Hasher::restart() {
  XXH3_128bits_reset_withSeed(state_.get(), seed_);
}

void Hasher::add(const void* data, uint64_t bytes) {
  XXH3_128bits_update(state_.get(), data, bytes);
}

void Hasher::add_copy(void* to, const void* from, uint64_t bytes) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  for (uint64_t at = 0; at < bytes; at += kChunk) {
    const uint64_t part = std::min(kChunk, bytes - at);
    std::memcpy(out + at, in + at, part);
    add(in + at, part);
  }
}

ring::Digest Hasher::digest() const {
  const XXH128Hash hash = XXH3_128bits_digest(state_.get());
  return {hash.low, hash.high};
}

}  // namespace pyft::server
