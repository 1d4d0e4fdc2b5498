#include "checkpoint/resources/device_memory.h"

#include <utility>

#include "checkpoint/digest/digest.h"
#include "checkpoint/memory/memory_writer.h"

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

// The same, if nothing has been damaged or overwritten, without a look at it.
const std::byte* likely_content_of(const ring::ManifestBlock& block, const Store& store,
                                   RemoteBlocks& remote, std::string* problem) {
  if (!is_remote(block)) return store.at(block.heap_offset);
  if (const std::byte* const own = store.find(block)) return own;
  if (const std::byte* const likely = remote.likely_content(block)) return likely;
  return content_of(block, store, remote, problem);
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
        writer_(memory, store.digest_key()) {}

  std::string run() {
    page_.restored_bytes = page_.restored_blocks = page_.peer_bytes = 0;
    there_.resize(committed_.blocks.size());
    for (size_t i = 0; i < there_.size(); ++i)
      if ((there_[i] = is_untouched(committed_.blocks[i]))) count(committed_.blocks[i]);
    std::string problem = remote_.from_peers(committed_.blocks, *this, &there_);
    for (size_t i = 0; problem.empty() && i < committed_.blocks.size(); ++i)
      if (!there_[i]) problem = plan(committed_.blocks[i]);
    if (problem.empty()) problem = write([this](const ring::ManifestBlock& one) { count(one); });
    if (problem.empty() && !wrong_.empty()) problem = write_again();
    return problem;
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
    std::vector<bool> right;
    if (writer_.compare(blocks, &right)) right.assign(blocks.size(), false);
    for (size_t i = 0; i < blocks.size(); ++i)
      if (right[i]) {
        count(blocks[i]);
        page_.peer_bytes.fetch_add(blocks[i].bytes, std::memory_order_relaxed);
      }
    return right;
  }

  std::string plan(const ring::ManifestBlock& block) {
    std::string problem;
    const std::byte* const content = likely_content_of(block, store_, remote_, &problem);
    if (!content) return problem;
    contents_.push_back({block, content});
    return {};
  }

  // The device has then what was planned, but for what is wrong_.
  std::string write(BlockBegins begins) {
    const auto [code, failed, wrong] = writer_.write(contents_, begins);
    wrong_.clear();
    for (const size_t which : wrong) wrong_.push_back(contents_[which].block);
    if (!code) return {};
    return std::string(failed) + " fails with code [" + std::to_string(code) + "]";
  }

  // Why has the device something else there? Of a content of this store nothing else can be had.
  // What other ranks have they may have overwritten: so it is looked for, and hashed, once more.
  std::string write_again() {
    contents_.clear();
    for (const ring::ManifestBlock& block : wrong_) {
      std::string problem;
      const std::byte* const content = content_of(block, store_, remote_, &problem);
      if (!content) return problem;
      if (!is_remote(block)) return not_restored(block);
      contents_.push_back({block, content});
    }
    const std::string problem = write([](const ring::ManifestBlock&) {});
    return problem.empty() && !wrong_.empty() ? not_restored(wrong_[0]) : problem;
  }

  std::string not_restored(const ring::ManifestBlock& block) const {
    return "a " + block_text(block, committed_.manifest) +
           " is not restored: the device has other bytes than were written";
  }

  const Store& store_;
  DeviceMemory& memory_;
  RemoteBlocks& remote_;
  const StoredSnapshot& committed_;
  ring::ControlPage& page_;
  MemoryWriter writer_;
  std::vector<bool> there_;
  std::vector<BlockContent> contents_;
  std::vector<ring::ManifestBlock> wrong_;
};

}  // namespace

std::string save_memory(const MemoryToSave& what, DeviceState& state, Stage* stage, LiveSet* live) {
  std::string problem = state.out_of_reach();
  if (!problem.empty()) return problem;
  std::vector<MemoryRange> mapped;
  state.mapped(&mapped);
  problem = find_live(what.scope, std::move(mapped), {}, what.places, live);
  if (problem.empty()) problem = stage->add(live->blocks, what.late, what.plan);
  return problem;
}

std::string restore_memory(ring::ControlPage& page, const Store& store, DeviceMemory& memory,
                           RemoteBlocks& remote) {
  return MemoryRestorer(page, store, memory, remote).run();
}

}  // namespace pyft::checkpoint
