#include "decode/decode.h"

#include <array>
#include <bit>
#include <cstdio>

#include "decode/table.h"

namespace softgpu {
namespace {

#include "isa_sm75.inc"

constexpr size_t kTableSize = std::size(kForms);
constexpr unsigned kOpcodes = 1 << 12;

// First form of each opcode in kForms (which is sorted by opcode); kTableSize for none.
constexpr std::array<uint16_t, kOpcodes> make_first_form() {
  std::array<uint16_t, kOpcodes> first{};
  first.fill(kTableSize);
  for (size_t i = kTableSize; i-- > 0;) first[kForms[i].opcode] = static_cast<uint16_t>(i);
  return first;
}
constexpr auto kFirstForm = make_first_form();

constexpr std::array<uint16_t, kFormCount> make_by_form() {
  std::array<uint16_t, kFormCount> by_form{};
  for (size_t i = 0; i < kTableSize; ++i) {
    by_form[static_cast<size_t>(kForms[i].form)] = static_cast<uint16_t>(i);
  }
  return by_form;
}
constexpr auto kByForm = make_by_form();

bool matches(const FormInfo& form, Word word) {
  return (word.lo & form.fixed_mask.lo) == form.fixed_value.lo &&
         (word.hi & form.fixed_mask.hi) == form.fixed_value.hi;
}

// One error sentence: what is wrong with a word, said in `what`.
std::string refusal(Word word, const std::string& what) {
  char hex[40];
  std::snprintf(hex, sizeof hex, "%016llx_%016llx", static_cast<unsigned long long>(word.hi),
                static_cast<unsigned long long>(word.lo));
  return std::string("instruction word [") + hex + "] " + what;
}

std::string bit_list(uint64_t lo, uint64_t hi) {
  std::string list;
  for (unsigned bit = 0; bit < 128; ++bit) {
    if ((bit < 64 ? lo >> bit : hi >> (bit - 64)) & 1) list += std::to_string(bit) + " ";
  }
  if (!list.empty()) list.pop_back();
  return list;
}

// Bits that must have a value which they do not have in `word`.
Word wrong_bits(const FormInfo& form, Word word) {
  return {(word.lo ^ form.fixed_value.lo) & form.fixed_mask.lo,
          (word.hi ^ form.fixed_value.hi) & form.fixed_mask.hi};
}

int wrong_count(const FormInfo& form, Word word) {
  const Word wrong = wrong_bits(form, word);
  return std::popcount(wrong.lo) + std::popcount(wrong.hi);
}

// No form of the opcode matches: names the bits that keep the nearest one from it.
std::string unexplained(size_t first, Word word) {
  const FormInfo* nearest = &kForms[first];
  for (size_t i = first; i < kTableSize && kForms[i].opcode == kForms[first].opcode; ++i) {
    if (wrong_count(kForms[i], word) < wrong_count(*nearest, word)) nearest = &kForms[i];
  }
  const Word wrong = wrong_bits(*nearest, word);
  return refusal(word, std::string("is not legal for [") + nearest->mnemonic +
                           "]: the table does not explain the value of bits [" +
                           bit_list(wrong.lo, wrong.hi) + "]");
}

PredRef source_predicate(Word word, unsigned first, Predicate kind) {
  return {static_cast<uint8_t>(word.bits(first, 3)), word.bits(first + 3, 1) != 0,
          kind == Predicate::kUniformPredicate};
}

PredRef destination_predicate(Word word, unsigned first, Predicate kind) {
  return {static_cast<uint8_t>(word.bits(first, 3)), false, kind == Predicate::kUniformPredicate};
}

void fill_predicates(const FormInfo& form, Word word, Instr* out) {
  const Predicate* kinds = form.predicates;
  out->guard = source_predicate(word, 12, form.guard);
  if (kinds[0] != Predicate::kNone) out->pd0 = destination_predicate(word, 81, kinds[0]);
  if (kinds[1] != Predicate::kNone) out->pd1 = destination_predicate(word, 84, kinds[1]);
  if (kinds[2] != Predicate::kNone) out->ps0 = source_predicate(word, 87, kinds[2]);
  if (kinds[3] != Predicate::kNone) out->ps1 = source_predicate(word, 77, kinds[3]);
  if (kinds[4] != Predicate::kNone) out->ps2 = source_predicate(word, 68, kinds[4]);
}

// A constant's byte offset; with an index register it is signed.
void fill_constant(const OperandInfo& info, Word word, Operand* out) {
  const auto offset = static_cast<uint16_t>(word.bits(38, 16));
  out->bank = static_cast<uint8_t>(word.bits(54, 5));
  out->value = offset;
  if (info.select_first != 24) return;
  out->index = static_cast<uint8_t>(word.bits(24, info.select_width));
  out->value = static_cast<uint32_t>(static_cast<int16_t>(offset));
}

void fill_operand(const OperandInfo& info, Word word, Operand* out) {
  out->kind = info.kind;
  switch (info.kind) {
    case OperandKind::kNone:
      return;
    case OperandKind::kReg:
    case OperandKind::kUReg:
      out->index = static_cast<uint8_t>(word.bits(info.first, info.width));
      break;
    case OperandKind::kImm:
      out->value = static_cast<uint32_t>(word.bits(info.first, info.width));
      break;
    case OperandKind::kConst:
      fill_constant(info, word, out);
      break;
  }
  if (info.neg) out->neg = word.bits(info.neg, 1) != 0;
  if (info.abs) out->abs = word.bits(info.abs, 1) != 0;
  if (info.select_width && info.select_first != 24) {
    out->select = static_cast<uint8_t>(word.bits(info.select_first, info.select_width));
  }
}

bool is_special_register(uint64_t number) {
  for (const SpecialInfo& info : kSpecials) {
    if (info.number == number) return true;
  }
  return false;
}

// Empty when every modifier field has a legal value.
std::string check_fields(const FormInfo& form, Word word) {
  for (const FieldInfo& field : form_fields(form)) {
    if (field.legal == 0xffff) continue;
    const uint64_t value = word.bits(field.bits.first, field.bits.width);
    if (field.legal ? field.legal >> value & 1 : is_special_register(value)) continue;
    return refusal(word, std::string("is not legal for [") + form.mnemonic + "]: field [" +
                             field.name + "] at bit [" + std::to_string(field.bits.first) +
                             "] has no value [" + std::to_string(value) + "]");
  }
  return {};
}

// Empty when the half or byte selectors of all operands have a legal value.
std::string check_selectors(const FormInfo& form, Word word) {
  for (const OperandInfo& info : form.operands) {
    if (!info.select_names) continue;
    const uint64_t value = word.bits(info.select_first, info.select_width);
    if (info.select_legal >> value & 1) continue;
    return refusal(word, std::string("is not legal for [") + form.mnemonic +
                             "]: the operand selector at bit [" +
                             std::to_string(info.select_first) + "] has no value [" +
                             std::to_string(value) + "]");
  }
  return {};
}

void fill(const FormInfo& form, Word word, uint32_t pc, Instr* out) {
  *out = Instr{};
  out->word = word;
  out->pc = pc;
  out->form = form.form;
  out->op = form.op;
  if (form.rd != Destination::kNone) {
    out->rd_uniform = form.rd == Destination::kUniform;
    out->rd = static_cast<uint8_t>(word.bits(16, out->rd_uniform ? 6 : 8));
  }
  fill_predicates(form, word, out);
  fill_operand(form.operands[0], word, &out->a);
  fill_operand(form.operands[1], word, &out->b);
  fill_operand(form.operands[2], word, &out->c);
  // Only PLOP3 has this: the flag says which register file its third source is in.
  if (form.op == Op::PLOP3) out->ps2.uniform = out->get(isa::PLOP3::PS2_UNIFORM) != 0;
}

}  // namespace

const FormInfo& form_info(Form form) {
  return kForms[kByForm[static_cast<size_t>(form)]];
}

const char* form_name(Form form) {
  return form_info(form).name;
}

std::span<const FieldInfo> form_fields(const FormInfo& form) {
  return {kFields + form.first_field, form.field_count};
}

std::span<const SpecialInfo> special_registers() {
  return kSpecials;
}

std::string decode(Word word, uint32_t pc, Instr* out) {
  const auto opcode = static_cast<unsigned>(word.lo & (kOpcodes - 1));
  const size_t first = kFirstForm[opcode];
  if (first == kTableSize) {
    char text[40];
    std::snprintf(text, sizeof text, "has the unknown opcode [%03x]", opcode);
    return refusal(word, text);
  }
  std::string error;
  for (size_t i = first; i < kTableSize && kForms[i].opcode == opcode; ++i) {
    if (!matches(kForms[i], word)) continue;
    error = check_fields(kForms[i], word);
    if (error.empty()) error = check_selectors(kForms[i], word);
    if (!error.empty()) continue;
    fill(kForms[i], word, pc, out);
    return {};
  }
  return error.empty() ? unexplained(first, word) : error;
}

}  // namespace softgpu
