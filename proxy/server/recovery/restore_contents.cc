#include "server/recovery/bytes_passed.h"
#include "server/recovery/digest.h"
#include "server/recovery/restore.h"

namespace pyft::server {

namespace {

std::string block_text(const ring::ManifestBlock& block, const ring::Manifest& manifest) {
  return "block of [" + std::to_string(block.bytes) + "] bytes at [" +
         std::to_string(block.address) + "] of cut [" + std::to_string(manifest.cut) + "]";
}

// Where the content of a block lies, whoever keeps it; with the digest it was captured with.
const std::byte* content_of(const ring::ManifestBlock& block, const Store& store,
                            const RecoveryCalls& calls, std::string* problem) {
  const std::string name = "a " + block_text(block, store.point().manifest);
  if (is_elsewhere(block)) {
    // Lent, and kept here for another rank's sake.
    const std::byte* const own = store.find(block);
    if (own && digest(own, block.bytes, store.digest_key()) == block.digest) return own;
    if (!calls.elsewhere) *problem = "no other rank's store can be looked at";
    const std::byte* found = calls.elsewhere ? calls.elsewhere(block, problem) : nullptr;
    if (!found)
      *problem = "the content of " + name + ", which the store of member [" +
                 std::to_string(owner_of(block)) + "] should have, is missing: " + *problem;
    return found;
  }
  const std::byte* content = store.at(block.heap_offset);
  if (digest(content, block.bytes, store.digest_key()) == block.digest) return content;
  *problem = "the stored content of " + name + " has another digest than at its capture";
  return nullptr;
}

std::string verify(const ring::ManifestBlock& block, const RecoveryCalls& calls, Hasher* hasher) {
  hasher->restart();
  const auto take = [&](const std::byte* bytes, uint64_t part) { hasher->add(bytes, part); };
  const std::byte* const there = calls.view ? calls.view(block.address, block.bytes) : nullptr;
  if (there)
    take(there, block.bytes);
  else if (const int code = calls.read(only({block.address, block.bytes}), take))
    return "reading it back fails with code [" + std::to_string(code) + "]";
  return hasher->digest() == block.digest ? "" : "the device has other bytes than were written";
}

// All blocks at once. kNotOnDevice: the host has to do it.
int digests_of(std::span<const ring::ManifestBlock> blocks, const RecoveryCalls& calls,
               std::vector<ring::Digest>* digests) {
  std::vector<MemoryRange> ranges;
  for (const ring::ManifestBlock& block : blocks) ranges.push_back({block.address, block.bytes});
  digests->resize(ranges.size());
  return calls.digests ? calls.digests(ranges, digests->data()) : kNotOnDevice;
}

class ContentRestorer {
 public:
  ContentRestorer(Session& session, const Store& store, const RecoveryCalls& calls)
      : store_(store),
        calls_(calls),
        point_(store.point()),
        page_(session.channel().control()),
        hasher_(store.digest_key()) {}

  std::string run() {
    page_.restored_bytes = page_.restored_blocks = page_.peer_bytes = 0;
    there_.resize(point_.blocks.size());
    for (size_t i = 0; i < there_.size(); ++i)
      if ((there_[i] = is_untouched(point_.blocks[i]))) count(point_.blocks[i]);
    std::string problem = from_peers();
    for (size_t i = 0; problem.empty() && i < point_.blocks.size(); ++i)
      if (!there_[i]) problem = from_stores(point_.blocks[i]);
    return problem.empty() ? verify_written() : problem;
  }

 private:
  void count(const ring::ManifestBlock& block) {
    page_.restored_bytes.fetch_add(block.bytes, std::memory_order_relaxed);
    page_.restored_blocks.fetch_add(1, std::memory_order_relaxed);
  }

  // Zeros, and writing them would cost pages.
  bool is_untouched(const ring::ManifestBlock& block) const {
    return calls_.untouched && block.digest == zero_digest(block.bytes, store_.digest_key()) &&
           calls_.untouched(block.address, block.bytes);
  }

  std::string from_peers() {
    if (!calls_.from_peers) return {};
    const auto check = [this](std::span<const ring::ManifestBlock> blocks) {
      std::vector<bool> right = check_copied(blocks);
      for (size_t i = 0; i < blocks.size(); ++i)
        if (right[i]) {
          count(blocks[i]);
          page_.peer_bytes.fetch_add(blocks[i].bytes, std::memory_order_relaxed);
        }
      return right;
    };
    return calls_.from_peers(point_.blocks, check, &there_);
  }

  // Errors of the device are those of the next call, too.
  std::vector<bool> check_copied(std::span<const ring::ManifestBlock> blocks) {
    std::vector<bool> right(blocks.size(), false);
    std::vector<ring::Digest> digests;
    const int code = digests_of(blocks, calls_, &digests);
    for (size_t i = 0; i < blocks.size(); ++i)
      right[i] = code == kNotOnDevice ? verify(blocks[i], calls_, &hasher_).empty()
                                      : !code && digests[i] == blocks[i].digest;
    return right;
  }

  std::string from_stores(const ring::ManifestBlock& block) {
    count(block);
    std::string problem;
    const std::byte* const content = content_of(block, store_, calls_, &problem);
    if (!content) return problem;
    if (const int code = calls_.write(block.address, content, block.bytes))
      return "writing a " + name(block) + " fails with code [" + std::to_string(code) + "]";
    pass_bytes(block.bytes);
    if (!calls_.digests)
      problem = verify(block, calls_, &hasher_);
    else
      written_.push_back(block);
    return problem.empty() ? problem : "a " + name(block) + " is not restored: " + problem;
  }

  // On the device, all at once.
  std::string verify_written() {
    if (written_.empty()) return {};
    std::vector<ring::Digest> digests;
    const int code = digests_of(written_, calls_, &digests);
    if (code && code != kNotOnDevice)
      return "hashing what was restored fails with code [" + std::to_string(code) + "]";
    for (size_t i = 0; i < written_.size(); ++i) {
      std::string problem;
      if (code) problem = verify(written_[i], calls_, &hasher_);
      if (!code && digests[i] != written_[i].digest)
        problem = "the device has other bytes than were written";
      if (!problem.empty()) return "a " + name(written_[i]) + " is not restored: " + problem;
    }
    return {};
  }

  std::string name(const ring::ManifestBlock& block) const {
    return block_text(block, point_.manifest);
  }

  const Store& store_;
  const RecoveryCalls& calls_;
  const RecoveryPoint& point_;
  ring::ControlPage& page_;
  Hasher hasher_;
  std::vector<bool> there_;
  std::vector<ring::ManifestBlock> written_;  // and not verified yet
};

}  // namespace

std::string restore_contents(Session& session, const Store& store, const RecoveryCalls& calls) {
  return ContentRestorer(session, store, calls).run();
}

}  // namespace pyft::server
