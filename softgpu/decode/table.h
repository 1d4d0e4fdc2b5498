// The decode table as generated from isa/sm75.isa; shared by decode.cc and print.cc only.
#ifndef SOFTGPU_DECODE_TABLE_H_
#define SOFTGPU_DECODE_TABLE_H_

#include <span>

#include "decode/instr.h"

namespace softgpu {

// What the negation bit of an operand means (and how it prints).
enum class Inverts : uint8_t {
  kNegates,       // -x
  kInverts,       // ~x
  kInvertsWithX,  // ~x when field X is set, else -x
};

enum class Predicate : uint8_t { kNone, kPredicate, kUniformPredicate };
enum class Destination : uint8_t { kNone, kVector, kUniform };
enum class Imm : uint8_t { kU32, kS32, kF32, kF64, kH2 };  // how immediates print

struct FieldInfo {
  const char* name;
  Field bits;
  const char* const* names;  // of the values, nullptr: a plain number or flag
  const char* text;          // printed when set, "" for none
  uint16_t legal;            // bit v: value v is legal; 0xffff: all; 0: special registers
};

struct OperandInfo {
  OperandKind kind;
  uint8_t first, width;
  uint8_t neg, abs;  // bit numbers, 0: none
  Inverts inverts;
  uint8_t select_first, select_width;  // kConst with an index register: where that lies
  uint16_t select_legal;
  const char* const* select_names;
};

struct FormInfo {
  Op op;
  Form form;
  uint16_t opcode;
  const char* name;  // of the enumerator
  const char* mnemonic;
  const char* text;
  // Bits with one legal value, the opcode included. All other bits up to 104 are fields or operands
  // (or named as ignored): the generator has seen to that.
  Word fixed_mask, fixed_value;
  Predicate guard;
  Destination rd;
  Imm imm;
  uint16_t first_field;
  uint8_t field_count;
  Predicate predicates[5];  // pd0 pd1 ps0 ps1 ps2
  OperandInfo operands[3];  // a b c
};

struct SpecialInfo {
  uint8_t number;
  const char* name;  // without "SR_"; SRZ is "RZ"
};

std::span<const SpecialInfo> special_registers();

// The table line of a decoded instruction.
const FormInfo& form_info(Form form);
std::span<const FieldInfo> form_fields(const FormInfo& form);

}  // namespace softgpu

#endif  // SOFTGPU_DECODE_TABLE_H_
