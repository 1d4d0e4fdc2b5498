#include "fault/bit_flip.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "memory/memory.h"
#include "memory/pointers.h"

namespace softgpu {
namespace {

// How far behind a pointer a kernel's writes are looked for.
constexpr uint64_t kComparedBytes = 64 << 20;

FlipOutcome none(const std::string& why) {
  return {false, "no bit was flipped: " + why};
}

std::string bytes_in_words(uint64_t bytes) {
  return "[" + std::to_string(bytes) + "] bytes";
}

// Another thread may be computing with the byte, as the memory of a real device may.
std::string flip_byte(uint64_t address, unsigned bit) {
  char text[128];
  std::atomic_ref<uint8_t> byte(*reinterpret_cast<uint8_t*>(address));
  const auto mask = static_cast<uint8_t>(1u << bit);
  const uint8_t before = byte.fetch_xor(mask, std::memory_order_relaxed);
  std::snprintf(text, sizeof text,
                "bit [%u] of the byte at [0x%" PRIx64 "] was flipped: [0x%02x] is now [0x%02x]",
                bit, address, before, before ^ mask);
  return text;
}

FlipOutcome flip_at(uint64_t address, unsigned bit) {
  std::string sentence;
  const bool read_only = pointers().covers(address, 1) && !pointers().writable(address, 1);
  const auto flip = [&] { sentence = flip_byte(address, bit); };
  if (!read_only && pointers().with_mapped(address, 1, flip)) {
    return {true, sentence};
  }
  char text[64];
  std::snprintf(text, sizeof text, "[0x%" PRIx64 "] %s", address,
                read_only ? "may only be read" : "is not mapped");
  return none(text);
}

// `byte` of the allocation from `address` on: not of its neighbours.
FlipOutcome flip_within(uint64_t address, uint64_t byte, unsigned bit) {
  const auto info = pointers().find(address);
  if (!info) return flip_at(address, bit);  // says that nothing is there
  const uint64_t bytes = info->base + info->size - address;
  if (byte < bytes) return flip_at(address + byte, bit);
  return none("the allocation has " + bytes_in_words(bytes) + " from there on, none of number [" +
              std::to_string(byte) + "]");
}

// The size that memory.cc gives an allocation.
uint64_t rounded(uint64_t bytes) {
  return round_up(bytes, bytes < kSmallLimit ? kSmallUnit : kGranule);
}

std::optional<PointerInfo> allocation(int device, const FaultRequest& request) {
  uint64_t left = request.number;
  for (const PointerInfo& info : pointers().device_allocations(device)) {
    if (request.size && info.size != rounded(*request.size)) continue;
    if (--left == 0) return info;
  }
  return std::nullopt;
}

// Words of the parameters that point into device memory, each once.
std::vector<uint64_t> pointers_in(std::span<const uint8_t> params) {
  std::vector<uint64_t> found;
  for (size_t at = 0; at + 8 <= params.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, params.data() + at, 8);
    const auto info = pointers().find(word);
    if (!info || info->is_host()) continue;
    if (std::find(found.begin(), found.end(), word) == found.end()) found.push_back(word);
  }
  return found;
}

// The end of what a launch may reach from `address` on.
uint64_t reach_of(uint64_t address) {
  const auto info = pointers().find(address);
  return info ? std::min(info->base + info->size, address + kComparedBytes) : address;
}

// A number below `bound`, the same for the same seed (splitmix64).
uint64_t drawn(uint64_t seed, uint64_t times, uint64_t bound) {
  uint64_t z = seed + (times + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(z) * bound >> 64);
}

void add_different(uint64_t address, const uint8_t* before, uint64_t bytes,
                   std::vector<uint64_t>* out) {
  pointers().with_mapped(address, bytes, [&] {
    const auto* now = reinterpret_cast<const uint8_t*>(address);
    for (uint64_t i = 0; i < bytes;) {
      if (std::memcmp(now + i, before + i, std::min<uint64_t>(64, bytes - i)) == 0) {
        i += 64;
        continue;
      }
      for (const uint64_t end = std::min(i + 64, bytes); i < end; ++i) {
        if (now[i] != before[i]) out->push_back(address + i);
      }
    }
  });
}

void add_different(const WrittenBlock& block, std::vector<uint64_t>* out) {
  for (uint64_t i = 0; i < block.count; ++i) {
    add_different(block.address + i * block.step, block.before.data() + i * block.bytes,
                  block.bytes, out);
  }
}

}  // namespace

namespace {

// Any byte of the memory that the device has given away, each alike; any bit.
FlipOutcome flip_live(int device, const FaultRequest& request, uint64_t times) {
  const std::vector<PointerInfo> all = pointers().device_allocations(device);
  uint64_t bytes = 0;
  for (const PointerInfo& info : all) bytes += info.size;
  if (!bytes) return none("there is no allocation");
  uint64_t n = drawn(request.seed, times, bytes);
  const auto bit = static_cast<unsigned>(drawn(~request.seed, times, 8));
  for (const PointerInfo& info : all) {
    if (n < info.size) return flip_at(info.base + n, request.bit.value_or(bit));
    n -= info.size;
  }
  return none("there is no allocation");
}

}  // namespace

