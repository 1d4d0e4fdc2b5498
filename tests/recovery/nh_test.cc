// The digest that devices can compute: the host's is that of a model in Python (nh_model.py), in
// whatever pieces and wherever it lies.
#include "checkpoint/digest/nh.h"

#include <cstring>
#include <vector>

#include "check.h"
#include "checkpoint/digest/digest.h"
#include "checkpoint/digest/nh_rows.h"

namespace pyft {
namespace {

struct Vector {
  uint64_t seed, bytes;
  ring::Digest digest;
};
#include "nh_vectors.h"

using Bytes = std::vector<std::byte>;

Bytes content(uint64_t bytes) {
  Bytes data(bytes);
  for (uint64_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>(i * 131 + (i >> 8) * 7 + (i >> 16) * 29 + 5);
  return data;
}

TEST(equals_the_model) {
  for (const Vector& vector : kVectors) {
    const Bytes data = content(vector.bytes);
    CHECK(checkpoint::nh_digest(data.data(), data.size(), vector.seed) == vector.digest);
  }
}

TEST(does_not_depend_on_where_it_lies) {
  const Bytes data = content(70'003);
  const ring::Digest wanted = checkpoint::nh_digest(data.data(), data.size(), 9);
  Bytes room(data.size() + 64);
  for (size_t shift : {1, 2, 7, 13, 33}) {
    std::memcpy(room.data() + shift, data.data(), data.size());
    CHECK(checkpoint::nh_digest(room.data() + shift, data.size(), 9) == wanted);
  }
}

TEST(does_not_depend_on_pieces) {
  const Bytes data = content(300'000);
  checkpoint::Hasher hasher({7, ring::DigestKind::kNh});
  for (const size_t piece : {1'000u, 65'536u, 65'535u, 100'000u, 262'144u, 300'000u}) {
    hasher.restart();
    for (size_t at = 0; at < data.size(); at += piece)
      hasher.add(data.data() + at, std::min(piece, data.size() - at));
    CHECK(hasher.digest() ==
          checkpoint::digest(data.data(), data.size(), {7, ring::DigestKind::kNh}));
  }
}

TEST(vectors_and_words_give_the_same) {
  const Bytes data = content(checkpoint::kTileBytes);
  const checkpoint::NhKey key(3);
  checkpoint::NhSums fast, plain;
  checkpoint::add_nh_rows(data.data(), checkpoint::kRows, key.units.data(), &fast);
  checkpoint::add_nh_rows_portable(data.data(), checkpoint::kRows, key.units.data(), &plain);
  CHECK(std::memcmp(&fast, &plain, sizeof fast) == 0);
}

// Each bit of each kind of place counts, and so does the key.
TEST(notices_changes) {
  Bytes data = content(70'001);
  const ring::Digest wanted = checkpoint::nh_digest(data.data(), data.size(), 4);
  for (const size_t at : {0u, 1u, 15u, 16u, 511u, 512u, 65'535u, 65'536u, 69'999u, 70'000u})
    for (int bit = 0; bit < 8; ++bit) {
      data[at] ^= static_cast<std::byte>(1 << bit);
      CHECK(checkpoint::nh_digest(data.data(), data.size(), 4) != wanted);
      data[at] ^= static_cast<std::byte>(1 << bit);
    }
  CHECK(checkpoint::nh_digest(data.data(), data.size(), 5) != wanted);
}

TEST(zeros_are_told_apart_by_their_number) {
  const Bytes zeros(70'000);
  const checkpoint::DigestKey key(11, ring::DigestKind::kNh);
  for (const uint64_t bytes : {1u, 15u, 16u, 17u, 65'536u, 70'000u}) {
    CHECK(checkpoint::zero_digest(bytes, key) == checkpoint::nh_digest(zeros.data(), bytes, 11));
    CHECK(checkpoint::zero_digest(bytes, key) != checkpoint::zero_digest(bytes - 1, key));
  }
}

}  // namespace
}  // namespace pyft

CHECK_MAIN
