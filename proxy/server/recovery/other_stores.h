// Stores of other members of the job, for contents that they keep for this rank: read-only, looked
// at by a new server only. docs/recovery.md, "Shares".
#ifndef PYFT_SERVER_RECOVERY_OTHER_STORES_H_
#define PYFT_SERVER_RECOVERY_OTHER_STORES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "ring/store_layout.h"
#include "server/recovery/digest.h"

namespace pyft::server {

class OtherStores {
 public:
  // The descriptor of a store, which is given away: the member's, then those of others that may
  // have the same contents; -1: there is none, or no other.
  using Ask = std::function<int(uint64_t owner, uint64_t attempt)>;

  OtherStores(DigestKey key, Ask ask) : key_(key), ask_(std::move(ask)) {}
  ~OtherStores();
  OtherStores(const OtherStores&) = delete;

  // A content with the digest of the block, wherever one of these stores has it; nullptr and why.
  const std::byte* content(const ring::ManifestBlock& block, std::string* problem);

 private:
  struct DigestHash {
    size_t operator()(const ring::Digest& digest) const { return digest.low ^ digest.high; }
  };
  struct Other {
    std::byte* base = nullptr;
    uint64_t bytes = 0, heap_offset = 0, heap_bytes = 0;
    std::string problem;
    // Places where a content was when some table was written: the owner goes on meanwhile.
    std::unordered_multimap<ring::Digest, uint64_t, DigestHash> places;
  };
  using Which = std::pair<uint64_t, uint64_t>;  // owner, attempt
  Other& open(const Which& which);
  const std::byte* look(const Other& other, const ring::ManifestBlock& block,
                        std::string* problem) const;
  void map(int fd, Other* other) const;
  void find_places(int fd, Other* other) const;

  DigestKey key_;
  Ask ask_;
  std::map<Which, Other> others_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_OTHER_STORES_H_
