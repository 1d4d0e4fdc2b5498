// Which instruction forms a process executes: SOFTGPU_FORMS=<file> appends "form variant" lines to
// the file when the process ends. A form is a line of the instruction table with its operand kinds
// ("IADD3_RRR"), a variant the mnemonic with its modifiers as printed ("IADD3.X").
//
// Counting replaces the handlers of a program, so it costs nothing where it is off.
#ifndef SOFTGPU_EXEC_COUNT_FORMS_H_
#define SOFTGPU_EXEC_COUNT_FORMS_H_

#include <atomic>
#include <vector>

#include "decode/instr.h"
#include "exec/program.h"

namespace softgpu::exec {

// The handlers that counting has replaced, by index in Program::code.
struct FormCounts {
  struct Entry {
    Handler handler;
    std::atomic<bool>* executed;
  };
  std::vector<Entry> entries;
};

bool counts_forms();
// `program` has been lowered from `instrs`.
void count_forms(const std::vector<Instr>& instrs, Program* program);

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_COUNT_FORMS_H_
