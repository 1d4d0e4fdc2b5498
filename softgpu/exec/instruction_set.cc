#include "core/kernel.h"
#include "core/log.h"

namespace softgpu {

const char* instruction_set() {
  return SOFTGPU_INSTRUCTION_SET;
}

void log_from_executor(softgpu_log_t function) {
  log_function = function;
}

}  // namespace softgpu
