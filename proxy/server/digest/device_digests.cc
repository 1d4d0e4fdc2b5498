#include "server/digest/device_digests.h"

#include <algorithm>
#include <utility>

#include "checkpoint/bytes_passed.h"
#include "pyft/settings.h"

namespace pyft::server {

namespace {

constexpr size_t kSlices = 32768;  // of a launch: a MiB of memory to lock
constexpr size_t kSliceTableBytes = kSlices * sizeof(checkpoint::Slice);
constexpr size_t kMemoryBytes = kSliceTableBytes + kSlices * sizeof(checkpoint::Number);

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
  if (why->empty()) *why = made->try_out();
  if (!why->empty()) return nullptr;
  // It has to lie before the modules: there a server that stands by has no place for it yet.
  if (settings::standby() || !settings::device_staging().value_or(true)) return made;
  for (auto& staging : made->stagings_) {
    std::string none;  // the host hashes then
    staging = Staging::make(table, *made, &none);
  }
  return made;
}

DeviceDigests::DeviceDigests(const backend::Table& table, uint64_t seed)
    : table_(table), key_(seed), argument_{}, mapped_(table) {
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
  for (auto& staging : stagings_) staging.reset();
  if (stream_) table_.cuStreamDestroy_v2(stream_);
  if (module_) table_.cuModuleUnload(module_);
}

bool DeviceDigests::drop_stagings() {
  bool any = false;
  for (auto& staging : stagings_) any |= std::exchange(staging, nullptr) != nullptr;
  return any;
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
  if (std::string problem = mapped_.make(kMemoryBytes); !problem.empty()) return problem;
  slices_ = reinterpret_cast<checkpoint::Slice*>(mapped_.here());
  sums_ = reinterpret_cast<const checkpoint::Number*>(slices_ + kSlices);
  return {};
}

// Copies of snapshots are not hashed by the host again, which would find it out.
std::string DeviceDigests::try_out() {
  constexpr uint64_t kAt = kSliceTableBytes + kSliceTableBytes / 2, kBytes = 150'001;
  static_assert(kAt + kBytes <= kMemoryBytes);
  std::byte* const known = mapped_.here() + kAt;
  for (uint64_t i = 0, next = 1; i < kBytes; ++i)
    known[i] = static_cast<std::byte>((next = next * 6364136223846793005 + 1) >> 56);
  const checkpoint::MemoryRange range{mapped_.there() + kAt, kBytes};
  ring::Digest digest{};
  if (const int code = compute({&range, 1}, &digest)) return refused(failed_, code);
  checkpoint::NhSum sum(key_);
  for (uint64_t at = 0; at < kBytes; at += checkpoint::kTileBytes)
    sum.add(checkpoint::nh_tile(key_, known + at,
                                std::min<uint64_t>(checkpoint::kTileBytes, kBytes - at)),
            1);
  return digest == sum.digest(kBytes) ? "" : "its digest of known bytes is not theirs";
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
      if (const int code = launch_work()) return code;
    }
  if (const int code = launch_work()) return code;
  for (size_t i = 0; i < ranges.size(); ++i) out[i] = of_ranges_[i].digest(ranges[i].bytes);
  return 0;
}

int DeviceDigests::launch_work() {
  if (work_.empty()) return 0;
  int code = check(launch(mapped_.there(), mapped_.there() + kSliceTableBytes,
                          static_cast<unsigned>(work_.size()), stream_),
                   "cuLaunchKernel");
  if (!code) code = check(table_.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  if (code) return code;
  checkpoint::pass_turn();
  for (size_t i = 0; i < work_.size(); ++i)
    of_ranges_[work_[i].range].add(sums_[i], work_[i].tiles);
  work_.clear();
  return 0;
}

int DeviceDigests::launch(uint64_t slices, uint64_t sums, unsigned count, CUstream stream) const {
  checkpoint::KernelArgument argument = argument_;
  argument.slices = reinterpret_cast<const checkpoint::Slice*>(slices);
  argument.sums = reinterpret_cast<checkpoint::Number*>(sums);
  argument.count = count;
  const unsigned blocks = (count + checkpoint::kWarpsPerBlock - 1) / checkpoint::kWarpsPerBlock;
  void* arguments[] = {&argument};
  if (!count) return 0;
  return table_.cuLaunchKernel(kernel_, blocks, 1, 1, 32 * checkpoint::kWarpsPerBlock, 1, 1, 0,
                               stream, arguments, nullptr);
}

int DeviceDigests::check(int code, const char* call) {
  if (code) failed_ = call;
  return code;
}

}  // namespace pyft::server
