#include "exec/access.h"

#include <cinttypes>
#include <cstdio>

namespace softgpu::exec {

static std::string describe(const char* what, uint64_t address, uint32_t bytes) {
  char text[128];
  std::snprintf(text, sizeof text, "%s of [%u] bytes at address [0x%" PRIx64 "]", what, bytes,
                address);
  return text;
}

static uint64_t uniform_base(const Inst* in, const Warp* w) {
  const Row* b = source(w, in->b);
  return b[0].lane[0] | uint64_t{b[1].lane[0]} << 32;
}

void addresses(const Inst* in, const Warp* w, Space space, Addresses* out) {
  const Row* a = source(w, in->a);
  if (space == Space::kShared || space == Space::kLocal) {
    const uint32_t add = source(w, in->b)->lane[0] + static_cast<uint32_t>(in->offset);
    for (int i = 0; i < kLanes; ++i) out->at[i] = (a->lane[i] << in->imm) + add;
    return;
  }
  const uint64_t add = uniform_base(in, w) + static_cast<uint64_t>(in->offset);
  if (in->flags & kWideAddress) {
    for (int i = 0; i < kLanes; ++i) {
      out->at[i] = (a[0].lane[i] | uint64_t{a[1].lane[i]} << 32) + add;
    }
  } else {
    for (int i = 0; i < kLanes; ++i) out->at[i] = a->lane[i] + add;
  }
}

static bool mapped(const Inst* in, Warp* w, uint64_t address, uint32_t bytes) {
  Range& range = w->block->ranges.data()[in->slot];
  if (range.contains(address, bytes)) return true;
  const AddressSpace& memory = *w->block->state->memory;
  range = in->flags & kWrites ? memory.find_writable(address) : memory.find(address);
  return range.contains(address, bytes);
}

// Tells the watch, if there is one, of global memory that is accessed. False: a conflict.
static bool watched(const Inst* in, Warp* w, uint64_t address, uint32_t bytes) {
  const Watch* watch = w->block->watch;
  if (!watch) return true;
  return in->flags & kWrites ? watch->write(address, bytes, w->block->linear)
                             : watch->read(address, bytes);
}

static bool watched_each(const Inst* in, Warp* w, uint64_t address, const Row& offsets,
                         uint32_t lanes, uint32_t bytes) {
  const Watch* watch = w->block->watch;
  if (!watch) return true;
  return in->flags & kWrites ? watch->write_each(address, offsets, lanes, bytes, w->block->linear)
                             : watch->read_each(address, offsets, lanes);
}

static Place illegal(const Inst* in, Warp* w, int lane, const char* what, uint64_t address,
                     uint32_t bytes) {
  fault(in, w, FaultKind::kIllegalAddress, lane, describe(what, address, bytes));
  return {};
}

static Place illegal_global(const Inst* in, Warp* w, int lane, uint64_t address, uint32_t bytes) {
  const bool read_only = w->block->state->memory->find(address).contains(address, bytes);
  return illegal(in, w, lane, read_only ? "write to read-only memory" : "illegal global access",
                 address, bytes);
}

Place locate(const Inst* in, Warp* w, Space space, int lane, uint64_t address, uint32_t bytes) {
  if (address & (bytes - 1)) {
    fault(in, w, FaultKind::kMisalignedAddress, lane,
          describe("misaligned access", address, bytes));
    return {};
  }
  if (space == Space::kGeneric) {
    const uint64_t window = address >> 48;
    space = window == kSharedWindow >> 48  ? Space::kShared
            : window == kLocalWindow >> 48 ? Space::kLocal
                                           : Space::kGlobal;
    if (space != Space::kGlobal) address &= 0xffffffffffffu;
  }
  if (space == Space::kGlobal) {
    if (!mapped(in, w, address, bytes)) return illegal_global(in, w, lane, address, bytes);
    if (!watched(in, w, address, bytes)) {
      conflict(w);
      return {};
    }
    return {reinterpret_cast<uint8_t*>(address), 4};
  }
  const LaunchState& state = *w->block->state;
  if (space == Space::kShared) {
    if (address + bytes > state.shared_bytes) {
      return illegal(in, w, lane, "illegal shared access", address, bytes);
    }
    return {w->block->shared + address, 4};
  }
  if (address + bytes > state.local_bytes || !w->local) {
    return illegal(in, w, lane, "illegal local access", address, bytes);
  }
  w->local_clean = std::min(w->local_clean, static_cast<uint32_t>(address / 4));
  auto* word = reinterpret_cast<uint8_t*>(w->local + (address / 4) * kLanes + lane);
  return {word + address % 4, kRowBytes};
}

Pattern pattern(const Inst* in, const Warp* w, Space space, uint32_t exec, uint32_t size,
                uint64_t* base) {
  const Row* a = source(w, in->a);
  const bool wide = in->flags & kWideAddress && space <= Space::kGeneric;
  const bool narrow_space = space > Space::kGeneric;
  const uint32_t scale = narrow_space ? in->imm : 0;
  const auto first = static_cast<uint32_t>(first_lane(exec)),
             last = static_cast<uint32_t>(std::bit_width(exec) - 1);
  // The first and the last lane tell which pattern is possible; then all are looked at.
  const uint32_t low = a->lane[first] << scale, distance = (a->lane[last] << scale) - low;
  const bool sequence = distance && distance == (last - first) * size;
  if (distance && !sequence) return Pattern::kScattered;
  const uint32_t start = sequence ? low - first * size : low;
  if (sequence && (low < first * size || start > kFull - kLanes * size)) {
    return Pattern::kScattered;  // wraps
  }
  const VU step = lane_index() * (sequence ? size : 0);
  uint32_t fit = test([&](int h) {
    return load(a, h) << scale == step + (start + (sequence ? kHalf * size * h : 0));
  });
  if (wide) fit &= test([&](int h) { return load(a + 1, h) == a[1].lane[first]; });
  if ((fit & exec) != exec) return Pattern::kScattered;
  const uint64_t add = narrow_space ? source(w, in->b)->lane[0] + static_cast<uint32_t>(in->offset)
                                    : uniform_base(in, w) + static_cast<uint64_t>(in->offset);
  const uint64_t high = wide ? uint64_t{a[1].lane[first]} << 32 : 0;
  *base = narrow_space ? static_cast<uint32_t>(start + add) : (high | start) + add;
  return sequence ? Pattern::kSequence : Pattern::kSame;
}

// The same without telling the watch.
static uint8_t* find_span(const Inst* in, Warp* w, Space space, uint64_t address, uint32_t bytes,
                          uint32_t alignment) {
  if (address & (alignment - 1)) return nullptr;
  if (space == Space::kGeneric && address >> 48) {
    if (address >> 48 != kSharedWindow >> 48) return nullptr;
    space = Space::kShared;
    address &= 0xffffffffffffu;
  }
  if (space == Space::kShared) {
    const uint32_t limit = w->block->state->shared_bytes;
    return address < limit && bytes <= limit - address ? w->block->shared + address : nullptr;
  }
  if (space == Space::kLocal) return nullptr;
  return mapped(in, w, address, bytes) ? reinterpret_cast<uint8_t*>(address) : nullptr;
}

// Global memory lies where its address says. Without a place the slow path decides.
static bool is_global(const uint8_t* place, uint64_t address) {
  return place && reinterpret_cast<uint64_t>(place) == address;
}

uint8_t* locate_span(const Inst* in, Warp* w, Space space, uint64_t address, uint32_t bytes,
                     uint32_t alignment) {
  uint8_t* p = find_span(in, w, space, address, bytes, alignment);
  return is_global(p, address) && !watched(in, w, address, bytes) ? nullptr : p;
}

// Shared memory has a fixed place and a size: each lane is compared, no span is needed.
static uint8_t* locate_shared(const Inst* in, Warp* w, uint32_t exec, uint32_t bytes,
                              Row* offsets) {
  const uint32_t size = w->block->state->shared_bytes;
  if (size < bytes) return nullptr;
  const Row* a = source(w, in->a);
  const uint32_t base = source(w, in->b)->lane[0] + static_cast<uint32_t>(in->offset);
  const uint32_t bad = test([&](int h) {
    const VU at = ((load(a, h) << in->imm) + base) & expand(half_mask(exec, h));
    store(offsets, h, at);
    return (at > size - bytes) | ((at & (bytes - 1)) != 0u);
  });
  return bad ? nullptr : w->block->shared;
}

uint8_t* locate_scattered(const Inst* in, Warp* w, Space space, uint32_t exec, uint32_t bytes,
                          Row* offsets) {
  if (space == Space::kShared) return locate_shared(in, w, exec, bytes, offsets);
  const Row* a = source(w, in->a);
  uint64_t add = uniform_base(in, w) + static_cast<uint64_t>(in->offset);
  if (in->flags & kWideAddress) {
    const uint32_t high = a[1].lane[first_lane(exec)];
    const uint32_t same = test([&](int h) { return load(a + 1, h) == high; });
    if ((same & exec) != exec) return nullptr;
    add += uint64_t{high} << 32;
  }
  for (int h = 0; h < 2; ++h) store(offsets, h, load(a, h));
  uint32_t low = 0, high = 0;
  bounds(offsets, exec, &low, &high);
  if (high - low > 0x7fffffffu - bytes) return nullptr;
  VU bits = splat(0);
  for (int h = 0; h < 2; ++h) {
    const VU distance = (load(offsets, h) - low) & expand(half_mask(exec, h));
    bits |= distance;
    store(offsets, h, distance);
  }
  const uint32_t misaligned = collapse((bits & (bytes - 1)) != 0u);
  if (misaligned) return nullptr;
  uint8_t* p = find_span(in, w, space, add + low, high - low + bytes, bytes);
  return is_global(p, add + low) && !watched_each(in, w, add + low, *offsets, exec, bytes) ? nullptr
                                                                                           : p;
}

void read_constant(const Warp* w, uint32_t bank, uint32_t offset, void* to, uint32_t bytes) {
  std::memset(to, 0, bytes);
  if (bank >= w->block->state->banks.size()) return;
  const std::span<const uint8_t> data = w->block->state->banks[bank];
  if (offset >= data.size()) return;
  std::memcpy(to, data.data() + offset, std::min<size_t>(bytes, data.size() - offset));
}

}  // namespace softgpu::exec
