#include "checkpoint/snapshot/audit.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace pyft::checkpoint {

namespace {

std::string in_words(const ring::ManifestBlock& block, const ring::Digest& here) {
  char words[200];
  std::snprintf(
      words, sizeof words,
      "the block of [%llu] bytes at [0x%llx] has digest [0x%016llx], a replay [0x%016llx]",
      static_cast<unsigned long long>(block.bytes), static_cast<unsigned long long>(block.address),
      static_cast<unsigned long long>(block.digest.low), static_cast<unsigned long long>(here.low));
  return words;
}

std::string in_words(const Difference& difference) {
  return "entry [" + std::to_string(difference.seq) + "] gives " + difference.what;
}

}  // namespace

void Ranges::add(uint64_t address, uint64_t bytes) {
  uint64_t begin = address, end = address + bytes;
  auto next = ends_.lower_bound(begin);
  if (next != ends_.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != ends_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ends_.erase(next);
  }
  ends_[begin] = end;
}

bool Ranges::contains(uint64_t address, uint64_t bytes) const {
  const auto next = ends_.upper_bound(address);
  return next != ends_.begin() && std::prev(next)->second >= address + bytes;
}

// Sums do not depend on the order.
void Findings::add(const void* what, uint64_t bytes, const std::string& sentence) {
  const ring::Digest one = digest(static_cast<const std::byte*>(what), bytes, key_);
  evidence_.low += one.low;
  evidence_.high += one.high;
  if (!differing_++) first_ = sentence;
}

void Findings::differs(const Difference& difference) {
  const std::string text = in_words(difference);
  const std::lock_guard lock(mutex_);
  add(text.data(), text.size(), text);
}

void Findings::cannot_tell(const Difference& difference) {
  const std::lock_guard lock(mutex_);
  if (doubt_.empty())
    doubt_ = in_words(difference) +
             ": it was told before a silent fault was corrected, and what the rank gives since was "
             "not kept";
}

std::string Findings::compare(const StoredSnapshot& from, const StoredSnapshot& cut,
                              DeviceMemory& memory) {
  Ranges defined;
  for (const ring::ManifestBlock& block : from.blocks) defined.add(block.address, block.bytes);
  const std::lock_guard lock(mutex_);
  for (const ring::ManifestBlock& block : cut.blocks) {
    const std::byte* const there = memory.view(block.address, block.bytes);
    if (!there)
      return "the block of [" + std::to_string(block.bytes) + "] bytes at [" +
             std::to_string(block.address) + "] is not there";
    const ring::Digest here = digest(there, block.bytes, key_);
    const bool equal = here == block.digest;
    if (equal || defined.contains(block.address, block.bytes)) bytes_ += block.bytes;
    if (equal) continue;
    if (!defined.contains(block.address, block.bytes)) {
      ++fresh_;
      continue;
    }
    const uint64_t what[] = {block.address, block.bytes, here.low, here.high};
    add(what, sizeof what, in_words(block, here));
  }
  return {};
}

}  // namespace pyft::checkpoint
