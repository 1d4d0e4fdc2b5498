#include "base/key.h"

#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace flexccl {
namespace {

struct SipState {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1, v1 = std::rotl(v1, 13), v1 ^= v0, v0 = std::rotl(v0, 32);
    v2 += v3, v3 = std::rotl(v3, 16), v3 ^= v2;
    v0 += v3, v3 = std::rotl(v3, 21), v3 ^= v0;
    v2 += v1, v1 = std::rotl(v1, 17), v1 ^= v2, v2 = std::rotl(v2, 32);
  }
  void absorb(std::uint64_t word) {
    v3 ^= word;
    round(), round();
    v0 ^= word;
  }
  std::uint64_t finish() {
    for (int i = 0; i < 4; ++i) round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

Bytes16 keyed_hash(const Key& key, std::span<const std::byte> data) {
  std::uint64_t k[2];
  std::memcpy(k, key.bytes.data(), sizeof k);
  SipState state{k[0] ^ 0x736f6d6570736575u, k[1] ^ 0x646f72616e646f6du ^ 0xeeu,
                 k[0] ^ 0x6c7967656e657261u, k[1] ^ 0x7465646279746573u};
  std::size_t at = 0;
  for (; at + 8 <= data.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, data.data() + at, 8);
    state.absorb(word);
  }
  std::uint64_t last = static_cast<std::uint64_t>(data.size()) << 56;
  for (std::size_t i = 0; at + i < data.size(); ++i)
    last |= static_cast<std::uint64_t>(data[at + i]) << (8 * i);
  state.absorb(last);
  state.v2 ^= 0xeeu;
  const std::uint64_t low = state.finish();
  state.v1 ^= 0xddu;
  const std::uint64_t high = state.finish();
  Bytes16 out;
  std::memcpy(out.data(), &low, 8);
  std::memcpy(out.data() + 8, &high, 8);
  return out;
}

std::uint64_t keyed_hash64(const Key& key, std::span<const std::byte> data) {
  const Bytes16 hash = keyed_hash(key, data);
  std::uint64_t low;
  std::memcpy(&low, hash.data(), sizeof low);
  return low;
}

std::uint64_t fingerprint(const Key& key) {
  constexpr std::string_view kPurpose = "flexccl fingerprint";
  return keyed_hash64(key, std::as_bytes(std::span(kPurpose)));
}

Bytes16 random_bytes16() {
  Bytes16 out;
  if (getrandom(out.data(), out.size(), 0) != static_cast<ssize_t>(out.size()))
    fail(ncclSystemError, "flexccl: getrandom failed with error [", errno, "]");
  return out;
}

std::uint64_t random64() {
  const Bytes16 bytes = random_bytes16();
  std::uint64_t out;
  std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}

bool equal_macs(const Bytes16& a, const Bytes16& b) {
  std::uint8_t difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace flexccl
