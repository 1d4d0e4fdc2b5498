#include "api/stub.h"

#include <cstring>

#include "api/support.h"
#include "core/log.h"
#include "softgpu.h"

// The begin and end of the section that the stubs' names are in; by the linker.
extern "C" const char* const __start_softgpu_stubs[];
extern "C" const char* const __stop_softgpu_stubs[];

namespace softgpu::api {

void report_stub(const char* name, std::atomic<bool>& said) {
  if (said.exchange(true)) return;
  log_line(SOFTGPU_LOG_WARNING, "[%s] is not supported", name);
}

}  // namespace softgpu::api

SOFTGPU_API int softgpu_is_stub(const char* name) {
  for (auto stub = __start_softgpu_stubs; stub != __stop_softgpu_stubs; ++stub)
    if (std::strcmp(*stub, name) == 0) return 1;
  return 0;
}
