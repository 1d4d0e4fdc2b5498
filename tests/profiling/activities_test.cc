// Activity records: buffers that the program lends, calls, external ids, what is not wanted.
#include "profiling/activities.h"

#include <cstddef>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include "check.h"
#include "profiling/subscriber.h"

namespace {

// PyTorch's profiler reads records by structs that are older than those written here.
#define SAME_PLACE(New, Old, field) static_assert(offsetof(New, field) == offsetof(Old, field))
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, registersPerThread);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, start);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, end);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, deviceId);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, streamId);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, gridX);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, dynamicSharedMemory);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, correlationId);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, name);
SAME_PLACE(CUpti_ActivityKernel10, CUpti_ActivityKernel4, queued);
SAME_PLACE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy, copyKind);
SAME_PLACE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy, bytes);
SAME_PLACE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy, end);
SAME_PLACE(CUpti_ActivityMemcpy6, CUpti_ActivityMemcpy, correlationId);
SAME_PLACE(CUpti_ActivityMemset4, CUpti_ActivityMemset, value);
SAME_PLACE(CUpti_ActivityMemset4, CUpti_ActivityMemset, end);
SAME_PLACE(CUpti_ActivityMemset4, CUpti_ActivityMemset, memoryKind);

constexpr auto kLaunch = CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000;

struct Program {
  size_t size = 1 << 16, most = 0;
  size_t lends = 100;  // buffers; then none
  std::deque<std::vector<uint64_t>> lent;
  std::vector<std::pair<uint8_t*, size_t>> back;
} program;

void request(uint8_t** buffer, size_t* size, size_t* most) {
  if (!program.lends) return;
  --program.lends;
  program.lent.emplace_back(program.size / 8);
  *buffer = reinterpret_cast<uint8_t*>(program.lent.back().data());
  *size = program.size;
  *most = program.most;
}

void complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  program.back.emplace_back(buffer, valid);
}

void begin(size_t size = 1 << 16, size_t most = 0, size_t lends = 100) {
  profiling::finalize();
  profiling::register_callbacks(request, complete);
  profiling::flush_all();
  profiling::buffers().take_dropped();
  program = {};
  program.size = size;
  program.most = most;
  program.lends = lends;
}

std::vector<const CUpti_Activity*> records() {
  profiling::flush_all();
  std::vector<const CUpti_Activity*> found;
  for (const auto& [buffer, valid] : program.back) {
    CUpti_Activity* at = nullptr;
    while (profiling::next_record(buffer, valid, &at) == CUPTI_SUCCESS) found.push_back(at);
  }
  return found;
}

template <class Record>
const Record& as(const CUpti_Activity* record) {
  return *reinterpret_cast<const Record*>(record);
}

TEST(nothing_is_written_that_is_not_wanted) {
  begin();
  {
    const profiling::RuntimeCall call(kLaunch);
  }
  CHECK_EQ(records().size(), 0u);
  CHECK_EQ(program.lent.size(), 0u);
  CHECK(profiling::enable(CUPTI_ACTIVITY_KIND_DRIVER) == CUPTI_SUCCESS);
  {
    const profiling::RuntimeCall call(kLaunch);
  }
  CHECK_EQ(records().size(), 0u);
}

TEST(a_call_is_recorded_and_one_inside_of_it_is_not) {
  begin();
  profiling::enable(CUPTI_ACTIVITY_KIND_RUNTIME);
  uint32_t outer = 0;
  {
    const profiling::RuntimeCall call(kLaunch);
    outer = profiling::current_call();
    const profiling::DriverCall inner(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    CHECK_EQ(profiling::current_call(), outer);
  }
  CHECK_EQ(profiling::current_call(), 0u);
  const auto found = records();
  CHECK_EQ(found.size(), 1u);
  const auto& call = as<CUpti_ActivityAPI>(found[0]);
  CHECK_EQ(call.cbid, uint32_t{kLaunch});
  CHECK_EQ(call.correlationId, outer);
  CHECK(call.end >= call.start);
  CHECK_EQ(call.threadId, static_cast<uint32_t>(pthread_self()));
}

TEST(external_ids_come_before_their_call_and_belong_to_their_thread) {
  begin();
  profiling::enable(CUPTI_ACTIVITY_KIND_RUNTIME);
  profiling::enable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  profiling::push_external_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 5);
  profiling::push_external_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 6);
  std::thread([] { const profiling::RuntimeCall other(kLaunch); }).join();
  {
    const profiling::RuntimeCall call(kLaunch);
  }
  uint64_t last = 0;
  CHECK(profiling::pop_external_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last) ==
        CUPTI_SUCCESS);
  CHECK_EQ(last, 6u);
  profiling::pop_external_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, nullptr);
  CHECK(profiling::pop_external_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last) ==
        CUPTI_ERROR_QUEUE_EMPTY);
  CHECK(profiling::push_external_id(CUPTI_EXTERNAL_CORRELATION_KIND_SIZE, 1) ==
        CUPTI_ERROR_INVALID_PARAMETER);
  const auto found = records();
  CHECK_EQ(found.size(), 3u);
  CHECK(found[0]->kind == CUPTI_ACTIVITY_KIND_RUNTIME);
  CHECK(found[1]->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
  const auto& external = as<CUpti_ActivityExternalCorrelation>(found[1]);
  CHECK_EQ(external.externalId, 6u);
  CHECK_EQ(external.correlationId, as<CUpti_ActivityAPI>(found[2]).correlationId);
}

