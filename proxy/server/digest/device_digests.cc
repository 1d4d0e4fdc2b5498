#include "server/digest/device_digests.h"

#include <sys/mman.h>

#include <algorithm>

#include "checkpoint/bytes_passed.h"

namespace pyft::server {

namespace {

constexpr size_t kSlices = 32768;  // of a launch: a MiB of memory to lock
constexpr size_t kMemoryBytes = kSlices * (sizeof(checkpoint::Slice) + sizeof(checkpoint::Number));

uint64_t tiles_of(uint64_t bytes) {
  return (bytes + checkpoint::kTileBytes - 1) / checkpoint::kTileBytes;
}

std::string refused(const char* call, int code) {
  return std::string("[") + call + "] fails with code [" + std::to_string(code) + "]";
}

int architecture_of(const backend::Table& table, int ordinal) {
  int major = 0, minor = 0;
  table.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal);
  table.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal);
  return 10 * major + minor;
}

bool is_complete(const backend::Table& table) {
  return table.cuDeviceGetAttribute && table.cuModuleLoadData && table.cuModuleUnload &&
         table.cuModuleGetFunction && table.cuLaunchKernel && table.cuStreamCreateWithPriority &&
         table.cuStreamDestroy_v2 && table.cuStreamSynchronize && table.cuMemHostRegister_v2 &&
         table.cuMemHostUnregister && table.cuMemHostGetDevicePointer_v2;
}

}  // namespace

std::unique_ptr<DeviceDigests> DeviceDigests::make(const backend::Table& table, int ordinal,
                                                   uint64_t seed,
                                                   std::span<const KernelImage> images,
                                                   std::string* why) {
  why->clear();
  if (images.empty())
    *why = "there was no NVRTC when pyft was built";
  else if (!is_complete(table))
    *why = "the driver lacks a function";
  if (!why->empty()) return nullptr;
  std::unique_ptr<DeviceDigests> made(new DeviceDigests(table, seed));
  *why = made->load(ordinal, images);
  if (why->empty()) *why = made->share_memory();
  return why->empty() ? std::move(made) : nullptr;
}

DeviceDigests::DeviceDigests(const backend::Table& table, uint64_t seed)
    : table_(table), key_(seed), argument_{} {
  set_seed(seed);
}

void DeviceDigests::set_seed(uint64_t seed) {
  key_ = checkpoint::NhKey(seed);
  std::ranges::copy(key_.units, argument_.key);
  std::copy_n(key_.powers.begin(), checkpoint::kPasses, argument_.power);
  for (unsigned column = 0; column < checkpoint::kColumns; ++column)
    argument_.column_power[column] = key_.powers[column * checkpoint::kPasses + 1];
  argument_.tile_power = key_.tile_power();
}

DeviceDigests::~DeviceDigests() {
  if (slices_) table_.cuMemHostUnregister(memory_);
  if (memory_) munmap(memory_, kMemoryBytes);
  if (stream_) table_.cuStreamDestroy_v2(stream_);
  if (module_) table_.cuModuleUnload(module_);
}

std::string DeviceDigests::load(int ordinal, std::span<const KernelImage> images) {
  const int architecture = architecture_of(table_, ordinal);
  const KernelImage* const image = image_for(architecture, images);
  if (!image)
    return "there is no kernel for compute capability [" + std::to_string(architecture) + "]";
  if (const int code = table_.cuModuleLoadData(&module_, image->bytes))
    return refused("cuModuleLoadData", code);
  if (const int code = table_.cuModuleGetFunction(&kernel_, module_, PYFT_DIGEST_KERNEL))
    return refused("cuModuleGetFunction", code);
  if (const int code = table_.cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, 0))
    return refused("cuStreamCreateWithPriority", code);
  return {};
}

std::string DeviceDigests::share_memory() {
  void* const memory =
      mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return "there is no memory for its table";
  memory_ = memory;
  if (const int code = table_.cuMemHostRegister_v2(
          memory_, kMemoryBytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP))
    return refused("cuMemHostRegister_v2", code);
  slices_ = static_cast<checkpoint::Slice*>(memory_);
  sums_ = reinterpret_cast<const checkpoint::Number*>(slices_ + kSlices);
  CUdeviceptr there = 0;
  if (const int code = table_.cuMemHostGetDevicePointer_v2(&there, memory_, 0))
    return refused("cuMemHostGetDevicePointer_v2", code);
  argument_.slices = reinterpret_cast<const checkpoint::Slice*>(there);
  argument_.sums =
      reinterpret_cast<checkpoint::Number*>(there + kSlices * sizeof(checkpoint::Slice));
  return {};
}

int DeviceDigests::compute(std::span<const checkpoint::MemoryRange> ranges, ring::Digest* out) {
  uint64_t all = 0;
  for (const checkpoint::MemoryRange& range : ranges) all += tiles_of(range.bytes);
  const uint64_t most = checkpoint::slice_tiles(all);
  of_ranges_.assign(ranges.size(), checkpoint::NhSum(key_));
  work_.clear();
  for (size_t i = 0; i < ranges.size(); ++i)
    for (uint64_t at = 0; at < ranges[i].bytes; at += most * checkpoint::kTileBytes) {
      const uint64_t bytes = std::min(most * checkpoint::kTileBytes, ranges[i].bytes - at);
      slices_[work_.size()] = {ranges[i].address + at, bytes};
      work_.push_back({i, tiles_of(bytes)});
      if (work_.size() < kSlices) continue;
      if (const int code = launch()) return code;
    }
  if (const int code = launch()) return code;
  for (size_t i = 0; i < ranges.size(); ++i) out[i] = of_ranges_[i].digest(ranges[i].bytes);
  return 0;
}

int DeviceDigests::launch() {
  if (work_.empty()) return 0;
  argument_.count = static_cast<unsigned>(work_.size());
  const unsigned blocks =
      (argument_.count + checkpoint::kWarpsPerBlock - 1) / checkpoint::kWarpsPerBlock;
  void* arguments[] = {&argument_};
  int code = check(table_.cuLaunchKernel(kernel_, blocks, 1, 1, 32 * checkpoint::kWarpsPerBlock, 1,
                                         1, 0, stream_, arguments, nullptr),
                   "cuLaunchKernel");
  if (!code) code = check(table_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  if (code) return code;
  checkpoint::pass_turn();
  for (size_t i = 0; i < work_.size(); ++i)
    of_ranges_[work_[i].range].add(sums_[i], work_[i].tiles);
  work_.clear();
  return 0;
}

int DeviceDigests::check(int code, const char* call) {
  if (code) failed_ = call;
  return code;
}

}  // namespace pyft::server
