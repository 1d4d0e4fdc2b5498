// Lowered instructions: what the executor runs instead of decoded ones.
//
// Every operand is a byte offset to a row of 32 words, so that registers, uniform registers,
// constants and immediates are read alike. Rows live in two places: the warp's own rows and the
// launch's constant pool. Rows are 128-byte aligned; the low bit of an offset names the place.
#ifndef SOFTGPU_EXEC_PROGRAM_H_
#define SOFTGPU_EXEC_PROGRAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exec/simd.h"

namespace softgpu::exec {

struct FormCounts;
struct Inst;
struct Warp;

// Executes one instruction in the lanes of `exec` (never empty) and returns the next one, or null
// when the warp's running group has to stop (blocked, yielded, exited, faulted).
using Handler = const Inst* (*)(const Inst* in, Warp* warp, uint32_t exec);

// Predicates in Warp::pred. Uniform ones are full lane masks, so a guard reads both kinds alike.
inline constexpr uint8_t kPredTrue = 7;
inline constexpr uint8_t kPredUniform = 8;  // UP0 .. UPT
inline constexpr uint8_t kPredTrash = 16;   // destination PT
inline constexpr int kPredCount = 17;

// The first rows of a warp.
inline constexpr uint32_t kRowBytes = sizeof(Row);
inline constexpr uint32_t kZeroRows = 0;      // four: RZ as a quad
inline constexpr uint32_t kTrashRows = 4;     // four: destination RZ
inline constexpr uint32_t kBarrierRows = 8;   // B0..B15: participant mask of each lane
inline constexpr uint32_t kTidRows = 24;      // thread index x, y, z of each lane
inline constexpr uint32_t kUniformRows = 27;  // UR0 .., then the registers

inline constexpr uint32_t kPoolBit = 1;
inline constexpr uint8_t kModNeg = 1, kModAbs = 2;

struct alignas(64) Inst {
  Handler fn = nullptr;
  union {
    const Inst* target;  // branches
    int64_t offset = 0;  // memory
  };
  uint32_t a = 0, b = 0, c = 0;  // source rows
  uint32_t d = 0;                // fourth source: new value of a compare-and-swap
  uint32_t rd = 0;               // destination row, in the warp
  uint32_t guard_xor = 0;        // all ones: negated guard
  uint32_t force = 0;            // all ones: uniform datapath, runs for all lanes at once
  uint32_t imm = 0;              // meaning depends on the handler
  uint32_t slot = 0;             // memory: index of the range cache; others: free use
  uint8_t guard = kPredTrue;
  uint8_t pd0 = kPredTrash, pd1 = kPredTrash;
  uint8_t ps0 = kPredTrue, ps1 = kPredTrue, ps2 = kPredTrue;
  uint8_t pneg = 0;   // bits 0..2: ps0..ps2 negated
  uint8_t mods = 0;   // kModNeg/kModAbs: a in bits 0..1, b in 2..3, c in 4..5
  uint8_t flags = 0;  // handler's own
  uint8_t op = 0;     // handler's own: comparison, atomic operation …
  uint8_t round = 0;
  uint8_t size = 0;
};
static_assert(sizeof(Inst) == 64);

// A pool row: a constant bank word or an immediate, with its float sign modifiers applied.
struct PoolEntry {
  static constexpr uint8_t kImmediate = 0xff;
  uint8_t bank = kImmediate;
  uint8_t mods = 0;
  uint32_t value = 0;  // immediate, or byte offset into the bank
  bool operator==(const PoolEntry&) const = default;
};

struct Traits {
  bool local = false;         // needs a local window
  uint32_t slots = 0;         // range caches
  uint32_t rows = 0;          // rows of a warp
  uint32_t register_row = 0;  // row of R0
};

// How earlier launches of a program went.
struct Experience {
  std::atomic<uint64_t> instructions_per_block{0};  // 0: not known
  std::atomic<uint32_t> conflicts{0};  // attempts to run blocks side by side that have failed
  std::atomic<uint32_t> skip{0};       // launches before the next attempt
};

}  // namespace softgpu::exec

namespace softgpu {

// Immutable once built, except for what launches leave to later ones: idle constant pools, and
// experience that decides how fast a launch runs, never what it computes.
struct Program {
  std::vector<exec::Inst> code;  // one per 16 bytes of text, plus a final one that faults
  std::vector<exec::PoolEntry> pool;
  exec::Traits traits;
  std::shared_ptr<exec::FormCounts> counts;  // only where forms are counted

  mutable std::mutex idle_mutex;
  mutable std::vector<std::unique_ptr<exec::Row[]>> idle_pools;
  mutable exec::Experience experience;
};

}  // namespace softgpu

#endif  // SOFTGPU_EXEC_PROGRAM_H_
