#include "work/launch.h"

#include <algorithm>
#include <cstring>

#include "core/config.h"
#include "device/device.h"
#include "device/fault_injection.h"
#include "device/limits.h"
#include "memory/pointers.h"
#include "work/perform.h"
#include "work/profile.h"
#include "work/twice.h"

namespace softgpu {

cudaError_t check_launch(const Launch& launch) {
  const Kernel& kernel = *launch.kernel;
  const Dim3 &grid = launch.grid, &block = launch.block;
  if (!grid.count() || !block.count() || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  if (block.x > 1024 || block.y > 1024 || block.z > 64 || block.count() > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  const uint64_t registers = round_up(kernel.register_count, 8) * round_up(block.count(), 32);
  if (block.count() > kernel.max_threads || registers > kRegistersPerSm ||
      kernel.local_bytes > kMaxLocalBytes) {
    return cudaErrorLaunchOutOfResources;
  }
  if (launch.dynamic_shared_bytes > kernel.max_dynamic_shared_bytes) return cudaErrorInvalidValue;
  const uint64_t shared = uint64_t{kernel.static_shared_bytes} + launch.dynamic_shared_bytes;
  if (shared > kSharedPerBlockOptin) return cudaErrorInvalidValue;
  if (launch.cooperative) {
    const auto threads = static_cast<uint32_t>(block.count());
    const int resident = blocks_per_sm(kernel, threads, launch.dynamic_shared_bytes);
    if (grid.count() > static_cast<uint64_t>(resident) * config().sms) {
      return cudaErrorCooperativeLaunchTooLarge;
    }
  }
  return cudaSuccess;
}

namespace {

constexpr uint64_t kMostStack = 512 * 1024;  // of a thread: the hardware's limit of local memory

Fault run_counted(const Launch& launch, const Placement& placement, Device& owner,
                  Journal* journal) {
  LaunchStats stats;
  const uint64_t begin = host_time_ns();
  Fault fault = run_kernel(launch, sms_for(placement), pointers().space(), &stats, journal);
  const uint64_t time_ns = host_time_ns() - begin;
  owner.count_kernel(stats.warp_instructions, time_ns);
  profile_launch(launch, stats.warp_instructions, time_ns);
  return fault;
}

}  // namespace

cudaError_t enqueue_launch(const std::shared_ptr<Stream>& stream, const Function& function,
                           Launch launch) {
  if (const cudaError_t bad = check_launch(launch); bad != cudaSuccess) return bad;
  launch.stack_bytes = static_cast<uint32_t>(std::min(limits().stack_bytes.load(), kMostStack));
  launch.device = stream->device;
  launch.heap = device_heap;
  return perform(stream, KernelOperation{std::make_shared<const Launch>(std::move(launch)),
                                         &function, stream->device, stream->priority});
}

Work launch_work(const KernelOperation& operation) {
  Work work;
  const auto& shared = operation.launch;
  Device& owner = device(operation.device);
  const auto execute = [shared, &owner](LaunchTicket* ticket, Journal* journal) {
    return run_launch(owner.index(), shared->kernel->name, shared->params, ticket,
                      [&] { return run_counted(*shared, ticket->placement, owner, journal); });
  };
  if (const softgpu_twice* const asked = asked_twice()) {
    work.run = [twice = *asked, shared, execute, ticket = new_ticket()]() mutable {
      return execute_twice(twice, *shared, &ticket, execute);
    };
  } else {
    work.run = [execute, ticket = new_ticket()]() mutable { return execute(&ticket, nullptr); };
  }
  return work;
}

void pack_arguments(const Kernel& kernel, void* const* arguments, std::vector<uint8_t>* packed) {
  packed->assign(kernel.param_bytes, 0);
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    const KernelParam& p = kernel.params[i];
    if (size_t{p.offset} + p.size > packed->size()) continue;
    std::memcpy(packed->data() + p.offset, arguments[i], p.size);
  }
}

int blocks_per_sm(const Kernel& kernel, uint32_t block_threads, uint64_t dynamic_shared_bytes) {
  const uint32_t threads = static_cast<uint32_t>(round_up(std::max(block_threads, 1u), 32));
  if (threads > 1024 || block_threads > kernel.max_threads) return 0;
  uint64_t blocks = std::min(kBlocksPerSm, kThreadsPerSm / threads);
  const uint64_t registers = round_up(std::max(kernel.register_count, 1u), 8) * threads;
  blocks = std::min<uint64_t>(blocks, kRegistersPerSm / registers);
  const uint64_t shared = round_up(kernel.static_shared_bytes + dynamic_shared_bytes, 256);
  if (shared > kSharedPerBlockOptin) return 0;
  if (shared) blocks = std::min<uint64_t>(blocks, kSharedPerSm / shared);
  return static_cast<int>(blocks);
}

}  // namespace softgpu
