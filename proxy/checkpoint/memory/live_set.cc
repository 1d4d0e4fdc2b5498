#include "checkpoint/memory/live_set.h"

#include <algorithm>
#include <cstring>

namespace pyft::checkpoint {

namespace {

using Ranges = std::vector<MemoryRange>;

// Large blocks are looked at in pieces, so that a change copies no more than one.
constexpr uint64_t kPiece = uint64_t{4} << 20;
constexpr uint64_t kPage = 4096;

std::string block_text(const MemoryRange& range) {
  std::string text = std::to_string(range.bytes);  // appended to: GCC 12 warns of what + becomes
  text.insert(0, 1, '[').append("] bytes at [").append(std::to_string(range.address)).append("]");
  return text;
}

bool sound(const MemoryRange& range) {
  return range.bytes && range.address <= UINT64_MAX - range.bytes;
}

// Sorted, and those that touch or overlap made one.
Ranges merged(Ranges ranges) {
  std::erase_if(ranges, [](const MemoryRange& range) { return !sound(range); });
  std::ranges::sort(ranges, {}, &MemoryRange::address);
  Ranges out;
  for (const MemoryRange& range : ranges)
    if (!out.empty() && out.back().end() >= range.address)
      out.back().bytes = std::max(out.back().end(), range.end()) - out.back().address;
    else
      out.push_back(range);
  return out;
}

// What of `from` is in none of `holes`; both merged.
Ranges subtract(const Ranges& from, const Ranges& holes) {
  Ranges out;
  auto hole = holes.begin();
  for (const MemoryRange& range : from) {
    uint64_t at = range.address;
    while (hole != holes.end() && hole->end() <= at) ++hole;
    for (auto h = hole; h != holes.end() && h->address < range.end(); ++h) {
      if (h->address > at) out.push_back({at, h->address - at});
      at = std::max(at, h->end());
    }
    if (at < range.end()) out.push_back({at, range.end() - at});
  }
  return out;
}

uint64_t sum(const Ranges& ranges) {
  uint64_t bytes = 0;
  for (const MemoryRange& range : ranges) bytes += range.bytes;
  return bytes;
}

std::string read_ranges(const std::byte* at, uint64_t count, Ranges* out) {
  out->resize(count);
  for (MemoryRange& range : *out) {
    ring::AllocMark mark;
    std::memcpy(&mark, at, sizeof mark);
    at += sizeof mark;
    range = {mark.address, mark.requested_bytes};
    if (!sound(range)) return "the cut names " + block_text(range);
  }
  return {};
}

// Blocks in address order, each in mapped memory and in no other one's place.
std::string check_blocks(Ranges* blocks, const Ranges& mapped) {
  if (!std::ranges::is_sorted(*blocks, {}, &MemoryRange::address))
    std::ranges::sort(*blocks, {}, &MemoryRange::address);
  auto around = mapped.begin();
  uint64_t end = 0;
  for (const MemoryRange& block : *blocks) {
    while (around != mapped.end() && around->end() <= block.address) ++around;
    if (around == mapped.end() || block.address < around->address || block.end() > around->end())
      return "the cut names " + block_text(block) + ", which are not all mapped";
    if (block.address < end) return "the cut names " + block_text(block) + " twice";
    end = block.end();
  }
  return {};
}

// The numbers behind the blocks, if they are all there.
void read_dates(std::span<const std::byte> numbers, const Ranges& blocks,
                std::vector<DatedRange>* dated) {
  if (numbers.size() < blocks.size() * sizeof(uint64_t)) return;
  for (size_t i = 0; i < blocks.size(); ++i) {
    uint64_t since = 0;
    std::memcpy(&since, numbers.data() + i * sizeof since, sizeof since);
    if (since) dated->push_back({blocks[i], since});
  }
  std::ranges::sort(*dated, {}, [](const DatedRange& one) { return one.range.address; });
}

std::string read_scope(std::span<const std::byte> scope, const Ranges& mapped, Ranges* pools,
                       Ranges* blocks, std::vector<DatedRange>* dated) {
  if (scope.empty()) return {};
  ring::CutScope head{};
  if (scope.size() < sizeof head) return "the scope of the cut is too short";
  std::memcpy(&head, scope.data(), sizeof head);
  const uint64_t room = (scope.size() - sizeof head) / sizeof(ring::AllocMark);
  if (head.pools > room || head.blocks > room - head.pools)
    return "the cut names [" + std::to_string(head.blocks) + "] blocks in [" +
           std::to_string(scope.size()) + "] bytes";
  const std::byte* at = scope.data() + sizeof head;
  std::string problem = read_ranges(at, head.pools, pools);
  at += head.pools * sizeof(ring::AllocMark);
  if (problem.empty()) problem = read_ranges(at, head.blocks, blocks);
  at += head.blocks * sizeof(ring::AllocMark);
  if (problem.empty()) read_dates({at, scope.data() + scope.size()}, *blocks, dated);
  if (problem.empty()) problem = check_blocks(blocks, mapped);
  return problem;
}

void add_pieces(MemoryRange range, Ranges* out) {
  const auto cut_off = [&](uint64_t bytes) {
    out->push_back({range.address, bytes});
    range = {range.address + bytes, range.bytes - bytes};
  };
  // Whole pages may turn out to be untouched: what shares a page with another block is a piece.
  if (range.bytes >= kPiece / 4) {
    if (const uint64_t begin = range.address % kPage) cut_off(kPage - begin);
    const uint64_t end = range.end() % kPage;
    while (range.bytes - end > kPiece) cut_off(kPiece);
    if (end) cut_off(range.bytes - end);
  }
  out->push_back(range);
}

}  // namespace

std::string find_live(std::span<const std::byte> scope, std::vector<MemoryRange> mapped,
                      std::vector<MemoryRange> scratch,
                      const std::vector<ring::ManifestPlace>& hidden, LiveSet* live) {
  *live = {};
  mapped = merged(std::move(mapped));
  Ranges pools, blocks;
  if (std::string problem = read_scope(scope, mapped, &pools, &blocks, &live->dated);
      !problem.empty())
    return problem;
  scratch = merged(std::move(scratch));
  const Ranges wanted = subtract(blocks, scratch);
  live->block_bytes = sum(wanted);
  // A block outside all pools is live once.
  Ranges taken = std::move(pools);
  taken.insert(taken.end(), blocks.begin(), blocks.end());
  taken.insert(taken.end(), scratch.begin(), scratch.end());
  const Ranges others = subtract(mapped, merged(std::move(taken)));
  live->mapped_bytes = sum(others);
  live->scratch_bytes = sum(blocks) - live->block_bytes;
  Ranges all;
  for (const Ranges* part : {&wanted, &others})
    for (const MemoryRange& range : *part) add_pieces(range, &all);
  for (const ring::ManifestPlace& place : hidden) {
    add_pieces({place.address, place.bytes}, &all);
    live->hidden_bytes += place.bytes;
  }
  std::ranges::sort(all, {}, &MemoryRange::address);
  live->blocks = std::move(all);
  return {};
}

void LiveSet::note(bool first, ring::StoreHeader* figures) const {
  figures->live_blocks.store(blocks.size(), std::memory_order_relaxed);
  if (!first) return;
  figures->block_bytes.store(block_bytes, std::memory_order_relaxed);
  figures->mapped_bytes.store(mapped_bytes, std::memory_order_relaxed);
  figures->hidden_bytes.store(hidden_bytes, std::memory_order_relaxed);
  figures->scratch_bytes.store(scratch_bytes, std::memory_order_relaxed);
}

}  // namespace pyft::checkpoint
