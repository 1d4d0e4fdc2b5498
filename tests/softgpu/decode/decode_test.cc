// The decoder against words whose vendor text is stored in sm75/*.txt (folder in $SASS_WORDS).
#include "decode/decode.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <vector>

#include "../../check.h"

using softgpu::Instr;
using softgpu::OperandKind;
using softgpu::Word;

namespace {

struct Sample {
  Word word;
  std::string text;
};

std::vector<Sample> read_samples(const std::string& name) {
  const char* folder = std::getenv("SASS_WORDS");
  std::ifstream file(std::string(folder ? folder : ".") + "/" + name);
  std::vector<Sample> samples;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const Word word{std::stoull(line.substr(17, 16), nullptr, 16),
                    std::stoull(line.substr(0, 16), nullptr, 16)};
    samples.push_back({word, line.substr(34)});
  }
  CHECK(!samples.empty());
  return samples;
}

std::string text_of(Word word) {
  Instr instr;
  const std::string error = softgpu::decode(word, 0, &instr);
  return error.empty() ? softgpu::to_string(instr) : "ERROR " + error;
}

Instr decoded(uint64_t hi, uint64_t lo) {
  Instr instr;
  CHECK_EQ(softgpu::decode({lo, hi}, 0, &instr), "");
  return instr;
}

void check_texts(const std::string& name) {
  for (const Sample& sample : read_samples(name)) CHECK_EQ(text_of(sample.word), sample.text);
}

// The mnemonic without guard and modifiers.
std::string mnemonic(const std::string& text) {
  const size_t start = text[0] == '@' ? text.find(' ') + 1 : 0;
  return text.substr(start, text.find_first_of(". ", start) - start);
}

// Bits that take part only together with another field, so that the vendor does not print them:
// carries without .X, BAR's predicate without .RED, A64 and SCALE beside RZ, C of a LEA that
// takes the sign of A, payloads of NaN immediates.
const std::map<std::string, std::set<unsigned>> kSilent = {
    {"ATOMG", {70}},
    {"ATOMS", {78, 79}},
    {"BAR", {74, 75, 87, 88, 89, 90}},
    {"IADD3", {77, 78, 79, 80, 87, 88, 89, 90}},
    {"IMAD", {87, 88, 89, 90}},
    {"LDG", {90}},
    {"LEA", {64, 65, 66, 67, 68, 69, 70, 71, 87, 88, 89, 90}},
    {"ST", {90}},
    {"STS", {78, 79}},
    {"UIADD3", {77, 78, 79, 80, 87, 88, 89, 90}},
    {"UIMAD", {87, 88, 89, 90}},
    {"UISETP", {68, 69, 70, 71}},
    {"ULEA", {64, 65, 66, 67, 68, 69, 87, 88, 89, 90}},
};

bool may_be_silent(const std::string& text, unsigned bit) {
  if (text.find("QNAN") != std::string::npos && bit >= 32 && bit < 64) return true;
  const auto found = kSilent.find(mnemonic(text));
  return found != kSilent.end() && found->second.count(bit);
}

Word flipped(Word word, unsigned bit) {
  (bit < 64 ? word.lo : word.hi) ^= uint64_t{1} << (bit % 64);
  return word;
}

TEST(every_opcode_prints_as_the_vendor_does) {
  check_texts("samples.txt");
}
TEST(every_modifier_prints_as_the_vendor_does) {
  check_texts("variants.txt");
}

TEST(no_bit_is_ignored) {
  for (const char* name : {"samples.txt", "variants.txt"}) {
    for (const Sample& sample : read_samples(name)) {
      for (unsigned bit = 12; bit <= 104; ++bit) {
        const std::string text = text_of(flipped(sample.word, bit));
        if (text != sample.text || may_be_silent(sample.text, bit)) continue;
        CHECK_EQ(sample.text + " ignores bit", std::to_string(bit));
      }
    }
  }
}

