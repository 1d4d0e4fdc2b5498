// The hash of contents, to tell whether bytes are still what they were: XXH3, 128 bits. Not secret:
// a process that may write the memory that it protects may also write the hash.
#ifndef FLEXCCL_BASE_HASH_H_
#define FLEXCCL_BASE_HASH_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace flexccl {

struct Hash {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Hash&) const = default;
};

// `before`: of what came before, when several pieces are hashed one after the other.
Hash content_hash(std::span<const std::byte> content, const Hash& before = {});

}  // namespace flexccl

#endif  // FLEXCCL_BASE_HASH_H_
