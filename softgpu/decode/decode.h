// Strict decoder: a word either is explained by the table to its last bit, or is an error.
#ifndef SOFTGPU_DECODE_DECODE_H_
#define SOFTGPU_DECODE_DECODE_H_

#include <string>

#include "decode/instr.h"

namespace softgpu {

// Decodes `word` at byte offset `pc`. Returns an empty string on success; else one sentence naming
// the word and the bits the table does not explain (the caller adds kernel and offset).
// Control bits 105..127 are scheduling only and never looked at.
[[nodiscard]] std::string decode(Word word, uint32_t pc, Instr* out);

// Prints an instruction in the vendor disassembler's syntax ("@!P0 IADD3 R5, -R7, RZ, RZ").
std::string to_string(const Instr& instr);

// The name of a table line ("IADD3_RRR").
const char* form_name(Form form);

}  // namespace softgpu

#endif  // SOFTGPU_DECODE_DECODE_H_
