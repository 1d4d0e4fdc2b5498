// Prints instructions in the vendor disassembler's syntax, from the text column of the table.
#include <bit>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "decode/decode.h"
#include "decode/immediate.h"
#include "decode/table.h"

namespace softgpu {
namespace {

// Concatenation. GCC 12 warns without reason about `"text" + std::string` (its bug 105651).
std::string join(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

std::string reg_text(unsigned index) {
  return index == kRZ ? "RZ" : join({"R", std::to_string(index)});
}

std::string ureg_text(unsigned index) {
  return index == kURZ ? "URZ" : join({"UR", std::to_string(index)});
}

std::string predicate_text(PredRef p) {
  std::string text = p.negate ? "!" : "";
  text += p.uniform ? "UP" : "P";
  return text + (p.index == kPT ? "T" : std::to_string(p.index));
}

// "+0x10", "+-0x10", nothing for 0.
std::string plus_offset(int64_t offset) {
  return offset ? join({"+", hex_text(offset)}) : "";
}

// The prefix is SR_, except for SRZ; a register without a name prints as its number.
std::string special_register_text(uint64_t number) {
  if (number == isa::sr::kRZ) return "SRZ";
  for (const SpecialInfo& info : special_registers()) {
    if (info.number == number) return std::string("SR_") + info.name;
  }
  return join({"SR", std::to_string(number)});
}

class Printer {
 public:
  explicit Printer(const Instr& instr) : instr_(instr), form_(form_info(instr.form)) {}

  std::string print() {
    if (instr_.guard.index != kPT || instr_.guard.negate) {
      out_ = join({"@", predicate_text(instr_.guard), " "});
    }
    out_ += form_.mnemonic;
    const std::string_view text = form_.text;
    const size_t space = text.find(' ');
    out_ += braces(text.substr(0, space));
    if (space != std::string_view::npos) operands(text.substr(space + 1));
    return out_;
  }

 private:
  const FieldInfo* field(std::string_view name) const {
    for (const FieldInfo& info : form_fields(form_)) {
      if (name == info.name) return &info;
    }
    return nullptr;
  }

  uint64_t value(std::string_view name) const {
    const FieldInfo* info = field(name);
    return info ? instr_.get(info->bits) : 0;
  }

  // `text` with {NAME} replaced by the text of the modifier's value.
  std::string braces(std::string_view text) const {
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '{') {
        result += text[i];
        continue;
      }
      const size_t end = text.find('}', i);
      result += modifier(text.substr(i + 1, end - i - 1));
      i = end;
    }
    return result;
  }

  std::string modifier(std::string_view name) const {
    if (name == "imad") return imad();
    if (name == "f2i") return integer_type(value("DST"), value("SIGNED"));
    if (name == "i2f") return integer_type(value("SRC"), value("SIGNED"));
    if (name == "red") return value("MODE") ? modifier("RED") : "";
    const FieldInfo* info = field(name);
    const uint64_t number = instr_.get(info->bits);
    return info->names ? info->names[number] : number ? info->text : "";
  }

  // Type names of F2I and I2F; S32 is the silent default.
  static std::string integer_type(uint64_t log2_bytes, uint64_t is_signed) {
    if (log2_bytes == 2 && is_signed) return "";
    return (is_signed ? ".S" : ".U") + std::to_string(8 << log2_bytes);
  }

  std::string imad() const { return imad_alias() + modifier("SIGNED") + modifier("X"); }

  // IMAD has names for the moves, additions and shifts that compilers make of it.
  std::string imad_alias() const {
    const auto is_rz = [](const Operand& o) {
      return o.kind == OperandKind::kReg && o.index == kRZ;
    };
    if (value("X")) return "";
    const bool immediate = instr_.b.kind == OperandKind::kImm;
    const bool adds_zero = is_rz(instr_.c);
    const uint32_t factor = instr_.b.value;
    if (instr_.c.kind == OperandKind::kUReg || instr_.b.kind == OperandKind::kUReg) return "";
    if (is_rz(instr_.a) || is_rz(instr_.b) || (immediate && factor == 0)) return ".MOV";
    if (!immediate) return "";
    if (factor == 1) return adds_zero ? ".MOV" : ".IADD";
    // The vendor makes an exception of 1 << 16 and of the sign bit.
    const bool shifts = adds_zero && std::has_single_bit(factor) && factor != 0x10000;
    return shifts && factor >> 31 == 0 ? ".SHL" : "";
  }

