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

SOFTGPU_API int softgpu_publish(void* stream, void (*function)(void*), void* data) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return api::driver_result(
      api::with_stream(stream, [&](const std::shared_ptr<softgpu::Stream>& s) {
        softgpu::Work work;
        work.run = [function, data]() -> softgpu::Fault {
          function(data);
          return {};
        };
        softgpu::device(s->device).scheduler().submit(s, std::move(work));
        return cudaSuccess;
      }));
}

SOFTGPU_API int softgpu_work(int index) {
  if (api::usable() != cudaSuccess || index < 0 || index >= softgpu::device_count()) return 0;
  return softgpu::device(index).scheduler().work() ? 1 : 0;
}

SOFTGPU_API unsigned long long softgpu_warp_instructions(int index) {
  if (api::usable() != cudaSuccess || index < 0 || index >= softgpu::device_count()) return 0;
  return softgpu::device(index).warp_instructions();
}
