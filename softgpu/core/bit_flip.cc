#include "core/bit_flip.h"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>

#include "core/memory.h"
#include "core/pointers.h"

namespace softgpu {
namespace {

// How far behind a pointer a launch's writes are looked for.
constexpr uint64_t kComparedBytes = 4 << 20;

// Another thread may be computing with the byte, as the memory of a real device may.
std::string flip_at(uint64_t address, unsigned bit) {
  std::string sentence;
  const bool reached = pointers().with_mapped(address, 1, [&] {
    std::atomic_ref<uint8_t> byte(*reinterpret_cast<uint8_t*>(address));
    const auto mask = static_cast<uint8_t>(1u << bit);
    const uint8_t before = byte.fetch_xor(mask, std::memory_order_relaxed);
    char text[128];
    std::snprintf(text, sizeof text,
                  "bit [%u] of the byte at [0x%" PRIx64 "] was flipped: [0x%02x] is now [0x%02x]",
                  bit, address, before, before ^ mask);
    sentence = text;
  });
  if (reached) return sentence;
  char text[80];
  std::snprintf(text, sizeof text, "no bit was flipped: [0x%" PRIx64 "] is not mapped", address);
  return text;
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

}  // namespace

std::string flip_memory(int device, const FaultRequest& request) {
  if (request.target == FlipTarget::kAddress) {
    return flip_at(request.address + request.byte, request.bit);
  }
  const auto info = allocation(device, request);
  if (!info) return "no bit was flipped: there is no such allocation";
  if (request.byte < info->size) return flip_at(info->base + request.byte, request.bit);
  return "no bit was flipped: the allocation has [" + std::to_string(info->size) + "] bytes";
}

ResultFlip::ResultFlip(std::span<const uint8_t> params, const FaultRequest& request)
    : request_(request) {
  std::vector<uint64_t> found = pointers_in(params);
  if (request.target == FlipTarget::kArgument) {
    if (found.size() >= request.number) pointers_ = {{found[request.number - 1], {}}};
    return;
  }
  for (const uint64_t address : found) {
    const auto info = pointers().find(address);
    if (!info) continue;
    const uint64_t bytes = std::min(info->base + info->size - address, kComparedBytes);
    const auto* from = reinterpret_cast<const uint8_t*>(address);
    Target target{address, {}};
    pointers().with_mapped(address, bytes, [&] { target.before.assign(from, from + bytes); });
    pointers_.push_back(std::move(target));
  }
}

std::string ResultFlip::flip() const {
  if (request_.target == FlipTarget::kArgument) {
    return flip_at(pointers_.front().address + request_.byte, request_.bit);
  }
  for (const Target& target : pointers_) {
    std::optional<uint64_t> changed;
    pointers().with_mapped(target.address, target.before.size(), [&] {
      const auto* now = reinterpret_cast<const uint8_t*>(target.address);
      const auto place = std::mismatch(target.before.begin(), target.before.end(), now);
      if (place.first != target.before.end())
        changed = target.address + static_cast<uint64_t>(place.first - target.before.begin());
    });
    if (changed) return flip_at(*changed + request_.byte, request_.bit);
  }
  return "no bit was flipped: the launch changed nothing";
}

}  // namespace softgpu