TEST(scheduling_bits_are_not_looked_at) {
  const Word word{0x000000ff07057210, 0x00007ffe1ff};
  for (unsigned bit = 105; bit < 128; ++bit) CHECK_EQ(text_of(flipped(word, bit)), text_of(word));
}

TEST(unexplained_bit_is_named) {
  CHECK_EQ(text_of({0x000000ff00057202, 0x00040f00}),
           "ERROR instruction word [0000000000040f00_000000ff00057202] is not legal for [MOV]: the "
           "table does not explain the value of bits [82]");
}

TEST(unknown_opcode_is_named) {
  CHECK_EQ(text_of({0xfff, 0}),
           "ERROR instruction word [0000000000000000_0000000000000fff] has the unknown opcode "
           "[fff]");
}

TEST(illegal_field_value_is_named) {  // ISETP with combine 3
  CHECK_EQ(text_of({0x000000ff0600720c, 0x3f05e70}),
           "ERROR instruction word [0000000003f05e70_000000ff0600720c] is not legal for [ISETP]: "
           "field [BOOL] at bit [74] has no value [3]");
}

TEST(forms_put_operands_into_roles) {
  const Instr rrc = decoded(0x4, 0x0000590004167623);  // FFMA R22, R4, R4, c[0x0][0x164]
  CHECK(rrc.a.kind == OperandKind::kReg && rrc.b.kind == OperandKind::kReg);
  CHECK(rrc.c.kind == OperandKind::kConst);
  CHECK_EQ(rrc.c.value, 0x164u);
  CHECK_EQ(int{rrc.rd}, 22);
  const Instr rur = decoded(0x800042e, 0x8000001a4e507c2b);  // DFMA R80, R78, -UR26, |R46|
  CHECK(rur.b.kind == OperandKind::kUReg && rur.b.neg && !rur.b.abs);
  CHECK(rur.c.kind == OperandKind::kReg && rur.c.abs && !rur.c.neg);
  const Instr dadd = decoded(0x4, 0x000000001a1a7229);  // DADD R26, R26, R4
  CHECK_EQ(int{dadd.b.index}, 4);
  CHECK(dadd.c.kind == OperandKind::kNone);
}

TEST(predicates_and_fields) {
  const Instr p = decoded(0x3800000, 0x00000c6000008947);  // @!P0 BRA
  CHECK(p.guard.index == 0 && p.guard.negate && p.ps0.index == softgpu::kPT);
  CHECK_EQ(p.get_signed(softgpu::isa::BRA::OFFSET), 0xc60 / 4);
  const Instr u = decoded(0xbf06300, 0x0000003f0600728c);  // UISETP.GE.AND.EX UP0, ...
  CHECK(u.pd0.uniform && u.pd0.index == 0 && u.ps2.uniform);
  CHECK_EQ(u.get(softgpu::isa::UISETP::CMP), softgpu::isa::icmp::kGE);
}

TEST(memory_operands) {
  const Instr stg = decoded(0x810e104, 0x0000000506007986);  // STG.E.U8.SYS [R6.U32+UR4], R5
  CHECK_EQ(int{stg.a.index}, 6);
  CHECK_EQ(int{stg.b.index}, 5);
  CHECK(stg.c.kind == OperandKind::kUReg && stg.c.index == 4);
  const Instr st = decoded(0x10e903, 0xfffffffe06007385);  // ST.E.SYS [R6+-0x2], R3
  CHECK_EQ(st.get_signed(softgpu::isa::ST::OFFSET32), -2);
  const Instr uldc = decoded(0x8000800, 0x0000580024047abb);  // ULDC UR4, c[0x0][UR36+0x160]
  CHECK(uldc.rd_uniform && uldc.b.kind == OperandKind::kConst);
  CHECK_EQ(int{uldc.b.index}, 36);
  CHECK_EQ(uldc.b.value, 0x160u);
}

}  // namespace

CHECK_MAIN
