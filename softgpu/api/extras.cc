// softgpu.h.
#include "softgpu.h"

#include "api/support.h"
#include "core/fault_injection.h"

namespace api = softgpu::api;

SOFTGPU_API int softgpu_fail(int index, int cuda_error) {
  const softgpu::FaultKind kind = softgpu::fault_kind(cuda_error);
  if (kind == softgpu::FaultKind::kNone || api::usable() != cudaSuccess) return 1;
  if (index < 0 || index >= softgpu::device_count()) return 1;
  softgpu::device(index).scheduler().fail_now(
      {kind, "fault [" + std::to_string(cuda_error) + "] was asked for"});
  return 0;
}

SOFTGPU_API unsigned long long softgpu_warp_instructions(int index) {
  if (api::usable() != cudaSuccess || index < 0 || index >= softgpu::device_count()) return 0;
  return softgpu::device(index).warp_instructions();
}
