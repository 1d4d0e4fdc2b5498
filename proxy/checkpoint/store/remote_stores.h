// Stores of other members of the job, for contents that they keep for this rank: read-only, looked
// at by a new server only. docs/concepts/sharing.md.
#ifndef PYFT_CHECKPOINT_STORE_REMOTE_STORES_H_
#define PYFT_CHECKPOINT_STORE_REMOTE_STORES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "checkpoint/digest/digest.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

// Where stores come from.
class StoreSource {
 public:
  virtual ~StoreSource() = default;
  // The descriptor of a store, which is given away: the member's, then those of others that may
  // have the same contents; -1: there is none, or no other.
  virtual int open(uint64_t owner, uint64_t attempt) = 0;
};

class RemoteStores {
 public:
  // The source outlives the object.
  RemoteStores(DigestKey key, StoreSource& source) : key_(key), source_(source) {}
  ~RemoteStores();
  RemoteStores(const RemoteStores&) = delete;

  // A content with the digest of the block, wherever one of these stores has it; nullptr and why.
  const std::byte* content(const ring::ManifestBlock& block, std::string* problem);
  // Where the table of its owner says that there is one. It is not hashed: the owner may have
  // overwritten it. nullptr: no table says so.
  const std::byte* likely_content(const ring::ManifestBlock& block);

 private:
  struct DigestHash {
    size_t operator()(const ring::Digest& digest) const { return digest.low ^ digest.high; }
  };
  struct Other {
    bool exists = false;
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
  StoreSource& source_;
  std::map<Which, Other> others_;
};

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_STORE_REMOTE_STORES_H_
