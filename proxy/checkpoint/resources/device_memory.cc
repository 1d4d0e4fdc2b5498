#include "checkpoint/resources/device_memory.h"

#include <utility>

#include "checkpoint/bytes_passed.h"
#include "checkpoint/digest/digest.h"
#include "checkpoint/throttle.h"

namespace pyft::checkpoint {

namespace {

std::string block_text(const ring::ManifestBlock& block, const ring::Manifest& manifest) {
  return "block of [" + std::to_string(block.bytes) + "] bytes at [" +
         std::to_string(block.address) + "] of cut [" + std::to_string(manifest.cut) + "]";
}

// Where the content of a block lies, in whichever store; with the digest it was snapshotted with.
const std::byte* content_of(const ring::ManifestBlock& block, const Store& store,
                            RemoteBlocks& remote, std::string* problem) {
  const std::string name = "a " + block_text(block, store.committed().manifest);
  if (is_remote(block)) {
    // Lent, and kept here for another rank's sake.
    const std::byte* const own = store.find(block);
    if (own && digest(own, block.bytes, store.digest_key()) == block.digest) return own;
    const std::byte* const found = remote.content(block, problem);
    if (!found)
      *problem = "the content of " + name + ", which the store of member [" +
                 std::to_string(owner_of(block)) + "] should have, is missing: " + *problem;
    return found;
  }
  const std::byte* content = store.at(block.heap_offset);
  if (digest(content, block.bytes, store.digest_key()) == block.digest) return content;
  *problem = "the stored content of " + name + " has another digest than at its snapshot";
  return nullptr;
}

std::string verify(const ring::ManifestBlock& block, DeviceMemory& memory, Hasher* hasher) {
  hasher->restart();
  const auto take = [&](const std::byte* bytes, uint64_t part) { hasher->add(bytes, part); };
  const std::byte* const there = memory.view(block.address, block.bytes);
  if (there)
    take(there, block.bytes);
  else if (const int code = memory.read(only({block.address, block.bytes}), take))
    return "reading it back fails with code [" + std::to_string(code) + "]";
  return hasher->digest() == block.digest ? "" : "the device has other bytes than were written";
}

// All blocks at once. kNotOnDevice: the host has to do it.
int digests_of(std::span<const ring::ManifestBlock> blocks, DeviceMemory& memory,
               std::vector<ring::Digest>* digests) {
  std::vector<MemoryRange> ranges;
  for (const ring::ManifestBlock& block : blocks) ranges.push_back({block.address, block.bytes});
  digests->resize(ranges.size());
  return memory.digests(ranges, digests->data());
}

class MemoryRestorer : private BlockCheck {
 public:
  MemoryRestorer(ring::ControlPage& page, const Store& store, DeviceMemory& memory,
                 RemoteBlocks& remote)
      : store_(store),
        memory_(memory),
        remote_(remote),
        committed_(store.committed()),
        page_(page),
        hasher_(store.digest_key()) {}

  std::string run() {
    page_.restored_bytes = page_.restored_blocks = page_.peer_bytes = 0;
    there_.resize(committed_.blocks.size());
    for (size_t i = 0; i < there_.size(); ++i)
      if ((there_[i] = is_untouched(committed_.blocks[i]))) count(committed_.blocks[i]);
    std::string problem = remote_.from_peers(committed_.blocks, *this, &there_);
    for (size_t i = 0; problem.empty() && i < committed_.blocks.size(); ++i)
      if (!there_[i]) problem = from_stores(committed_.blocks[i]);
    return problem.empty() ? verify_written() : problem;
  }

 private:
  void count(const ring::ManifestBlock& block) {
    page_.restored_bytes.fetch_add(block.bytes, std::memory_order_relaxed);
    page_.restored_blocks.fetch_add(1, std::memory_order_relaxed);
  }

  // Zeros, and writing them would cost pages.
  bool is_untouched(const ring::ManifestBlock& block) const {
    return memory_.views() && block.digest == zero_digest(block.bytes, store_.digest_key()) &&
           memory_.untouched(block.address, block.bytes);
  }

  // Of what another rank's GPU had. Errors of the device are those of the next call, too.
  std::vector<bool> right(std::span<const ring::ManifestBlock> blocks) override {
    std::vector<bool> right(blocks.size(), false);
    std::vector<ring::Digest> digests;
    const int code = digests_of(blocks, memory_, &digests);
    for (size_t i = 0; i < blocks.size(); ++i)
      right[i] = code == kNotOnDevice ? verify(blocks[i], memory_, &hasher_).empty()
                                      : !code && digests[i] == blocks[i].digest;
    for (size_t i = 0; i < blocks.size(); ++i)
      if (right[i]) {
        count(blocks[i]);
        page_.peer_bytes.fetch_add(blocks[i].bytes, std::memory_order_relaxed);
      }
    return right;
  }

  std::string from_stores(const ring::ManifestBlock& block) {
    count(block);
    std::string problem;
    const std::byte* const content = content_of(block, store_, remote_, &problem);
    if (!content) return problem;
    if (const int code = memory_.write(block.address, content, block.bytes))
      return "writing a " + name(block) + " fails with code [" + std::to_string(code) + "]";
    pass_bytes(block.bytes);
    throttle(block.bytes);
    if (!memory_.hashes())
      problem = verify(block, memory_, &hasher_);
    else
      written_.push_back(block);
    return problem.empty() ? problem : "a " + name(block) + " is not restored: " + problem;
  }

  // On the device, all at once.
  std::string verify_written() {
    if (written_.empty()) return {};
    std::vector<ring::Digest> digests;
    const int code = digests_of(written_, memory_, &digests);
    if (code && code != kNotOnDevice)
      return "hashing what was restored fails with code [" + std::to_string(code) + "]";
    for (size_t i = 0; i < written_.size(); ++i) {
      std::string problem;
      if (code) problem = verify(written_[i], memory_, &hasher_);
      if (!code && digests[i] != written_[i].digest)
        problem = "the device has other bytes than were written";
      if (!problem.empty()) return "a " + name(written_[i]) + " is not restored: " + problem;
    }
    return {};
  }

  std::string name(const ring::ManifestBlock& block) const {
    return block_text(block, committed_.manifest);
  }

  const Store& store_;
  DeviceMemory& memory_;
  RemoteBlocks& remote_;
  const StoredSnapshot& committed_;
  ring::ControlPage& page_;
  Hasher hasher_;
  std::vector<bool> there_;
  std::vector<ring::ManifestBlock> written_;  // and not verified yet
};

}  // namespace

std::string save_memory(const MemoryToSave& what, DeviceState& state, Stage* stage, LiveSet* live) {
  std::vector<MemoryRange> mapped;
  state.mapped(&mapped);
  std::string problem = find_live(what.scope, std::move(mapped), {}, what.places, live);
  if (problem.empty()) problem = stage->add(live->blocks, what.late, what.plan);
  return problem;
}

std::string restore_memory(ring::ControlPage& page, const Store& store, DeviceMemory& memory,
                           RemoteBlocks& remote) {
  return MemoryRestorer(page, store, memory, remote).run();
}

}  // namespace pyft::checkpoint
