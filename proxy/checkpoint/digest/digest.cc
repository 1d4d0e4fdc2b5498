#include "checkpoint/digest/digest.h"

#include <algorithm>
#include <cstdlib>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/bytes_passed.h"

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
// The same by the widest vectors that the processor has: up to eight times as fast. Libraries that
// are built for one kind of processor lack them.
[[gnu::weak]] XXH128Hash XXH3_128bits_withSeed_dispatch(const void* data, size_t bytes,
                                                        uint64_t seed);
[[gnu::weak]] int XXH3_128bits_update_dispatch(void* state, const void* data, size_t bytes);
}

namespace pyft::checkpoint {

namespace {
constexpr uint64_t kZeros = 64 << 10;

ring::Digest hash_whole(const void* data, uint64_t bytes, DigestKey key) {
  if (key.kind == ring::DigestKind::kNh) return nh_digest(data, bytes, key.seed);
  static const auto hash =
      XXH3_128bits_withSeed_dispatch ? XXH3_128bits_withSeed_dispatch : XXH3_128bits_withSeed;
  const XXH128Hash found = hash(data, bytes, key.seed);
  return {found.low, found.high};
}

}  // namespace

ring::Digest digest(const void* data, uint64_t bytes, DigestKey key) {
  const ring::Digest found = hash_whole(data, bytes, key);
  pass_hashed(bytes);
  return found;
}

ring::Digest copy_and_digest(void* to, const void* from, uint64_t bytes, DigestKey key) {
  pass_copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  return digest(to, bytes, key);
}

ring::Digest zero_digest(uint64_t bytes, DigestKey key) {
  static std::unordered_map<uint64_t, ring::Digest> known;
  static DigestKey known_key = key;
  if (std::exchange(known_key, key) != key) known.clear();
  const auto [found, fresh] = known.try_emplace(bytes);
  if (fresh) {
    const std::vector<std::byte> zeros(std::min(bytes, kZeros));
    Hasher hasher(key);
    for (uint64_t at = 0; at < bytes; at += zeros.size())
      hasher.add(zeros.data(), std::min<uint64_t>(zeros.size(), bytes - at));
    found->second = hasher.digest();
  }
  return found->second;
}

void Hasher::Free::operator()(void* state) const {
  XXH3_freeState(state);
}

Hasher::Hasher(DigestKey key) : seed_(key.seed) {
  if (key.kind == ring::DigestKind::kNh)
    nh_ = std::make_unique<NhHasher>(seed_);
  else
    state_.reset(XXH3_createState());
  if (!nh_ && !state_) std::abort();
  restart();
}

void Hasher::restart() {
  if (nh_) return nh_->restart();
  XXH3_128bits_reset_withSeed(state_.get(), seed_);
}

void Hasher::add(const void* data, uint64_t bytes) {
  static const auto update =
      XXH3_128bits_update_dispatch ? XXH3_128bits_update_dispatch : XXH3_128bits_update;
  nh_ ? nh_->add(data, bytes) : static_cast<void>(update(state_.get(), data, bytes));
  pass_hashed(bytes);
}

ring::Digest Hasher::digest() const {
  if (nh_) return nh_->digest();
  const XXH128Hash hash = XXH3_128bits_digest(state_.get());
  return {hash.low, hash.high};
}

}  // namespace pyft::checkpoint
