#include "api/stub.h"

#include <cstdio>

namespace softgpu::api {

void report_stub(const char* name, std::atomic<bool>& said) {
  if (said.exchange(true)) return;
  std::fprintf(stderr, "softgpu: [%s] is not supported\n", name);
}

}  // namespace softgpu::api
