#include "api/stub.h"

#include "core/log.h"

namespace softgpu::api {

void report_stub(const char* name, std::atomic<bool>& said) {
  if (said.exchange(true)) return;
  log_line(SOFTGPU_LOG_WARNING, "[%s] is not supported", name);
}

}  // namespace softgpu::api
