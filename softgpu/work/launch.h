// Launch checks that the driver makes at the call, occupancy, and putting a launch on a stream.
#ifndef SOFTGPU_WORK_LAUNCH_H_
#define SOFTGPU_WORK_LAUNCH_H_

#include <driver_types.h>

#include <memory>

#include "core/kernel.h"
#include "stream/operation.h"
#include "stream/stream.h"

namespace softgpu {

inline constexpr uint32_t kSharedPerBlock = 48 * 1024;
inline constexpr uint32_t kSharedPerBlockOptin = 64 * 1024;
inline constexpr uint32_t kSharedPerSm = 64 * 1024;
inline constexpr uint32_t kRegistersPerSm = 64 * 1024;
inline constexpr uint32_t kThreadsPerSm = 1024;
inline constexpr uint32_t kBlocksPerSm = 16;
inline constexpr uint32_t kMaxLocalBytes = 512 * 1024;  // per thread

cudaError_t check_launch(const Launch& launch);
cudaError_t enqueue_launch(const std::shared_ptr<Stream>& stream, const Function& function,
                           Launch launch);
Work launch_work(const KernelOperation& operation);
// Copies the arguments into the launch's parameter area by the kernel's layout.
void pack_arguments(const Kernel& kernel, void* const* arguments, std::vector<uint8_t>* packed);
int blocks_per_sm(const Kernel& kernel, uint32_t block_threads, uint64_t dynamic_shared_bytes);

}  // namespace softgpu

#endif  // SOFTGPU_WORK_LAUNCH_H_
