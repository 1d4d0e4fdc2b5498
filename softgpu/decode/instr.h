// A decoded SASS instruction: what the bit table (isa/sm75.isa) says about a 128-bit word, and
// nothing about how it is executed.
//
// Contract between decode/ (which fills it) and exec/ (which lowers it to handlers). `Op`, `Form`
// and the modifier fields (`isa::IADD3::X` …) are generated from the table by tools/gen/gen_isa.py.
#ifndef SOFTGPU_DECODE_INSTR_H_
#define SOFTGPU_DECODE_INSTR_H_

#include <cstdint>

#include "isa/field.h"
#include "isa_sm75.h"  // generated: enum class Op, enum class Form, namespace isa

namespace softgpu {

inline constexpr uint8_t kRZ = 255;  // reads 0, writes nothing
inline constexpr uint8_t kURZ = 63;
inline constexpr uint8_t kPT = 7;  // true predicate, also the uniform one
inline constexpr uint32_t kInstrBytes = 16;

// A 128-bit instruction word; bit n of the fact sheet is bit n here (64.. lie in hi).
struct Word {
  uint64_t lo = 0, hi = 0;
  constexpr uint64_t bits(unsigned first, unsigned width) const {
    uint64_t v;
    if (first >= 64) {
      v = hi >> (first - 64);
    } else if (first == 0) {
      v = lo;
    } else {
      v = (lo >> first) | (hi << (64 - first));
    }
    return width >= 64 ? v : v & ((uint64_t{1} << width) - 1);
  }
};

struct PredRef {
  uint8_t index = kPT;  // 0..6, or kPT
  bool negate = false;
  bool uniform = false;  // UP0..UP6
};

enum class OperandKind : uint8_t { kNone, kReg, kUReg, kImm, kConst };

// One of the sources A, B, C after the operand form has been resolved (physical slot -> role).
// Two-source instructions use A and B wherever B lies (FADD, DADD, HADD2 ..), one-source ones use B
// (MOV, MUFU, I2F ..). Memory: A is the address, B the data (ATOM.CAS: B compare, C new value), C
// the uniform base of the address (kNone when there is none; ATOM.CAS never has one). Jumps through
// a register: A. LDC, ULDC: B is kConst with `index` register and a signed offset in `value`.
struct Operand {
  OperandKind kind = OperandKind::kNone;
  uint8_t index = kRZ;  // register number (kReg 0..255, kUReg 0..63); index register of LDC/ULDC
  uint8_t bank = 0;     // kConst
  uint8_t select = 0;   // half selector (HADD2 …) or byte selector (I2F.B1 …), raw field
  bool neg = false;     // arithmetic negation, or bitwise NOT for integer forms: see the mnemonic
  bool abs = false;
  uint32_t value = 0;  // kImm: the 32 bits; kConst: byte offset
};

struct Instr {
  Word word;
  uint32_t pc = 0;  // byte offset in the kernel's text
  Form form{};      // the table line
  Op op{};          // the mnemonic
  PredRef guard;
  uint8_t rd = kRZ;  // destination register (kReg, or kUReg when rd_uniform)
  bool rd_uniform = false;
  PredRef pd0, pd1;       // predicate destinations (81..83, 84..86)
  PredRef ps0, ps1, ps2;  // predicate sources (87..90, 77..80, 68..71)
  Operand a, b, c;

  uint64_t get(Field f) const { return word.bits(f.first, f.width); }
  int64_t get_signed(Field f) const {
    const unsigned shift = 64 - f.width;
    return static_cast<int64_t>(get(f) << shift) >> shift;
  }
};

}  // namespace softgpu

#endif  // SOFTGPU_DECODE_INSTR_H_
