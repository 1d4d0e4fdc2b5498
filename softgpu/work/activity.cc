#include "work/activity.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "memory/pointers.h"

namespace softgpu {
namespace {

// Whether a run has done its work; if not, it is run again.
bool is_done(const Fault& fault) {
  return !fault.until;
}

CUpti_ActivityMemoryKind memory_kind(uint64_t address) {
  const auto known = pointers().find(address);
  if (!known) return CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  return known->is_host() ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
}

bool between_devices(const CopyOperation& copy) {
  const auto dst = pointers().find(copy.dst), src = pointers().find(copy.src);
  return dst && src && dst->device != src->device;
}

CUpti_ActivityKernel10 record_of(const KernelOperation& operation) {
  const Launch& launch = *operation.launch;
  CUpti_ActivityKernel10 record = profiling::kernel_record(launch.kernel->name);
  record.registersPerThread = static_cast<uint16_t>(launch.kernel->register_count);
  record.gridX = static_cast<int32_t>(launch.grid.x);
  record.gridY = static_cast<int32_t>(launch.grid.y);
  record.gridZ = static_cast<int32_t>(launch.grid.z);
  record.blockX = static_cast<int32_t>(launch.block.x);
  record.blockY = static_cast<int32_t>(launch.block.y);
  record.blockZ = static_cast<int32_t>(launch.block.z);
  record.staticSharedMemory = static_cast<int32_t>(launch.kernel->static_shared_bytes);
  record.dynamicSharedMemory = static_cast<int32_t>(launch.dynamic_shared_bytes);
  record.localMemoryPerThread = launch.kernel->local_bytes;
  record.launchType = launch.cooperative ? CUPTI_ACTIVITY_LAUNCH_TYPE_COOPERATIVE_SINGLE_DEVICE
                                         : CUPTI_ACTIVITY_LAUNCH_TYPE_REGULAR;
  return record;
}

// A library's work has no grid: it is one block of one thread.
CUpti_ActivityKernel10 library_record(std::string_view name) {
  CUpti_ActivityKernel10 record = profiling::kernel_record(name);
  record.gridX = record.gridY = record.gridZ = 1;
  record.blockX = record.blockY = record.blockZ = 1;
  return record;
}

CUpti_ActivityKernel10 record_of(const LibraryOperation& operation) {
  return library_record(operation.name);
}

CUpti_ActivityMemcpy6 record_of(const CopyOperation& copy) {
  const CopyShape& s = copy.shape;
  return profiling::copy_record(memory_kind(copy.dst), memory_kind(copy.src),
                                s.width * s.rows * s.slices, between_devices(copy));
}

CUpti_ActivityMemset4 record_of(const FillOperation& fill) {
  const FillShape& s = fill.shape;
  return profiling::fill_record(memory_kind(fill.dst), s.value, s.width * s.element_bytes * s.rows);
}

template <class Record>
Run with_record(Record record, const Stream& stream, uint32_t call, Run run) {
  profiling::place(&record, static_cast<uint32_t>(stream.device), stream.id, call);
  return [record, run = std::move(run)]() mutable -> Fault {
    record.start = profiling::now();
    Fault fault = run();
    if (!is_done(fault)) return fault;
    record.end = std::max(profiling::now(), record.start + 1);
    profiling::buffers().put(record);
    return fault;
  };
}

struct Recorder {
  const Stream& stream;
  Run run;

  template <class Kind>
  Run made(uint32_t kinds, CUpti_CallbackId cbid, const Kind& operation) {
    if (!profiling::wanted(kinds)) return std::move(run);
    const profiling::RuntimeCall own(cbid);
    return with_record(record_of(operation), stream, profiling::current_call(), std::move(run));
  }

  Run operator()(const KernelOperation& kernel) {
    return made(profiling::kKernels, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, kernel);
  }
  Run operator()(const LibraryOperation& call) {
    if (!call.computes) return std::move(run);
    return made(profiling::kKernels, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, call);
  }
  Run operator()(const CopyOperation& copy) {
    return made(profiling::kCopies, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020, copy);
  }
  Run operator()(const FillOperation& fill) {
    return made(profiling::kFills, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020, fill);
  }
  template <class Other>
  Run operator()(const Other&) {
    return std::move(run);
  }
};

}  // namespace

void record_pause(const char* name, const Stream& stream, Work* begin, Work* end) {
  if (!profiling::wanted(profiling::kKernels)) return;
  const profiling::RuntimeCall own(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
  auto record = std::make_shared<CUpti_ActivityKernel10>(library_record(name));
  profiling::place(record.get(), static_cast<uint32_t>(stream.device), stream.id,
                   profiling::current_call());
  begin->run = [record, run = std::move(begin->run)]() mutable {
    record->start = profiling::now();
    return run();
  };
  end->run = [record]() -> Fault {
    record->end = std::max(profiling::now(), record->start + 1);
    profiling::buffers().put(*record);
    return {};
  };
}

Run recorded(const Operation& operation, const Stream& stream, Run run) {
  return std::visit(Recorder{stream, std::move(run)}, operation);
}

}  // namespace softgpu