TEST(full_buffers_go_back_and_what_has_no_room_is_counted) {
  begin(2 * sizeof(CUpti_ActivityMemset4) + 8, 0, 2);
  for (uint32_t i = 0; i < 7; ++i)
    profiling::buffers().put(profiling::fill_record(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, i, 16));
  CHECK_EQ(program.back.size(), 2u);
  const auto found = records();
  CHECK_EQ(found.size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) CHECK_EQ(as<CUpti_ActivityMemset4>(found[i]).value, i);
  CHECK_EQ(profiling::buffers().take_dropped(), 3u);
  CHECK_EQ(profiling::buffers().take_dropped(), 0u);
}

TEST(a_program_may_limit_the_records_of_a_buffer) {
  begin(1 << 16, 3);
  for (uint32_t i = 0; i < 7; ++i)
    profiling::buffers().put(profiling::fill_record(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, i, 16));
  CHECK_EQ(records().size(), 7u);
  CHECK_EQ(program.back.size(), 3u);
}

TEST(a_damaged_buffer_is_no_endless_one) {
  begin();
  profiling::buffers().put(profiling::fill_record(CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, 0, 16));
  profiling::flush_all();
  auto [buffer, valid] = program.back.at(0);
  CUpti_Activity* at = nullptr;
  CHECK(profiling::next_record(buffer, valid - 1, &at) == CUPTI_ERROR_INVALID_KIND);
  reinterpret_cast<CUpti_Activity*>(buffer)->kind = CUPTI_ACTIVITY_KIND_INVALID;
  CHECK(profiling::next_record(buffer, valid, &at) == CUPTI_ERROR_INVALID_KIND);
  CHECK(profiling::next_record(nullptr, valid, &at) == CUPTI_ERROR_INVALID_PARAMETER);
}

TEST(calls_can_be_left_out) {
  begin();
  profiling::enable(CUPTI_ACTIVITY_KIND_RUNTIME);
  profiling::enable_call(CUPTI_CB_DOMAIN_RUNTIME_API, kLaunch, false);
  {
    const profiling::RuntimeCall call(kLaunch);
  }
  {
    const profiling::RuntimeCall call(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020);
  }
  profiling::enable_call(CUPTI_CB_DOMAIN_RUNTIME_API, kLaunch, true);
  CHECK_EQ(records().size(), 1u);
}

TEST(copies_are_named_by_where_they_lead) {
  const auto device = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, host = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  const auto kind = [](auto dst, auto src, bool peers) {
    return int{profiling::copy_record(dst, src, 8, peers).copyKind};
  };
  CHECK_EQ(kind(device, host, false), int{CUPTI_ACTIVITY_MEMCPY_KIND_HTOD});
  CHECK_EQ(kind(host, device, false), int{CUPTI_ACTIVITY_MEMCPY_KIND_DTOH});
  CHECK_EQ(kind(host, host, false), int{CUPTI_ACTIVITY_MEMCPY_KIND_HTOH});
  CHECK_EQ(kind(device, device, false), int{CUPTI_ACTIVITY_MEMCPY_KIND_DTOD});
  CHECK_EQ(kind(device, device, true), int{CUPTI_ACTIVITY_MEMCPY_KIND_PTOP});
}

TEST(names_outlive_what_they_were_made_of) {
  std::string name = "a_kernel";
  const CUpti_ActivityKernel10 record = profiling::kernel_record(name);
  name = "changed!";
  CHECK_EQ(std::string(record.name), "a_kernel");
  CHECK(profiling::kernel_record("a_kernel").name == record.name);
}

TEST(there_is_one_subscriber_and_no_callback_of_calls) {
  begin();
  const auto callback = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
  CUpti_SubscriberHandle handle = nullptr, second = nullptr;
  CHECK(profiling::subscribe(&handle, callback) == CUPTI_SUCCESS);
  CHECK(profiling::subscribe(&second, callback) == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  CHECK(profiling::enable_domain(true, handle, CUPTI_CB_DOMAIN_RESOURCE) == CUPTI_SUCCESS);
  CHECK(profiling::enable_domain(true, handle, CUPTI_CB_DOMAIN_RUNTIME_API) ==
        CUPTI_ERROR_NOT_SUPPORTED);
  CHECK(profiling::enable_domain(true, nullptr, CUPTI_CB_DOMAIN_RESOURCE) ==
        CUPTI_ERROR_INVALID_PARAMETER);
  CHECK(profiling::unsubscribe(handle) == CUPTI_SUCCESS);
  CHECK(profiling::unsubscribe(handle) == CUPTI_ERROR_INVALID_PARAMETER);
}

TEST(kinds_that_are_not_there_are_refused) {
  CHECK(profiling::enable(CUPTI_ACTIVITY_KIND_PC_SAMPLING) == CUPTI_ERROR_INVALID_KIND);
  CHECK(profiling::enable(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) == CUPTI_ERROR_INVALID_KIND);
  CHECK(profiling::enable(CUPTI_ACTIVITY_KIND_OVERHEAD) == CUPTI_SUCCESS);
  CHECK_EQ(profiling::wanted(~0u), false);
}

}  // namespace

CHECK_MAIN
