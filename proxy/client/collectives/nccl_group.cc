// Groups: the calling thread's operations are kept until its outermost group ends, then appended
// without anything of another thread's between them, one group per device.
#include <algorithm>
#include <utility>
#include <vector>

#include "client/collectives/nccl.h"

namespace pyft::client {
namespace {

struct Group {
  int depth = 0;
  std::vector<NcclOperation> operations;
};
thread_local Group group;

// One for all devices: it is held for appends only, which wait for nothing but log space.
std::mutex append_mutex;

cudaError_t append(const NcclOperation& operation) {
  Device& device = operation.communicator->device;
  const cudaError_t error =
      device.send(static_cast<uint16_t>(operation.call), bytes_of(operation.body));
  device.touch(*operation.stream);
  return error;
}

cudaError_t append_group(Device& device, const std::vector<NcclOperation>& operations) {
  cudaError_t error = device.send(Call::ncclGroupStart, cmd::ncclGroupStart{});
  for (const NcclOperation& operation : operations) {
    if (error != cudaSuccess) return error;
    if (&operation.communicator->device == &device) error = append(operation);
  }
  return error != cudaSuccess ? error : device.send(Call::ncclGroupEnd, cmd::ncclGroupEnd{});
}

ncclResult_t flush(const std::vector<NcclOperation>& operations) {
  std::vector<Device*> devices;
  for (const NcclOperation& operation : operations) {
    Device* device = &operation.communicator->device;
    if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
  }
  const std::scoped_lock lock(append_mutex);
  for (Device* device : devices) {
    const cudaError_t error = append_group(*device, operations);
    if (error != cudaSuccess) return nccl_result(error);
  }
  return ncclSuccess;
}

}  // namespace

ncclResult_t submit(const NcclOperation& operation) {
  if (group.depth) {
    group.operations.push_back(operation);
    return ncclSuccess;
  }
  const std::scoped_lock lock(append_mutex);
  return nccl_result(append(operation));
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API ncclResult_t ncclGroupStart() {
  enter(Api::ncclGroupStart);
  ++group.depth;
  return ncclSuccess;
}

PYFT_API ncclResult_t ncclGroupEnd() {
  enter(Api::ncclGroupEnd);
  if (!group.depth) return refuse_nccl(__func__, ncclInvalidUsage, "without ncclGroupStart");
  if (--group.depth || group.operations.empty()) return ncclSuccess;
  return flush(std::exchange(group.operations, {}));
}
