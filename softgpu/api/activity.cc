// CUPTI: activities of this process and its devices; what profilers such as PyTorch's ask for.
#include <cupti_callbacks.h>

#include "api/support.h"
#include "profiling/activities.h"
#include "profiling/subscriber.h"

SOFTGPU_API CUptiResult cuptiGetVersion(uint32_t* version) {
  if (!version) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

SOFTGPU_API CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  if (!text) return CUPTI_ERROR_INVALID_PARAMETER;
  *text = profiling::result_name(result);
  return CUPTI_SUCCESS;
}

SOFTGPU_API CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  if (!timestamp) return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp = profiling::now();
  return CUPTI_SUCCESS;
}

SOFTGPU_API CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber,
                                       CUpti_CallbackFunc callback, void*) {
  return profiling::subscribe(subscriber, callback);
}

SOFTGPU_API CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  return profiling::unsubscribe(subscriber);
}

SOFTGPU_API CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                            CUpti_CallbackDomain domain, CUpti_CallbackId) {
  return profiling::enable_domain(enable, subscriber, domain);
}

SOFTGPU_API CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                          CUpti_CallbackDomain domain) {
  return profiling::enable_domain(enable, subscriber, domain);
}

SOFTGPU_API CUptiResult cuptiFinalize() {
  return profiling::finalize();
}

SOFTGPU_API CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                       CUpti_BuffersCallbackCompleteFunc complete) {
  return profiling::register_callbacks(request, complete);
}

SOFTGPU_API CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc now) {
  return profiling::register_timestamp(now);
}

SOFTGPU_API CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  return profiling::enable(kind);
}

SOFTGPU_API CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  return profiling::disable(kind);
}

SOFTGPU_API CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable) {
  return profiling::enable_call(CUPTI_CB_DOMAIN_RUNTIME_API, cbid, enable);
}

SOFTGPU_API CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable) {
  return profiling::enable_call(CUPTI_CB_DOMAIN_DRIVER_API, cbid, enable);
}

// Of events there are no records.
SOFTGPU_API CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable) {
  return enable ? CUPTI_ERROR_NOT_SUPPORTED : CUPTI_SUCCESS;
}

SOFTGPU_API CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t* bytes,
                                                  void* value) {
  return profiling::set_attribute(attribute, bytes, value);
}

SOFTGPU_API CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                               uint64_t id) {
  return profiling::push_external_id(kind, id);
}

SOFTGPU_API CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                              uint64_t* last) {
  return profiling::pop_external_id(kind, last);
}

// Forced or not: what is not done yet leaves its record later.
SOFTGPU_API CUptiResult cuptiActivityFlushAll(uint32_t) {
  return profiling::flush_all();
}

SOFTGPU_API CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid,
                                                   CUpti_Activity** record) {
  return profiling::next_record(buffer, valid, record);
}

SOFTGPU_API CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  if (!dropped) return CUPTI_ERROR_INVALID_PARAMETER;
  *dropped = profiling::buffers().take_dropped();
  return CUPTI_SUCCESS;
}
