#include "checkpoint/snapshot/cut_comparison.h"

#include <cstdio>
#include <map>
#include <utility>

namespace pyft::checkpoint {

namespace {

using Place = std::pair<uint64_t, uint64_t>;  // address, bytes

std::map<Place, ring::Digest> digests_of(const StoredSnapshot& snapshot) {
  std::map<Place, ring::Digest> all;
  for (const ring::ManifestBlock& block : snapshot.blocks)
    all[{block.address, block.bytes}] = block.digest;
  return all;
}

std::string text(const ring::ManifestBlock& block, const ring::Digest& before) {
  char words[160];
  std::snprintf(words, sizeof words,
                "digest [0x%016llx], before [0x%016llx], of the block of [%llu] bytes at [0x%llx]",
                static_cast<unsigned long long>(block.digest.low),
                static_cast<unsigned long long>(before.low),
                static_cast<unsigned long long>(block.bytes),
                static_cast<unsigned long long>(block.address));
  return words;
}

}  // namespace

CutComparison compare_cut(const StoredSnapshot& from, const StoredSnapshot& before,
                          std::span<const ring::ManifestBlock> now) {
  CutComparison result;
  const auto defined = digests_of(from), then = digests_of(before);
  for (const ring::ManifestBlock& block : now) {
    const Place place{block.address, block.bytes};
    const auto old = then.find(place);
    if (old == then.end() || !defined.contains(place)) continue;
    ++result.compared;
    if (old->second != block.digest) result.others.push_back({block, old->second});
  }
  return result;
}

void judge_cut(Recovery& recovery, uint64_t seq, const CutComparison& comparison) {
  for (uint64_t i = comparison.others.size(); i < comparison.compared; ++i) recovery.agreed();
  for (const OtherContent& other : comparison.others)
    recovery.differed(
        {seq, static_cast<uint16_t>(ring::Mark::kCut), text(other.now, other.before)});
}

}  // namespace pyft::checkpoint
