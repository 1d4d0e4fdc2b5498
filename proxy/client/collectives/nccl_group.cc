// Groups: the calling thread's operations are kept until its outermost group ends, then appended
// without anything of another thread's between them, one group per device. Communicators are made
// before that, all at once, and what operations may use is ended after it.
#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "client/collectives/nccl.h"

namespace pyft::client {
namespace {

struct Group {
  int depth = 0;
  std::vector<NcclWork> creations;
  std::vector<NcclOperation> operations;
  std::vector<std::pair<const Communicator*, NcclWork>> ends;
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

// The first work of each communicator.
std::vector<NcclWork> take_firsts(std::vector<std::pair<const Communicator*, NcclWork>>* left) {
  std::vector<NcclWork> firsts;
  std::vector<const Communicator*> seen;
  for (auto one = left->begin(); one != left->end();) {
    if (std::ranges::find(seen, one->first) != seen.end()) {
      ++one;
      continue;
    }
    seen.push_back(one->first);
    firsts.push_back(std::move(one->second));
    one = left->erase(one);
  }
  return firsts;
}

// All of it is done, whatever fails: what was made and what ends has been promised to the program.
ncclResult_t finish(Group ended) {
  ncclResult_t result = all_at_once(ended.creations);
  const auto note = [&result](ncclResult_t code) {
    if (result == ncclSuccess) result = code;
  };
  if (!ended.operations.empty()) note(flush(ended.operations));
  for (auto left = std::move(ended.ends); !left.empty();) note(all_at_once(take_firsts(&left)));
  return result;
}

}  // namespace

ncclResult_t create_or_keep(NcclWork creation) {
  if (!group.depth) return creation();
  group.creations.push_back(std::move(creation));
  return ncclSuccess;
}

ncclResult_t end_or_keep(const Communicator& of, NcclWork end) {
  if (!group.depth) return end();
  group.ends.emplace_back(&of, std::move(end));
  return ncclSuccess;
}

ncclResult_t all_at_once(const std::vector<NcclWork>& work) {
  if (work.size() == 1) return work.front()();
  struct Result {
    ncclResult_t code = ncclSuccess;
    std::string sentence;
  };
  std::vector<Result> results(work.size());
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < work.size(); ++i)
    threads.emplace_back([&one = work[i], &result = results[i]] {
      result.code = one();
      result.sentence = last_nccl_sentence();
    });
  threads.clear();
  const auto failed = std::ranges::find_if(results, [](const Result& r) { return r.code; });
  if (failed == results.end()) return ncclSuccess;
  set_last_nccl_sentence(failed->sentence);
  return failed->code;
}

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
  const Entered entered(Api::ncclGroupStart);
  ++group.depth;
  return ncclSuccess;
}

PYFT_API ncclResult_t ncclGroupEnd() {
  const Entered entered(Api::ncclGroupEnd);
  if (!group.depth) return refuse_nccl(__func__, ncclInvalidUsage, "without ncclGroupStart");
  if (--group.depth) return ncclSuccess;
  return finish(std::exchange(group, {}));
}
