#include "client/device/profiled.h"

#include <algorithm>
#include <string_view>

namespace pyft::client {
namespace {

// A library's call that makes the device work, as far as its name says.
bool is_library_work(std::string_view name) {
  constexpr std::string_view kLibraries[] = {"cublas",   "cudnn",    "cufft", "curand",
                                             "cusolver", "cusparse", "nccl"};
  constexpr std::string_view kOthers[] = {"Create", "Destroy", "Set",  "Get",
                                          "Init",   "Plan",    "Comm", "Start"};
  const auto begins = [&](std::string_view library) { return name.starts_with(library); };
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  return std::ranges::any_of(kLibraries, begins) && !std::ranges::any_of(kOthers, has);
}

// What the device does for an entry of this call, 0: nothing.
uint32_t work_of(Call call) {
  switch (call) {
    case Call::pyftWriteDevice:
    case Call::pyftReadDevice:
    case Call::cudaMemcpyAsync:
    case Call::cudaMemcpy2DAsync:
      return profiling::kCopies;
    case Call::cudaMemsetAsync:
    case Call::cudaMemset2DAsync:
      return profiling::kFills;
    case Call::cuLaunchKernel:
      return profiling::kKernels;
    case Call::cudaGraphLaunch:
      return profiling::kDeviceWork;
    default:
      break;
  }
  const bool library = is_library_work(call_name(static_cast<uint16_t>(call)));
  return library ? uint32_t{profiling::kKernels} : 0;
}

}  // namespace

void ProfiledEntries::note(uint64_t seq, uint32_t call, uint32_t incarnation, bool certain) {
  const std::lock_guard lock(mutex_);
  if (entries_.empty()) incarnation_ = incarnation;
  if (!entries_.empty() && entries_.back().seq > seq) sorted_ = false;  // of another thread
  const auto kinds = static_cast<uint16_t>(profiling::wanted_kinds.load());
  entries_.push_back({seq, call, kinds, !certain});
}

bool ProfiledEntries::any() {
  const std::lock_guard lock(mutex_);
  return !entries_.empty();
}

std::optional<ProfiledEntries::Entry> ProfiledEntries::see(uint64_t seq) {
  const std::lock_guard lock(mutex_);
  if (!sorted_) std::ranges::sort(entries_, {}, &Entry::seq);
  sorted_ = true;
  const auto found = std::ranges::lower_bound(entries_, seq, {}, &Entry::seq);
  if (found == entries_.end() || found->seq != seq) return std::nullopt;
  found->seen = true;
  return *found;
}

uint64_t ProfiledEntries::end(uint32_t incarnation) {
  const std::lock_guard lock(mutex_);
  const auto unseen = std::ranges::count(entries_, false, &Entry::seen);
  const bool replaced = !entries_.empty() && incarnation != incarnation_;
  entries_ = {};
  sorted_ = true;
  return replaced ? static_cast<uint64_t>(unseen) : 0;
}

void ProfiledEntry::begin(ProfiledEntries& entries, Call call, uint16_t flags) {
  if (flags & ring::kStreamCaptured || !profiling::wanted(work_of(call))) return;
  entries_ = &entries;
  // Collectives of a group are executed by the entry that ends it.
  certain_ = !std::string_view(call_name(static_cast<uint16_t>(call))).starts_with("nccl");
  if (!profiling::current_call()) launch_.emplace(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
}

}  // namespace pyft::client
