#include "profiling/activities.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "profiling/clock.h"

namespace profiling {

std::atomic<uint32_t> wanted_kinds{0};

namespace {

// Never destroyed: threads of devices may outlive static objects.
struct State {
  Buffers buffers;
  std::atomic<CUpti_TimestampCallbackFunc> timestamp{nullptr};
  std::atomic<uint32_t> next_correlation{1};
  std::mutex mutex;
  std::set<std::string, std::less<>> names;
  std::set<std::pair<int, CUpti_CallbackId>> left_out;  // calls, by domain
};

State& state() {
  static State* const all = std::make_unique<State>().release();
  return *all;
}

thread_local uint32_t open_call = 0;
thread_local std::array<std::vector<uint64_t>, CUPTI_EXTERNAL_CORRELATION_KIND_SIZE> external_ids;

uint32_t bit_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return kKernels;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return kCopies;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return kFills;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
      return kRuntimeCalls;
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return kDriverCalls;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      return kExternalIds;
    default:
      return 0;
  }
}

// Of which there is never anything to write down here, so that asking for it is no error.
bool never_happens(CUpti_ActivityKind kind) {
  return kind == CUPTI_ACTIVITY_KIND_OVERHEAD || kind == CUPTI_ACTIVITY_KIND_MEMCPY2;
}

bool left_out(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  const std::lock_guard lock(state().mutex);
  return state().left_out.contains({domain, cbid});
}

void put_external_ids(uint32_t correlation) {
  for (size_t kind = 0; kind < external_ids.size(); ++kind) {
    if (external_ids[kind].empty()) continue;
    CUpti_ActivityExternalCorrelation record{};
    record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.externalKind = static_cast<CUpti_ExternalCorrelationKind>(kind);
    record.externalId = external_ids[kind].back();
    record.correlationId = correlation;
    state().buffers.put(record);
  }
}

const char* kept_name(std::string_view name) {
  const std::lock_guard lock(state().mutex);
  auto found = state().names.find(name);
  if (found == state().names.end()) found = state().names.emplace(name).first;
  return found->c_str();
}

bool valid(CUpti_ExternalCorrelationKind kind) {
  return kind > CUPTI_EXTERNAL_CORRELATION_KIND_INVALID &&
         kind < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE;
}

}  // namespace

Buffers& buffers() {
  return state().buffers;
}

CUptiResult enable(CUpti_ActivityKind kind) {
  const uint32_t bit = bit_of(kind);
  if (!bit) return never_happens(kind) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
  if (!wanted_kinds.load()) remember_first_moment();
  wanted_kinds.fetch_or(bit);
  return CUPTI_SUCCESS;
}

CUptiResult disable(CUpti_ActivityKind kind) {
  const uint32_t bit = bit_of(kind);
  if (!bit) return never_happens(kind) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
  wanted_kinds.fetch_and(~bit);
  return CUPTI_SUCCESS;
}

CUptiResult register_callbacks(Buffers::Request request, Buffers::Complete complete) {
  if (!request || !complete) return CUPTI_ERROR_INVALID_PARAMETER;
  state().buffers.set_callbacks(request, complete);
  return CUPTI_SUCCESS;
}

CUptiResult register_timestamp(CUpti_TimestampCallbackFunc now) {
  if (!now) return CUPTI_ERROR_INVALID_PARAMETER;
  state().timestamp.store(now);
  return CUPTI_SUCCESS;
}

CUptiResult push_external_id(CUpti_ExternalCorrelationKind kind, uint64_t id) {
  if (!valid(kind)) return CUPTI_ERROR_INVALID_PARAMETER;
  external_ids[kind].push_back(id);
  return CUPTI_SUCCESS;
}

