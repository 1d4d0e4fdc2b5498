// Outputs that all ranks of a host have, stored once per host: memory of the embedder that the
// processes of the host share and that outlives them. A content belongs to its holders, one bit
// each; it is there as long as a rank holds it. Every change is one store, so that a process may
// end at any instruction; what it had only begun, the others finish.
#ifndef FLEXCCL_OPLOG_CONTENT_STORE_H_
#define FLEXCCL_OPLOG_CONTENT_STORE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "base/hash.h"

namespace flexccl {

struct ContentKey {
  std::uint64_t comm = 0, sequence = 0, bytes = 0;
  Hash hash = {};
  bool operator==(const ContentKey&) const = default;
};

class ContentStore {
 public:
  static constexpr int kHolders = 64;
  static ContentStore& process();

  // Throws ncclInvalidArgument when this is no store, and cannot become one.
  void attach(std::span<std::byte> memory, int holder);
  // Where the content is now held by this process's holder; nothing: there is no store, or no room.
  // Never waits for the progress of another process.
  std::optional<std::uint64_t> hold(const ContentKey& key, std::span<const std::byte> content);
  // A record of a predecessor holds it; as often as hold() and hold_again() said so, it is
  // released.
  void hold_again(std::uint64_t place);
  void release(std::uint64_t place, const ContentKey& key);
  // It stays held, by records that this process does not look after any more.
  void abandon(std::uint64_t place);
  // Empty: it is not held, or is another one.
  std::span<const std::byte> find(std::uint64_t place, const ContentKey& key) const;
  // Bytes of room, and of these in use by any rank.
  std::uint64_t room() const, used() const;

 private:
  struct Header;
  struct Entry;
  class Lock;
  std::span<Entry> entries() const;
  std::optional<std::uint64_t> place_for(std::uint64_t bytes) const;
  Entry* claim(const ContentKey& key);
  void write(Entry& entry, std::span<const std::byte> content) const;

  mutable std::mutex mutex_;  // of this process's threads
  Header* header_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t bit_ = 0;
  std::map<std::uint64_t, int> uses_;  // by ranks of this process, by place
};

}  // namespace flexccl

#endif  // FLEXCCL_OPLOG_CONTENT_STORE_H_
