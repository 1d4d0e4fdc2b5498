// The part of Store that has to do with what is kept for snapshots of other members.
#include <algorithm>
#include <iterator>

#include "checkpoint/store/store.h"

namespace pyft::checkpoint {

namespace {

constexpr uint32_t kLent = 3;  // of the tables, which are numbered from 1

}  // namespace

std::string Store::read_lent() {
  if (!header_->lends.load(std::memory_order_acquire)) return {};
  StoredSnapshot snapshot;
  if (std::string error = load(kLent, &snapshot); !error.empty()) return error;
  lent_ = std::move(snapshot.blocks);
  lent_step_ = snapshot.manifest.step;
  return {};
}

// What lies in the current snapshot only, and what has been lent before: no rank names anything of
// a snapshot without a step.
bool Store::lend() {
  if (!current_ || !committed_.manifest.step) return true;
  StoredSnapshot lent;
  lent.manifest = committed_.manifest;
  std::ranges::copy_if(committed_.blocks, std::back_inserter(lent.blocks),
                       [](const ring::ManifestBlock& block) { return !is_remote(block); });
  if (lent_step_ >= committed_.manifest.step) {
    lent.manifest.step = lent_step_;
    std::ranges::copy(lent_, std::back_inserter(lent.blocks));
  }
  for (const ring::ManifestBlock& block : lent.blocks)
    reference(block.heap_offset, block.bytes, block.digest);
  return write_lent(std::move(lent));
}

bool Store::lend_more(uint64_t step, std::vector<ring::ManifestBlock> blocks) {
  if (blocks.empty()) return true;
  StoredSnapshot lent;
  lent.manifest = committed_.manifest;
  lent.manifest.step = std::max(step, lent_step_);
  for (ring::ManifestBlock& block : blocks) {
    const auto known = offset_of_.find(block.digest);
    if (known != offset_of_.end() && contents_.at(known->second).bytes == block.bytes &&
        known->second != block.heap_offset) {
      heap_.give(block.heap_offset, block.bytes);
      block.heap_offset = known->second;
    }
    reference(block.heap_offset, block.bytes, block.digest);
  }
  lent.blocks = std::move(blocks);
  // What was lent for snapshots of an earlier step may still be named by a rank that has not heard.
  for (const ring::ManifestBlock& block : lent_) {
    reference(block.heap_offset, block.bytes, block.digest);
    lent.blocks.push_back(block);
  }
  const bool written = write_lent(std::move(lent));
  note_figures();
  return written;
}

bool Store::lends(uint64_t step, ring::Digest digest) const {
  return lent_step_ >= step && std::ranges::any_of(lent_, [&](const ring::ManifestBlock& block) {
           return block.digest == digest;
         });
}

const std::byte* Store::find(const ring::ManifestBlock& block) const {
  const auto known = offset_of_.find(block.digest);
  if (known == offset_of_.end() || contents_.at(known->second).bytes != block.bytes) return nullptr;
  return at(known->second);
}

// Its blocks are referenced.
bool Store::write_lent(StoredSnapshot lent) {
  lent.manifest.blocks = lent.blocks.size();
  lent.manifest.places = 0;
  lent.manifest.checksum = checksum_of(lent, seed_);
  take_back_lent();
  if (!write_table(kLent, lent)) {
    release(lent.blocks);
    return false;
  }
  lent_ = std::move(lent.blocks);
  lent_step_ = lent.manifest.step;
  header_->lends.store(1, std::memory_order_release);
  return true;
}

void Store::take_back_lent() {
  header_->lends.store(0, std::memory_order_release);
  release(lent_);
  lent_.clear();
  lent_step_ = 0;
}

}  // namespace pyft::checkpoint