FlipOutcome flip_copied(const CopiedRows& copied, const FaultRequest& request, uint64_t times) {
  const uint64_t n = request.drawn_byte ? drawn(request.seed, times, copied.size()) : request.byte;
  if (n >= copied.size()) {
    return none("the copy has " + bytes_in_words(copied.size()) + ", none of number [" +
                std::to_string(n) + "]");
  }
  const uint64_t row = n / copied.width;
  const uint64_t address = copied.address + row / copied.rows * copied.slice +
                           row % copied.rows * copied.pitch + n % copied.width;
  const auto bit = static_cast<unsigned>(drawn(~request.seed, times, 8));
  return {true, flip_byte(address, request.bit.value_or(bit))};
}

FlipOutcome flip_memory(int device, const FaultRequest& request, uint64_t times) {
  if (request.target == FlipTarget::kLive) return flip_live(device, request, times);
  if (request.target == FlipTarget::kAddress) {
    return flip_within(request.address, request.byte, request.bit.value_or(0));
  }
  const auto info = allocation(device, request);
  if (!info) return none("there is no such allocation");
  return flip_within(info->base, request.byte, request.bit.value_or(0));
}

ResultFlip::ResultFlip(std::span<const uint8_t> params, const FaultRequest& request, uint64_t times)
    : request_(request), times_(times), pointers_(pointers_in(params)) {
  if (request.target == FlipTarget::kArgument) return;
  std::vector<uint64_t> sorted = pointers_;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size();) {
    const uint64_t begin = sorted[i];
    uint64_t end = reach_of(begin);
    for (++i; i < sorted.size() && sorted[i] < end; ++i) end = std::max(end, reach_of(sorted[i]));
    remember(begin, end);
  }
}

void ResultFlip::remember(uint64_t begin, uint64_t end) {
  Range range{begin, {}};
  const auto* from = reinterpret_cast<const uint8_t*>(begin);
  if (begin == end) return;
  pointers().with_mapped(begin, end - begin,
                         [&] { range.before.assign(from, from + (end - begin)); });
  if (!range.before.empty()) ranges_.push_back(std::move(range));
}

// Addresses in order.
std::vector<uint64_t> ResultFlip::changed(uint64_t begin, uint64_t end) const {
  std::vector<uint64_t> found;
  for (const Range& range : ranges_) {
    const uint64_t from = std::max(begin, range.address), to = std::min(end, range.end());
    if (from < to)
      add_different(from, range.before.data() + (from - range.address), to - from, &found);
  }
  return found;
}

FlipOutcome ResultFlip::flip(std::span<const WrittenBlock> said) const {
  if (request_.target == FlipTarget::kArgument) return of_argument(said);
  return request_.target == FlipTarget::kChanged ? of_changed(said) : of_any(said);
}

// Of a library's call: the n-th matrix or vector that it has written, without what lies between.
FlipOutcome ResultFlip::of_argument(std::span<const WrittenBlock> said) const {
  const uint64_t n = request_.number, count = said.empty() ? pointers_.size() : said.size();
  if (count < n) {
    return none("the launch has [" + std::to_string(count) + "] " +
                (said.empty() ? "pointers" : "results"));
  }
  const unsigned bit = request_.bit.value_or(0);
  if (said.empty()) return flip_within(pointers_[n - 1], request_.byte, bit);
  const WrittenBlock& block = said[n - 1];
  if (request_.byte < block.size()) return flip_at(block.address_of(request_.byte), bit);
  return none("the result has " + bytes_in_words(block.size()) + ", none of number [" +
              std::to_string(request_.byte) + "]");
}

// The first pointer, or result, behind which something has changed.
FlipOutcome ResultFlip::of_changed(std::span<const WrittenBlock> said) const {
  std::vector<uint64_t> found;
  for (const WrittenBlock& block : said) {
    if (found.empty()) add_different(block, &found);
  }
  for (size_t i = 0; said.empty() && i < pointers_.size() && found.empty(); ++i) {
    found = changed(pointers_[i], reach_of(pointers_[i]));
  }
  if (request_.byte < found.size()) return flip_at(found[request_.byte], request_.bit.value_or(0));
  if (found.empty()) return none("the launch has changed nothing");
  return none("the launch has changed " + bytes_in_words(found.size()) +
              " there, none of number [" + std::to_string(request_.byte) + "]");
}

// Any byte: of a library's results, or that a kernel has changed.
FlipOutcome ResultFlip::of_any(std::span<const WrittenBlock> said) const {
  const auto bit = static_cast<unsigned>(drawn(~request_.seed, times_, 8));
  uint64_t bytes = 0;
  for (const WrittenBlock& block : said) bytes += block.size();
  if (bytes) {
    uint64_t n = drawn(request_.seed, times_, bytes);
    for (const WrittenBlock& block : said) {
      if (n < block.size()) return flip_at(block.address_of(n), request_.bit.value_or(bit));
      n -= block.size();
    }
  }
  const std::vector<uint64_t> found = changed(0, UINT64_MAX);
  if (found.empty()) return none("the launch has changed nothing");
  const uint64_t n = drawn(request_.seed, times_, found.size());
  return flip_at(found[n], request_.bit.value_or(bit));
}

}  // namespace softgpu
