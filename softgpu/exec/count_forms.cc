#include "exec/count_forms.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "core/settings.h"
#include "decode/decode.h"
#include "exec/warp.h"

namespace softgpu::exec {
namespace {

// "@!P0 IADD3.X R1, ..." -> "IADD3.X"
std::string variant(const Instr& instr) {
  std::string text = to_string(instr);
  if (text[0] == '@') text.erase(0, text.find(' ') + 1);
  return text.substr(0, text.find(' '));
}

class Registry {
 public:
  // Never destroyed: threads of the devices may still run kernels when the process ends.
  static Registry& get() {
    static auto* registry = new Registry;  // NOLINT: see above
    return *registry;
  }

  std::atomic<bool>* find(const Instr& instr) {
    const std::lock_guard lock(mutex_);
    return &executed_[std::string(form_name(instr.form)) + " " + variant(instr)];
  }

 private:
  Registry() {
    std::atexit([] { get().write(); });
  }

  // One write of the whole text, so that processes can share a file.
  void write() {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const auto& [name, executed] : executed_) {
      if (executed) text += name + "\n";
    }
    std::FILE* file = std::fopen(settings::forms(), "a");
    if (!file) return;
    std::setvbuf(file, nullptr, _IOFBF, text.size() + 1);
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }

  std::mutex mutex_;
  std::map<std::string, std::atomic<bool>> executed_;
};

const Inst* exec_counted(const Inst* in, Warp* warp, uint32_t exec) {
  const Program& program = *warp->block->state->program;
  const auto index = static_cast<size_t>(in - program.code.data());
  const FormCounts::Entry& entry = program.counts->entries[index];
  entry.executed->store(true, std::memory_order_relaxed);
  return entry.handler(in, warp, exec);
}

}  // namespace

bool counts_forms() {
  static const bool counts = *settings::forms();
  return counts;
}

void count_forms(const std::vector<Instr>& instrs, Program* program) {
  program->counts = std::make_shared<FormCounts>();
  for (size_t n = 0; n < instrs.size(); ++n) {
    Inst& inst = program->code[n];
    program->counts->entries.push_back({inst.fn, Registry::get().find(instrs[n])});
    inst.fn = exec_counted;
  }
}

}  // namespace softgpu::exec