  void operands(std::string_view list) {
    const char* separator = " ";
    while (!list.empty()) {
      const size_t comma = list.find(',');
      const std::string text = operand(list.substr(0, comma));
      if (!text.empty()) {
        out_ += join({separator, text});
        separator = ", ";
      }
      if (comma == std::string_view::npos) break;
      list.remove_prefix(comma + 1);
      while (!list.empty() && list[0] == ' ') list.remove_prefix(1);
    }
  }

  // One element of the list; empty when its condition is false.
  std::string operand(std::string_view word) const {
    const size_t colon = word.find("?:");
    if (colon != std::string_view::npos) {
      if (!condition(word.substr(0, colon))) return "";
      word.remove_prefix(colon + 2);
    }
    const size_t paren = word.find('(');
    if (paren != std::string_view::npos) {
      const uint64_t number = value(word.substr(paren + 1, word.size() - paren - 2));
      if (word.starts_with("sr")) return special_register_text(number);
      return word[1] == '?' && number == 0 ? "" : hex_text(static_cast<int64_t>(number));
    }
    const size_t brace = word.find('{');
    if (brace == std::string_view::npos) return plain_operand(word);
    return plain_operand(word.substr(0, brace)) + braces(word.substr(brace));
  }

  bool condition(std::string_view text) const {
    while (!text.empty()) {
      const size_t end = text.find('&');
      std::string_view name = text.substr(0, end);
      const bool want = name[0] != '!';
      if (!want) name.remove_prefix(1);
      if ((value(name) != 0) != want) return false;
      if (end == std::string_view::npos) break;
      text.remove_prefix(end + 1);
    }
    return true;
  }

  std::string plain_operand(std::string_view word) const {
    const bool hides_default = word.back() == '?';
    if (hides_default) word.remove_suffix(1);
    if (word == "rd") return destination(hides_default);
    if (word == "a") return source(instr_.a, form_.operands[0]);
    if (word == "b") return source(instr_.b, form_.operands[1]);
    if (word == "c") return source(instr_.c, form_.operands[2]);
    if (word == "PR") return "PR";
    if (word == "addr") return address();
    if (word == "breg") return join({"B", std::to_string(value("BREG"))});
    if (word == "lut0")
      return hex_text(static_cast<int64_t>(value("LUT0_HI") * 8 + value("LUT0_LO")));
    if (word == "target") return hex_text(next_pc() + jump_offset());
    if (word == "absolute") return hex_text(static_cast<int64_t>(value("ADDRESS") * 4));
    if (word == "rel") return jump_base();
    if (word == "depbar") return depbar();
    const PredRef p = predicate(word);
    return hides_default && p.index == kPT && !p.negate ? "" : predicate_text(p);
  }

  std::string destination(bool hides_zero) const {
    if (hides_zero && instr_.rd == (instr_.rd_uniform ? kURZ : kRZ)) return "";
    return instr_.rd_uniform ? ureg_text(instr_.rd) : reg_text(instr_.rd);
  }

  PredRef predicate(std::string_view word) const {
    if (word == "pd0") return instr_.pd0;
    if (word == "pd1") return instr_.pd1;
    if (word == "ps0") return instr_.ps0;
    if (word == "ps1") return instr_.ps1;
    return instr_.ps2;
  }

  // Register and offset of an indirect jump. The vendor prints those of RET and CALL.REL as an
  // absolute offset, the others' as encoded.
  std::string jump_base() const {
    const bool relative = form_.op == Op::RET || form_.op == Op::CALL_REL;
    const int64_t base = relative ? next_pc() : 0;
    return join({source(instr_.a, form_.operands[0]), " ", hex_text(base + jump_offset())});
  }

  int64_t next_pc() const { return int64_t{instr_.pc} + kInstrBytes; }
  int64_t jump_offset() const { return instr_.get_signed(field("OFFSET")->bits) * 4; }

