#include "server/standby.h"

#include <cstdlib>

#include "server/device.h"

namespace pyft::server {

void Contexts::stand_by() {
  const char* const text = std::getenv("PYFT_STANDBY");
  if (!text || !*text) return;
  const int ordinal = std::atoi(text);
  if (!enter_context(table_, ordinal, &ready_).empty()) return;
  ready_ordinal_ = ordinal;
  cublasHandle_t blas = nullptr;  // loads the library's kernels
  if (table_.cublasCreate_v2 && table_.cublasCreate_v2(&blas) == CUBLAS_STATUS_SUCCESS)
    table_.cublasDestroy_v2(blas);
}

std::string Contexts::enter(int ordinal, CUcontext* context) {
  // A GPU that has failed since takes the contexts of all processes with it.
  constexpr int kNotReady = 600;
  const int state = ordinal == ready_ordinal_ ? table_.cuStreamQuery(nullptr) : -1;
  if (state == 0 || state == kNotReady) {
    *context = ready_;
    return {};
  }
  return enter_context(table_, ordinal, context);
}

}  // namespace pyft::server
