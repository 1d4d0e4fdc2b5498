// CUPTI: calls of this process, ids of operators, and by way of servers what devices do.
#include "client/process/process.h"
#include "client/profile/read_profile.h"
#include "profiling/activities.h"
#include "profiling/subscriber.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API CUptiResult cuptiGetVersion(uint32_t* version) {
  const Entered entered(Api::cuptiGetVersion);
  if (!version) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

PYFT_API CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  const Entered entered(Api::cuptiGetResultString);
  if (!text) return CUPTI_ERROR_INVALID_PARAMETER;
  *text = profiling::result_name(result);
  return CUPTI_SUCCESS;
}

PYFT_API CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  const Entered entered(Api::cuptiGetTimestamp);
  if (!timestamp) return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp = profiling::now();
  return CUPTI_SUCCESS;
}

PYFT_API CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                                    void*) {
  const Entered entered(Api::cuptiSubscribe);
  return profiling::subscribe(subscriber, callback);
}

PYFT_API CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  const Entered entered(Api::cuptiUnsubscribe);
  return profiling::unsubscribe(subscriber);
}

PYFT_API CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                         CUpti_CallbackDomain domain, CUpti_CallbackId) {
  const Entered entered(Api::cuptiEnableCallback);
  return profiling::enable_domain(enable, subscriber, domain);
}

PYFT_API CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                       CUpti_CallbackDomain domain) {
  const Entered entered(Api::cuptiEnableDomain);
  return profiling::enable_domain(enable, subscriber, domain);
}

PYFT_API CUptiResult cuptiFinalize() {
  const Entered entered(Api::cuptiFinalize);
  const CUptiResult result = profiling::finalize();
  read_profiles();  // servers hear that nothing is wanted any more
  return result;
}

PYFT_API CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                    CUpti_BuffersCallbackCompleteFunc complete) {
  const Entered entered(Api::cuptiActivityRegisterCallbacks);
  return profiling::register_callbacks(request, complete);
}

PYFT_API CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc now) {
  const Entered entered(Api::cuptiActivityRegisterTimestampCallback);
  return profiling::register_timestamp(now);
}

PYFT_API CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  const Entered entered(Api::cuptiActivityEnable);
  return profiling::enable(kind);
}

PYFT_API CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  const Entered entered(Api::cuptiActivityDisable);
  return profiling::disable(kind);
}

PYFT_API CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable) {
  const Entered entered(Api::cuptiActivityEnableRuntimeApi);
  return profiling::enable_call(CUPTI_CB_DOMAIN_RUNTIME_API, cbid, enable);
}

PYFT_API CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable) {
  const Entered entered(Api::cuptiActivityEnableDriverApi);
  return profiling::enable_call(CUPTI_CB_DOMAIN_DRIVER_API, cbid, enable);
}

// Of events there are no records.
PYFT_API CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable) {
  const Entered entered(Api::cuptiActivityEnableCudaEventDeviceTimestamps);
  return enable ? CUPTI_ERROR_NOT_SUPPORTED : CUPTI_SUCCESS;
}

PYFT_API CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes,
                                               void* value) {
  const Entered entered(Api::cuptiActivitySetAttribute);
  return profiling::set_attribute(attribute, bytes, value);
}

PYFT_API CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                            uint64_t id) {
  const Entered entered(Api::cuptiActivityPushExternalCorrelationId);
  return profiling::push_external_id(kind, id);
}

PYFT_API CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                           uint64_t* last) {
  const Entered entered(Api::cuptiActivityPopExternalCorrelationId);
  return profiling::pop_external_id(kind, last);
}

// Forced or not: what is not done yet leaves its record later, while something is still wanted.
PYFT_API CUptiResult cuptiActivityFlushAll(uint32_t) {
  const Entered entered(Api::cuptiActivityFlushAll);
  read_profiles();
  return profiling::flush_all();
}

PYFT_API CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid,
                                                CUpti_Activity** record) {
  const Entered entered(Api::cuptiActivityGetNextRecord);
  return profiling::next_record(buffer, valid, record);
}

PYFT_API CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  const Entered entered(Api::cuptiActivityGetNumDroppedRecords);
  if (!dropped) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = profiling::buffers().take_dropped();
  return CUPTI_SUCCESS;
}
