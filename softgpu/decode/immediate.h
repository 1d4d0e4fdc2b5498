// How the vendor's disassembler writes an immediate operand.
#ifndef SOFTGPU_DECODE_IMMEDIATE_H_
#define SOFTGPU_DECODE_IMMEDIATE_H_

#include <string>

#include "decode/table.h"

namespace softgpu {

// "0x1f", "-0x2".
std::string hex_text(int64_t value);

// The 32 bits of an immediate as the instruction reads them ("-0x3", "0.5", "+INF", "1, 1").
std::string immediate_text(uint32_t bits, Imm kind);

}  // namespace softgpu

#endif  // SOFTGPU_DECODE_IMMEDIATE_H_
