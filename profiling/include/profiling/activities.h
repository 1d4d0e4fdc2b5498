// What CUPTI's activity API knows of a process: which kinds of records are wanted, the calls of its
// threads, what devices have done, external ids. The soft GPU and the proxy's client have one each.
//
// While nothing is wanted, each look at that is one relaxed load. Threads: any.
#ifndef PROFILING_ACTIVITIES_H_
#define PROFILING_ACTIVITIES_H_

#include <cupti_activity.h>
#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "profiling/buffers.h"

namespace profiling {

enum Kinds : uint32_t {
  kKernels = 1,
  kCopies = 2,
  kFills = 4,
  kRuntimeCalls = 8,
  kDriverCalls = 16,
  kExternalIds = 32,
  kDeviceWork = kKernels | kCopies | kFills,
};

extern std::atomic<uint32_t> wanted_kinds;

inline bool wanted(uint32_t kinds) {
  return wanted_kinds.load(std::memory_order_relaxed) & kinds;
}

// CUPTI's functions of the same names.
CUptiResult enable(CUpti_ActivityKind kind);
CUptiResult disable(CUpti_ActivityKind kind);
CUptiResult register_callbacks(Buffers::Request request, Buffers::Complete complete);
CUptiResult register_timestamp(CUpti_TimestampCallbackFunc now);
CUptiResult push_external_id(CUpti_ExternalCorrelationKind kind, uint64_t id);
CUptiResult pop_external_id(CUpti_ExternalCorrelationKind kind, uint64_t* last);
CUptiResult flush_all();
CUptiResult enable_call(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, bool enabled);
const char* result_name(CUptiResult result);

Buffers& buffers();

// The time of records: of the program's clock if it has registered one, else the host's real time.
uint64_t now();
// The call of the runtime or driver that this thread is in, by its correlation id; 0: in none.
uint32_t current_call();

// A call of the program's, from construction to destruction. One inside of another is none.
class Call {
 public:
  Call(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
    if (wanted_kinds.load(std::memory_order_relaxed)) [[unlikely]]
      begin(domain, cbid);
  }
  ~Call() {
    if (correlation_) [[unlikely]]
      end();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  void begin(CUpti_CallbackDomain domain, CUpti_CallbackId cbid);
  void end();

  uint32_t correlation_ = 0;
  CUpti_CallbackDomain domain_ = CUPTI_CB_DOMAIN_INVALID;
  CUpti_CallbackId cbid_ = 0;
  uint64_t start_ = 0;
};

struct RuntimeCall : Call {
  explicit RuntimeCall(CUpti_CallbackId cbid) : Call(CUPTI_CB_DOMAIN_RUNTIME_API, cbid) {}
};
struct DriverCall : Call {
  explicit DriverCall(CUpti_CallbackId cbid) : Call(CUPTI_CB_DOMAIN_DRIVER_API, cbid) {}
};

// Records of what devices do, without what is the same in all of them. `name` is kept for ever.
CUpti_ActivityKernel10 kernel_record(std::string_view name);
CUpti_ActivityMemcpy6 copy_record(CUpti_ActivityMemoryKind dst, CUpti_ActivityMemoryKind src,
                                  uint64_t bytes, bool peers);
CUpti_ActivityMemset4 fill_record(CUpti_ActivityMemoryKind memory, uint32_t value, uint64_t bytes);

// Where something has happened, and by which call.
template <class Record>
void place(Record* record, uint32_t device, uint64_t stream, uint32_t call) {
  record->deviceId = device;
  record->contextId = device + 1;
  record->streamId = static_cast<uint32_t>(stream);
  record->correlationId = call;
}

}  // namespace profiling

#endif  // PROFILING_ACTIVITIES_H_
