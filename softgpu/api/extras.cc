// softgpu.h.
#include "softgpu.h"

#include <map>
#include <mutex>

#include "api/support.h"
#include "graph/capture.h"
#include "stream/operation.h"
#include "work/activity.h"
#include "work/perform.h"

namespace api = softgpu::api;

namespace {

// Streams that stand still, by the data of their softgpu_suspend.
struct Suspended {
  std::mutex mutex;
  std::map<void*, std::shared_ptr<softgpu::EventState>> until;
};

// Never destroyed: threads of the program may resume streams while it exits.
Suspended& suspended() {
  static auto* const all = std::make_unique<Suspended>().release();
  return *all;
}

}  // namespace

SOFTGPU_API int softgpu_publish(void* stream, void (*function)(void*), void* data) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return api::driver_result(
      api::with_stream(stream, [&](const std::shared_ptr<softgpu::Stream>& s) {
        const auto run = [function, data]() -> softgpu::Fault {
          function(data);
          return {};
        };
        softgpu::Scheduler& scheduler = softgpu::device(s->device).scheduler();
        if (!softgpu::any_capture() && scheduler.run_if_idle(*s, run)) return cudaSuccess;
        return softgpu::perform(s, softgpu::LibraryOperation{"publish", run});
      }));
}

SOFTGPU_API int softgpu_suspend(void* stream, void (*function)(void*), void* data) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return api::driver_result(
      api::with_stream(stream, [&](const std::shared_ptr<softgpu::Stream>& s) {
        const cudaError_t bad = softgpu::refuse_in_capture(*s);
        if (bad != cudaSuccess) return bad;
        const auto resumed = std::make_shared<softgpu::EventState>();
        softgpu::Work reached, rest;
        reached.run = [function, data, resumed]() -> softgpu::Fault {
          {
            const std::scoped_lock lock(suspended().mutex);
            suspended().until[data] = resumed;
          }
          function(data);
          return {};
        };
        rest.after = resumed;
        softgpu::record_pause("nccl", *s, &reached, &rest);
        softgpu::Scheduler& scheduler = softgpu::device(s->device).scheduler();
        scheduler.submit(s, std::move(reached));
        scheduler.submit(s, std::move(rest));
        return cudaSuccess;
      }));
}

SOFTGPU_API void softgpu_resume(void* data) {
  std::shared_ptr<softgpu::EventState> resumed;
  {
    const std::scoped_lock lock(suspended().mutex);
    const auto found = suspended().until.find(data);
    if (found == suspended().until.end()) return;
    resumed = std::move(found->second);
    suspended().until.erase(found);
  }
  softgpu::Scheduler::complete(*resumed);
}

SOFTGPU_API int softgpu_work(int index) {
  if (api::usable() != cudaSuccess || index < 0 || index >= softgpu::device_count()) return 0;
  return softgpu::device(index).scheduler().work() ? 1 : 0;
}

SOFTGPU_API unsigned long long softgpu_warp_instructions(int index) {
  if (api::usable() != cudaSuccess || index < 0 || index >= softgpu::device_count()) return 0;
  return softgpu::device(index).warp_instructions();
}

SOFTGPU_API unsigned long long softgpu_kernel_time_ns(int index) {
  if (api::usable() != cudaSuccess || index < 0 || index >= softgpu::device_count()) return 0;
  return softgpu::device(index).kernel_time_ns();
}
