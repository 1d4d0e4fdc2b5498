#include "checkpoint/memory/pre_images.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "checkpoint/bytes_passed.h"
#include "pyft/log.h"

namespace pyft::checkpoint {

PreImages::PreImages(Store& store, const Device& device) : store_(store), device_(device) {}

void PreImages::expect(const StoredSnapshot& snapshot) {
  step_ = snapshot.manifest.step;
  wanted_.clear();
  std::ranges::copy_if(snapshot.blocks, std::back_inserter(wanted_), ring::is_remote);
  fresh_ = true;
}

bool PreImages::has(const ring::ManifestBlock& block) const {
  const auto copy = copies_.find(block.address);
  return copy != copies_.end() && copy->second.whole && copy->second.bytes == block.bytes &&
         copy->second.digest == block.digest;
}

void PreImages::note_bytes(int64_t more) {
  store_.header().pre_image_bytes.fetch_add(static_cast<uint64_t>(more), std::memory_order_relaxed);
}

void PreImages::drop_unwanted() {
  std::unordered_map<uint64_t, uint64_t> wanted;
  for (const ring::ManifestBlock& block : wanted_) wanted[block.address] = block.bytes;
  std::erase_if(copies_, [&](const auto& one) {
    const auto& [address, copy] = one;
    const auto found = wanted.find(address);
    if (found != wanted.end() && found->second == copy.bytes) return false;
    note_bytes(-static_cast<int64_t>(copy.bytes));
    device_.own->release(copy.at);
    return true;
  });
}

bool PreImages::make_room(const ring::ManifestBlock& block, Copy* copy) {
  copy->whole = false;
  if (copy->at) return true;
  copy->at = device_.own->allocate(block.bytes);
  copy->bytes = block.bytes;
  if (copy->at) note_bytes(static_cast<int64_t>(block.bytes));
  return copy->at != 0;
}

// Begins all copies that are lacking. False: the device has no memory for one.
bool PreImages::duplicate(std::vector<const ring::ManifestBlock*>* begun) {
  std::vector<MemoryRange> mapped;
  device_.state.mapped(&mapped);
  std::ranges::sort(mapped, {}, &MemoryRange::address);
  const auto is_mapped = [&](const ring::ManifestBlock& block) {
    auto range = std::ranges::upper_bound(mapped, block.address, {}, &MemoryRange::address);
    return range != mapped.begin() && block.address + block.bytes <= (--range)->end();
  };
  for (const ring::ManifestBlock& block : wanted_) {
    if (has(block)) continue;
    Copy& copy = copies_[block.address];
    if (!make_room(block, &copy)) return false;
    pass_turn();
    begun->push_back(&block);
    // An error of the device is noticed where all others are.
    if (is_mapped(block)) device_.own->duplicate(copy.at, block.address, block.bytes);
  }
  return true;
}

// Of the copies. Those that cannot be had are zero.
std::vector<ring::Digest> PreImages::digests_of(
    const std::vector<const ring::ManifestBlock*>& blocks) {
  std::vector<MemoryRange> ranges;
  for (const ring::ManifestBlock* block : blocks)
    ranges.push_back({copies_.at(block->address).at, block->bytes});
  std::vector<ring::Digest> digests(ranges.size());
  if (device_.memory.digests(ranges, digests.data()) == 0) return digests;
  std::vector<std::byte> host;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const std::byte* bytes = device_.memory.view(ranges[i].address, ranges[i].bytes);
    if (!bytes) {
      host.resize(ranges[i].bytes);
      if (!look(ranges[i].address, host.data(), ranges[i].bytes)) continue;
      bytes = host.data();
    }
    digests[i] = digest(bytes, ranges[i].bytes, store_.digest_key());
  }
  return digests;
}

std::vector<ring::ManifestBlock> PreImages::keep() {
  std::vector<ring::ManifestBlock> lost;
  if (!std::exchange(fresh_, false)) return lost;
  if (closed_) {
    spill(step_, nullptr);
    return lost;
  }
  drop_unwanted();
  std::vector<const ring::ManifestBlock*> begun;
  if (!duplicate(&begun)) {
    device_.own->duplicated();
    give_up();
    return lost;
  }
  if (begun.empty()) return lost;
  const int code = device_.own->duplicated();
  const std::vector<ring::Digest> digests = digests_of(begun);
  for (size_t i = 0; i < begun.size(); ++i) {
    Copy& copy = copies_.at(begun[i]->address);
    copy.digest = digests[i];
    copy.whole = code == 0 && digests[i] == begun[i]->digest;
    if (!copy.whole) lost.push_back(*begun[i]);
  }
  store_.header().lost_blocks.fetch_add(lost.size(), std::memory_order_relaxed);
  if (!lost.empty() && !std::exchange(said_, true))
    PYFT_LOG(kSnapshot, kWarning,
             "[%zu] blocks, the first of [%llu] bytes at [0x%llx], have changed "
             "between a cut and the next optimizer step, for the first time: until the next "
             "cut other ranks cannot be restored from here",
             lost.size(), static_cast<unsigned long long>(lost[0].bytes),
             static_cast<unsigned long long>(lost[0].address));
  return lost;
}

bool PreImages::look(uint64_t address, std::byte* to, uint64_t bytes) const {
  if (peeks()) return device_.background->peek(address, to, bytes);
  const auto take = [&](const std::byte* piece, uint64_t part) {
    std::memcpy(to, piece, part);
    to += part;
  };
  return device_.background->read_beside(only({address, bytes}), take) == 0;
}

// From the copy if that is it, else from the program's memory, if it still is.
bool PreImages::fetch(const ring::ManifestBlock& block, std::byte* to) const {
  const bool copied = has(block);
  if (!copied && left_) return false;
  return look(copied ? copies_.at(block.address).at : block.address, to, block.bytes) &&
         digest(to, block.bytes, store_.digest_key()) == block.digest;
}

uint64_t PreImages::spill(uint64_t step, const StoredSnapshot* waiting) {
  const bool waits = waiting && waiting->manifest.step == step;
  if (!waits && step != step_) return 1;
  const std::vector<ring::ManifestBlock>& blocks = waits ? waiting->blocks : wanted_;
  uint64_t missing = 0, bytes = 0;
  std::vector<ring::ManifestBlock> lent;
  for (ring::ManifestBlock block : blocks) {
    if (!ring::is_remote(block) || store_.lends(step, block.digest)) continue;
    block.heap_offset = store_.reserve(block.bytes);
    const bool reserved = block.heap_offset != Heap::kNone;
    if (reserved && fetch(block, store_.at(block.heap_offset))) {
      lent.push_back(block);
      bytes += block.bytes;
      continue;
    }
    if (reserved) store_.give_back(block.heap_offset, block.bytes);
    ++missing;
  }
  if (!store_.lend_more(step, lent)) missing += lent.size();
  store_.header().spilled_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return missing;
}

void PreImages::give_up() {
  if (std::exchange(closed_, true)) return;
  spill(step_, nullptr);
  for (const auto& [address, copy] : copies_)
    if (copy.at) device_.own->release(copy.at), note_bytes(-static_cast<int64_t>(copy.bytes));
  copies_.clear();
  PYFT_LOG(kSnapshot, kWarning,
           "the device has no memory for copies of its own: snapshots go to host "
           "memory from now on");
}

}  // namespace pyft::checkpoint
