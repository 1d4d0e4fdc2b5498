// Finding the host bytes behind the addresses of a warp.
//
// Warps mostly touch 32 elements in a row, so that case is recognised with vector comparisons and
// checked as one span. Everything else goes lane by lane.
#ifndef SOFTGPU_EXEC_ACCESS_H_
#define SOFTGPU_EXEC_ACCESS_H_

#include <cstring>

#include "exec/lower.h"

namespace softgpu::exec {

enum class Space : uint8_t { kGlobal, kGeneric, kShared, kLocal };

// Inst::flags
inline constexpr uint8_t kWideAddress = 1;  // A is a pair
inline constexpr uint8_t kWrites = 8;       // stores and atomics

// SIZE field of loads and stores.
enum Size : uint8_t { kU8, kS8, kU16, kS16, k32, k64, k128 };
constexpr uint32_t size_bytes(int size) {
  constexpr uint32_t kBytes[] = {1, 1, 2, 2, 4, 8, 16, 16};
  return kBytes[size];
}

// Where an element of one lane is. Words of the local window are interleaved over the lanes, so
// word k of an element is at p + k * stride.
struct Place {
  uint8_t* p = nullptr;
  uint32_t stride = 4;
};

struct Addresses {
  alignas(64) uint64_t at[kLanes];
};

// Addresses of all lanes. Global and generic: A (pair or word) + uniform pair B + offset; shared
// and local: (A << imm) + B + offset in 32 bits.
void addresses(const Inst* in, const Warp* w, Space space, Addresses* out);

// The place of `bytes` at `address` for one lane; p is null after a fault has been raised.
Place locate(const Inst* in, Warp* w, Space space, int lane, uint64_t address, uint32_t bytes);

enum class Pattern : uint8_t { kScattered, kSequence, kSame };

// Do the lanes of `exec` access base + lane * size, or all the same address? Sets *base; for
// kSequence that is the address lane 0 has or would have.
Pattern pattern(const Inst* in, const Warp* w, Space space, uint32_t exec, uint32_t size,
                uint64_t* base);

// The host address of `bytes` contiguous bytes, or null if the slow path has to decide. The
// watch is told of them.
uint8_t* locate_span(const Inst* in, Warp* w, Space space, uint64_t address, uint32_t bytes,
                     uint32_t alignment);

// For scattered lanes in one mapped range: lane i of `exec` accesses the result + offsets[i], and
// the offsets of other lanes are 0. Null if the slow path has to decide (a bad access, several
// windows, more than 2 GiB apart).
uint8_t* locate_scattered(const Inst* in, Warp* w, Space space, uint32_t exec, uint32_t bytes,
                          Row* offsets);

// Copies out of a constant bank; what lies beyond its end is zero.
void read_constant(const Warp* w, uint32_t bank, uint32_t offset, void* to, uint32_t bytes);

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_ACCESS_H_
