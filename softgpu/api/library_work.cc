#include "api/library_work.h"

#include "api/support.h"
#include "device/fault_injection.h"
#include "stream/operation.h"
#include "work/perform.h"

namespace softgpu::api {

cudaError_t enqueue_library(const char* library, int index, cudaStream_t stream,
                            std::function<Fault()> run) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
  const bool legacy = reinterpret_cast<uintptr_t>(stream) <= 1;
  const auto target = legacy ? device(index).legacy_stream() : find_stream(stream);
  if (!target) return cudaErrorInvalidResourceHandle;
  Device& d = device(target->device);
  if (const cudaError_t dead = d.sticky(); dead != cudaSuccess) return dead;
  LibraryOperation call{library,
                        [library, run = std::move(run), &d, ticket = new_ticket()]() mutable {
                          return run_launch(d.index(), library, {}, &ticket, run);
                        },
                        true};
  return perform(target, std::move(call));
}

}  // namespace softgpu::api
