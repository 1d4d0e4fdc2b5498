#include "exec/lower.h"

#include <algorithm>
#include <cstring>

#include "decode/decode.h"
#include "exec/count_forms.h"

namespace softgpu::exec {

// ---- operands ----------------------------------------------------------------------------

static uint64_t key(const PoolEntry& e) {
  return uint64_t{e.bank} << 40 | uint64_t{e.mods} << 32 | e.value;
}

uint32_t Lowering::add_pool(const PoolEntry& entry) {
  program_->pool.push_back(entry);
  return static_cast<uint32_t>(program_->pool.size() - 1) * kRowBytes | kPoolBit;
}

uint32_t Lowering::pool(const PoolEntry& entry) {
  auto [it, fresh] = words_.try_emplace(key(entry), 0);
  if (fresh) it->second = add_pool(entry);
  return it->second;
}

uint32_t Lowering::pool_pair(const PoolEntry& low, const PoolEntry& high) {
  // A pair is identified by its high word: the low one follows from it.
  auto [it, fresh] = pairs_.try_emplace(key(high), 0);
  if (fresh) {
    it->second = add_pool(low);
    add_pool(high);
  }
  return it->second;
}

uint32_t Lowering::immediate_pair(uint32_t low, uint32_t high) {
  const uint32_t row = add_pool({PoolEntry::kImmediate, 0, low});
  add_pool({PoolEntry::kImmediate, 0, high});
  return row;
}

uint32_t Lowering::register_row(uint8_t index) const {
  const uint32_t row = index == kRZ ? kZeroRows : program_->traits.register_row + index;
  return row * kRowBytes;
}

uint32_t Lowering::uniform_row(uint8_t index) const {
  return (index == kURZ ? kZeroRows : kUniformRows + index) * kRowBytes;
}

uint32_t Lowering::rd_row(const Instr& instr) const {
  if (instr.rd == (instr.rd_uniform ? kURZ : kRZ)) return kTrashRows * kRowBytes;
  return instr.rd_uniform ? uniform_row(instr.rd) : register_row(instr.rd);
}

static uint8_t float_mods_of(const Operand& operand) {
  return static_cast<uint8_t>((operand.neg ? kModNeg : 0) | (operand.abs ? kModAbs : 0));
}

uint32_t Lowering::row(const Operand& operand, bool float_mods, uint8_t* mods) {
  const uint8_t wanted = float_mods ? float_mods_of(operand) : 0;
  switch (operand.kind) {
    case OperandKind::kReg:
      if (mods) *mods = wanted;
      return register_row(operand.index);
    case OperandKind::kUReg:
      if (mods) *mods = wanted;
      return uniform_row(operand.index);
    case OperandKind::kImm:
      return pool({PoolEntry::kImmediate, wanted, operand.value});
    case OperandKind::kConst:
      return pool({operand.bank, wanted, operand.value});
    case OperandKind::kNone:
      break;
  }
  return kZeroRows * kRowBytes;
}

uint32_t Lowering::pair(const Operand& operand, bool float_mods, uint8_t* mods) {
  const uint8_t wanted = float_mods ? float_mods_of(operand) : 0;
  if (operand.kind == OperandKind::kImm) {
    return pool_pair({PoolEntry::kImmediate, 0, 0}, {PoolEntry::kImmediate, wanted, operand.value});
  }
  if (operand.kind == OperandKind::kConst) {
    return pool_pair({operand.bank, 0, operand.value}, {operand.bank, wanted, operand.value + 4});
  }
  return row(operand, float_mods, mods);
}

const Inst* Lowering::at(uint32_t pc) const {
  const size_t last = program_->code.size() - 1;
  return &program_->code[std::min<size_t>(pc % kInstrBytes ? last : pc / kInstrBytes, last)];
}

void float_sources(Lowering* l, const Instr& i, Inst* o) {
  uint8_t a = 0, b = 0, c = 0;
  o->rd = l->rd_row(i);
  o->a = l->row(i.a, true, &a);
  o->b = l->row(i.b, true, &b);
  o->c = l->row(i.c, true, &c);
  o->mods = static_cast<uint8_t>(a | b << 2 | c << 4);
}

void double_sources(Lowering* l, const Instr& i, Inst* o) {
  uint8_t a = 0, b = 0, c = 0;
  o->rd = l->rd_row(i);
  o->a = l->pair(i.a, true, &a);
  o->b = l->pair(i.b, true, &b);
  o->c = l->pair(i.c, true, &c);
  o->mods = static_cast<uint8_t>(a | b << 2 | c << 4);
}

// ---- program -----------------------------------------------------------------------------

static uint8_t source_pred(const PredRef& p) {
  return static_cast<uint8_t>(p.index + (p.uniform ? kPredUniform : 0));
}

static uint8_t dest_pred(const PredRef& p) {
  return p.index == kPT ? kPredTrash : source_pred(p);
}

static void lower_common(const Instr& i, Inst* o) {
  o->guard = source_pred(i.guard);
  o->guard_xor = i.guard.negate ? kFull : 0;
  o->pd0 = dest_pred(i.pd0);
  o->pd1 = dest_pred(i.pd1);
  o->ps0 = source_pred(i.ps0);
  o->ps1 = source_pred(i.ps1);
  o->ps2 = source_pred(i.ps2);
  o->pneg = static_cast<uint8_t>((i.ps0.negate ? 1 : 0) | (i.ps1.negate ? 2 : 0) |
                                 (i.ps2.negate ? 4 : 0));
}

static const LowerTable& lower_table() {
  static const LowerTable table = [] {
    LowerTable t{};
    register_integer(&t);
    register_packed(&t);
    register_bits(&t);
    register_float(&t);
    register_double(&t);
    register_half(&t);
    register_tensor(&t);
    register_convert(&t);
    register_mufu(&t);
    register_memory(&t);
    register_atomic(&t);
    register_warp(&t);
    register_control(&t);
    register_special(&t);
    return t;
  }();
  return table;
}

// ---- what the table can spell and nothing here executes ---------------------------------------

static bool is_atomic(Op op) {
  return op == Op::ATOM || op == Op::ATOMG || op == Op::RED;
}

// Sums and exchanges are all that there is of floats.
static bool unknown_atomic(const Instr& i) {
  constexpr uint64_t kAdd = 0, kExchange = 8;
  constexpr uint64_t kFloats = 1 << 3 | 1 << 4 | 1 << 6;  // F32, F16x2, F64
  if (!is_atomic(i.op) || !(kFloats >> i.get(isa::ATOM::TYPE) & 1)) return false;
  const uint64_t what = i.op == Op::RED ? i.get(isa::RED::OP) : i.get(isa::ATOM::OP);
  return what != kAdd && what != kExchange;
}

// Kernels have constant banks 0 (parameters), 2 (literals), 3 (variables) and 4 (addresses).
static bool unknown_bank(const Operand& operand) {
  return operand.kind == OperandKind::kConst && (operand.bank == 1 || operand.bank > 4);
}

// Empty, or why the instruction would not do what it says.
static std::string refused(const Instr& i) {
  if (unknown_atomic(i)) return "has an operation that its type does not have";
  if (unknown_bank(i.a) || unknown_bank(i.b) || unknown_bank(i.c)) return "reads no constant bank";
  if (i.op == Op::R2UR && i.pd0.index != kPT) return "writes a predicate of unknown meaning";
  if (i.op == Op::QSPC && i.rd != kRZ) return "writes a register of unknown meaning";
  return {};
}

static std::string decode_text(const Kernel& kernel, std::vector<Instr>* out) {
  out->resize(kernel.text.size() / kInstrBytes);
  for (size_t n = 0; n < out->size(); ++n) {
    Word word;
    std::memcpy(&word.lo, kernel.text.data() + n * kInstrBytes, 8);
    std::memcpy(&word.hi, kernel.text.data() + n * kInstrBytes + 8, 8);
    std::string why = decode(word, static_cast<uint32_t>(n * kInstrBytes), &(*out)[n]);
    if (!why.empty()) return why;
    if (!lower_table()[static_cast<size_t>((*out)[n].op)]) {
      return "instruction [" + to_string((*out)[n]) + "] has no handler";
    }
    if (std::string no = refused((*out)[n]); !no.empty()) {
      return "instruction [" + to_string((*out)[n]) + "] " + no;
    }
  }
  return {};
}

// Quads reach three rows beyond the register an instruction names.
static void count_rows(const std::vector<Instr>& instrs, Traits* traits) {
  uint32_t registers = 0, uniforms = 0;
  const auto see = [&](bool uniform, uint8_t index) {
    if (index == (uniform ? kURZ : kRZ)) return;
    uint32_t& count = uniform ? uniforms : registers;
    count = std::max<uint32_t>(count, index + 4u);
  };
  for (const Instr& i : instrs) {
    see(i.rd_uniform, i.rd);
    for (const Operand* operand : {&i.a, &i.b, &i.c}) {
      if (operand->kind == OperandKind::kReg) see(false, operand->index);
      if (operand->kind == OperandKind::kUReg) see(true, operand->index);
    }
  }
  // The calling convention of system calls names R4..R21 without an operand.
  registers = std::max<uint32_t>(registers, 24);
  traits->register_row = kUniformRows + uniforms;
  traits->rows = traits->register_row + registers;
}

static const Inst* exec_past_end(const Inst* in, Warp* w, uint32_t exec) {
  return fault(in, w, FaultKind::kIllegalInstruction, first_lane(exec), "jump out of the code");
}

std::string lower_program(const Kernel& kernel, Program* program) {
  std::vector<Instr> instrs;
  if (std::string why = decode_text(kernel, &instrs); !why.empty()) return why;
  count_rows(instrs, &program->traits);
  program->code.resize(instrs.size() + 1);
  program->code.back().fn = exec_past_end;
  Lowering lowering(program);
  for (size_t n = 0; n < instrs.size(); ++n) {
    lower_common(instrs[n], &program->code[n]);
    lower_table()[static_cast<size_t>(instrs[n].op)](&lowering, instrs[n], &program->code[n]);
  }
  if (counts_forms()) count_forms(instrs, program);
  return {};
}

}  // namespace softgpu::exec