  std::string source(const Operand& o, const OperandInfo& info) const {
    if (o.kind == OperandKind::kImm) return immediate_text(o.value, immediate_kind());
    std::string text = o.kind == OperandKind::kConst  ? constant(o, info)
                       : o.kind == OperandKind::kUReg ? ureg_text(o.index)
                                                      : reg_text(o.index);
    const char* select = info.select_names ? info.select_names[o.select] : "";
    // The vendor writes the half of a vector register behind the bars, but that of others and of
    // the only source of MUFU and FRND inside.
    const bool alone = form_.op == Op::MUFU || form_.op == Op::FRND;
    if (o.kind != OperandKind::kReg || alone) text += std::exchange(select, "");
    if (o.abs) text = join({"|", text, "|"});
    if (o.neg) {
      const bool inverts = info.inverts == Inverts::kInverts ||
                           (info.inverts == Inverts::kInvertsWithX && value("X"));
      text = (inverts ? "~" : "-") + text;
    }
    text += select;
    if (form_.op == Op::I2F) text += i2f_part(o.select);
    return text;
  }

  // The 64H functions read the high word of a double.
  Imm immediate_kind() const {
    const bool high_word = form_.op == Op::MUFU && (value("FUNC") == isa::mufu::kRCP64H ||
                                                    value("FUNC") == isa::mufu::kRSQ64H);
    return high_word ? Imm::kF64 : form_.imm;
  }

  // I2F reads byte or half `select` of its source when that is narrower than a word.
  std::string i2f_part(unsigned select) const {
    const uint64_t log2_bytes = value("SRC");
    if (select == 0 || log2_bytes > 1) return "";
    return join({log2_bytes == 0 ? ".B" : ".H", std::to_string(select)});
  }

  static std::string constant(const Operand& o, const OperandInfo& info) {
    const std::string bank = join({"c[", hex_text(o.bank), "]["});
    const auto offset = static_cast<int16_t>(o.value);
    const bool indexed = info.select_first == 24;
    const bool uniform = info.select_width == 6;
    if (!indexed || (!uniform && o.index == kRZ && offset != 0)) {
      return join({bank, hex_text(offset), "]"});
    }
    return join({bank, uniform ? ureg_text(o.index) : reg_text(o.index), plus_offset(offset), "]"});
  }

  // [R2.X8+UR4+0x10]; without a register the offset is an unsigned address.
  std::string address() const {
    const FieldInfo* offset = field("OFFSET") ? field("OFFSET") : field("OFFSET32");
    std::string text = address_register();
    if (instr_.c.kind == OperandKind::kUReg) {
      text += join({text.empty() ? "" : "+", ureg_text(instr_.c.index)});
    }
    if (!text.empty()) return join({"[", text, plus_offset(instr_.get_signed(offset->bits)), "]"});
    const auto absolute = static_cast<int64_t>(instr_.get(offset->bits));
    return join({"[", absolute ? hex_text(absolute) : "RZ", "]"});
  }

  // Empty for RZ; the vendor writes it only when it is scaled and beside a uniform base.
  std::string address_register() const {
    const FieldInfo* scale = field("SCALE");
    const bool uniform = instr_.c.kind == OperandKind::kUReg;
    if (instr_.a.index == kRZ && !(uniform && value("SCALE"))) return "";
    std::string text = reg_text(instr_.a.index);
    if (scale) text += scale->names[instr_.get(scale->bits)];
    if (field("A64")) text += value("A64") ? ".64" : ".U32";
    return text;
  }

  // SB0, 0x0, {4,2,1}
  std::string depbar() const {
    std::string text;
    if (value("LE")) {
      text = join({"SB", std::to_string(value("SB")), ", ",
                   hex_text(static_cast<int64_t>(value("COUNT")))});
    }
    std::string list;
    for (int bit = 5; bit >= 0; --bit) {
      if (value("MASK") >> bit & 1) list += join({list.empty() ? "" : ",", std::to_string(bit)});
    }
    if (list.empty()) return text;
    return join({text, text.empty() ? "{" : ", {", list, "}"});
  }

  const Instr& instr_;
  const FormInfo& form_;
  std::string out_;
};

}  // namespace

std::string to_string(const Instr& instr) {
  return Printer(instr).print();
}

}  // namespace softgpu
