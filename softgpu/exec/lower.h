// From decoded instructions to a Program.
//
// Each family file fills its lines of the table Op -> LowerFn; a LowerFn chooses the handler and
// sets the fields that handler reads. The common fields (guard, operands, predicates) are set
// before it is called.
#ifndef SOFTGPU_EXEC_LOWER_H_
#define SOFTGPU_EXEC_LOWER_H_

#include <array>
#include <map>
#include <string>

#include "core/kernel.h"
#include "decode/instr.h"
#include "exec/program.h"
#include "exec/warp.h"

namespace softgpu::exec {

// Turns operands into rows. Float sources read their sign modifiers from the pool row or from
// Inst::mods; integer sources never from the pool, since their negation takes part in the carry.
class Lowering {
 public:
  explicit Lowering(Program* program) : program_(program) {}

  // A 32-bit source. With `float_mods` a constant's neg/abs goes into its pool row, and a
  // register's is returned through `mods`.
  uint32_t row(const Operand& operand, bool float_mods, uint8_t* mods);
  uint32_t row(const Operand& operand) { return row(operand, false, nullptr); }
  // A 64-bit source: two rows in sequence. Immediates carry the high word only.
  uint32_t pair(const Operand& operand, bool float_mods, uint8_t* mods);
  uint32_t register_row(uint8_t index) const;
  uint32_t uniform_row(uint8_t index) const;
  uint32_t rd_row(const Instr& instr) const;
  uint32_t immediate(uint32_t value) { return pool({PoolEntry::kImmediate, 0, value}); }
  uint32_t immediate_pair(uint32_t low, uint32_t high);

  uint32_t new_slot() { return program_->traits.slots++; }
  Program* program() { return program_; }
  const Inst* at(uint32_t pc) const;  // the instruction at a byte offset; the last one if outside

 private:
  uint32_t pool(const PoolEntry& entry);
  uint32_t pool_pair(const PoolEntry& low, const PoolEntry& high);
  uint32_t add_pool(const PoolEntry& entry);

  Program* program_;
  std::map<uint64_t, uint32_t> words_, pairs_;
};

// Destination and 32-bit sources of integer instructions (no modifiers in the pool).
inline void sources(Lowering* l, const Instr& i, Inst* o) {
  o->rd = l->rd_row(i);
  o->a = l->row(i.a);
  o->b = l->row(i.b);
  o->c = l->row(i.c);
}

// The same for float instructions: sign modifiers of registers go to Inst::mods.
void float_sources(Lowering* l, const Instr& i, Inst* o);
// For double instructions: sources are pairs, modifiers act on the high words.
void double_sources(Lowering* l, const Instr& i, Inst* o);

using LowerFn = void (*)(Lowering* l, const Instr& i, Inst* o);
using LowerTable = std::array<LowerFn, 256>;  // by Op

void register_integer(LowerTable* table);
void register_packed(LowerTable* table);
void register_bits(LowerTable* table);
void register_float(LowerTable* table);
void register_double(LowerTable* table);
void register_half(LowerTable* table);
void register_tensor(LowerTable* table);
void register_convert(LowerTable* table);
void register_mufu(LowerTable* table);
void register_memory(LowerTable* table);
void register_atomic(LowerTable* table);
void register_warp(LowerTable* table);
void register_control(LowerTable* table);
void register_special(LowerTable* table);

// The uniform datapath: the same operation on uniform rows, for all lanes at once.
template <LowerFn kFn>
void uniform(Lowering* l, const Instr& i, Inst* o) {
  kFn(l, i, o);
  o->force = kFull;
}

// Builds the program of a kernel; the reason if that is impossible.
std::string lower_program(const Kernel& kernel, Program* program);

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_LOWER_H_
