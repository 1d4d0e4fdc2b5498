// Keyed 128-bit digests of memory contents: XXH3 with a secret number of the store as its seed, or,
// for memory that the server cannot look at itself, one that a device computes (digest/nh.h). Two
// contents of the same length with the same digest are taken for equal. Not cryptographic: what a
// program that can read the seed writes on purpose is its own affair.
#ifndef PYFT_CHECKPOINT_DIGEST_DIGEST_H_
#define PYFT_CHECKPOINT_DIGEST_DIGEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "checkpoint/digest/nh.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

struct DigestKey {
  uint64_t seed;
  ring::DigestKind kind = ring::DigestKind::kXxh3;
  // XXH3's, where nothing says otherwise.
  DigestKey(uint64_t seed, ring::DigestKind kind = ring::DigestKind::kXxh3)
      : seed(seed), kind(kind) {}
  bool operator==(const DigestKey&) const = default;
};

ring::Digest digest(const void* data, uint64_t bytes, DigestKey key);

// Copies, and returns the digest of the copy.
ring::Digest copy_and_digest(void* to, const void* from, uint64_t bytes, DigestKey key);

// Of so many zeros; cheap from the second time on. Not thread-safe.
ring::Digest zero_digest(uint64_t bytes, DigestKey key);

// A digest made in pieces. Where the library has no code for the machine's widest vectors this
// takes several times as long as digest().
class Hasher {
 public:
  explicit Hasher(DigestKey key);
  void restart();
  void add(const void* data, uint64_t bytes);
  ring::Digest digest() const;

 private:
  struct Free {
    void operator()(void* state) const;
  };
  uint64_t seed_;
  std::unique_ptr<NhHasher> nh_;       // one of
  std::unique_ptr<void, Free> state_;  // these two
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_DIGEST_DIGEST_H_
