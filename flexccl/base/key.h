// Keyed hashing (SipHash-2-4 with 128-bit output) and the key that the members of a job share.
#ifndef FLEXCCL_BASE_KEY_H_
#define FLEXCCL_BASE_KEY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace flexccl {

using Bytes16 = std::array<std::uint8_t, 16>;

struct Key {
  Bytes16 bytes{};
  bool operator==(const Key&) const = default;
};

Bytes16 keyed_hash(const Key& key, std::span<const std::byte> data);
std::uint64_t keyed_hash64(const Key& key, std::span<const std::byte> data);
// Names a key without telling it.
std::uint64_t fingerprint(const Key& key);
Bytes16 random_bytes16();
std::uint64_t random64();

// Compares in constant time, so that a forger learns nothing from how long a refusal takes.
bool equal_macs(const Bytes16& a, const Bytes16& b);

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace flexccl

#endif  // FLEXCCL_BASE_KEY_H_