CUptiResult pop_external_id(CUpti_ExternalCorrelationKind kind, uint64_t* last) {
  if (!valid(kind)) return CUPTI_ERROR_INVALID_PARAMETER;
  auto& ids = external_ids[kind];
  if (ids.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  if (last) *last = ids.back();
  ids.pop_back();
  return CUPTI_SUCCESS;
}

CUptiResult flush_all() {
  if (!state().buffers.has_callbacks()) return CUPTI_ERROR_INVALID_OPERATION;
  state().buffers.flush();
  return CUPTI_SUCCESS;
}

CUptiResult enable_call(CUpti_CallbackDomain domain, CUpti_CallbackId cbid, bool enabled) {
  const std::lock_guard lock(state().mutex);
  if (enabled) {
    state().left_out.erase({domain, cbid});
  } else {
    state().left_out.insert({domain, cbid});
  }
  return CUPTI_SUCCESS;
}

const char* result_name(CUptiResult result) {
  switch (result) {
    case CUPTI_SUCCESS:
      return "CUPTI_SUCCESS";
    case CUPTI_ERROR_INVALID_PARAMETER:
      return "CUPTI_ERROR_INVALID_PARAMETER";
    case CUPTI_ERROR_INVALID_OPERATION:
      return "CUPTI_ERROR_INVALID_OPERATION";
    case CUPTI_ERROR_MAX_LIMIT_REACHED:
      return "CUPTI_ERROR_MAX_LIMIT_REACHED";
    case CUPTI_ERROR_QUEUE_EMPTY:
      return "CUPTI_ERROR_QUEUE_EMPTY";
    case CUPTI_ERROR_INVALID_KIND:
      return "CUPTI_ERROR_INVALID_KIND";
    case CUPTI_ERROR_NOT_SUPPORTED:
      return "CUPTI_ERROR_NOT_SUPPORTED";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      return "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
    default:
      return "CUPTI_ERROR_UNKNOWN";
  }
}

uint64_t now() {
  const CUpti_TimestampCallbackFunc own = state().timestamp.load(std::memory_order_relaxed);
  return own ? own() : real_time();
}

uint32_t current_call() {
  return open_call;
}

void Call::begin(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
  if (open_call) return;
  correlation_ = open_call = state().next_correlation.fetch_add(1, std::memory_order_relaxed);
  domain_ = domain;
  cbid_ = cbid;
  if (wanted(kExternalIds)) put_external_ids(correlation_);
  start_ = now();
}

void Call::end() {
  open_call = 0;
  const bool runtime = domain_ == CUPTI_CB_DOMAIN_RUNTIME_API;
  if (!wanted(runtime ? kRuntimeCalls : kDriverCalls) || left_out(domain_, cbid_)) return;
  CUpti_ActivityAPI record{};
  record.kind = runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
  record.cbid = cbid_;
  record.start = start_;
  record.end = now();
  record.processId = static_cast<uint32_t>(getpid());
  record.threadId = static_cast<uint32_t>(pthread_self());
  record.correlationId = correlation_;
  state().buffers.put(record);
}

CUpti_ActivityKernel10 kernel_record(std::string_view name) {
  CUpti_ActivityKernel10 record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = kept_name(name);
  record.completed = CUPTI_TIMESTAMP_UNKNOWN;
  record.queued = record.submitted = CUPTI_TIMESTAMP_UNKNOWN;
  return record;
}

CUpti_ActivityMemcpy6 copy_record(CUpti_ActivityMemoryKind dst, CUpti_ActivityMemoryKind src,
                                  uint64_t bytes, bool peers) {
  const bool to = dst == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  const bool from = src == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  CUpti_ActivityMemcpyKind kind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
  if (to && from) {
    kind = peers ? CUPTI_ACTIVITY_MEMCPY_KIND_PTOP : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
  } else if (to || from) {
    kind = to ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD : CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  }
  CUpti_ActivityMemcpy6 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  record.copyKind = static_cast<uint8_t>(kind);
  record.dstKind = static_cast<uint8_t>(dst);
  record.srcKind = static_cast<uint8_t>(src);
  record.bytes = bytes;
  record.copyCount = 1;
  return record;
}

CUpti_ActivityMemset4 fill_record(CUpti_ActivityMemoryKind memory, uint32_t value, uint64_t bytes) {
  CUpti_ActivityMemset4 record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  record.memoryKind = static_cast<uint16_t>(memory);
  record.value = value;
  record.bytes = bytes;
  return record;
}

}  // namespace profiling
