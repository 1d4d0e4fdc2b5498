#include "profiling/subscriber.h"

#include <atomic>

#include "profiling/activities.h"

namespace profiling {
namespace {

std::atomic<bool> subscribed{false};

CUpti_SubscriberHandle handle() {
  return reinterpret_cast<CUpti_SubscriberHandle>(&subscribed);
}

}  // namespace

CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback) {
  if (!subscriber || !callback) return CUPTI_ERROR_INVALID_PARAMETER;
  if (subscribed.exchange(true)) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  *subscriber = handle();
  return CUPTI_SUCCESS;
}

CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber) {
  if (subscriber != handle() || !subscribed.exchange(false)) return CUPTI_ERROR_INVALID_PARAMETER;
  return CUPTI_SUCCESS;
}

CUptiResult enable_domain(bool enabled, CUpti_SubscriberHandle subscriber,
                          CUpti_CallbackDomain domain) {
  if (subscriber != handle() || !subscribed.load()) return CUPTI_ERROR_INVALID_PARAMETER;
  if (domain <= CUPTI_CB_DOMAIN_INVALID || domain >= CUPTI_CB_DOMAIN_SIZE) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  return enabled && domain != CUPTI_CB_DOMAIN_RESOURCE ? CUPTI_ERROR_NOT_SUPPORTED : CUPTI_SUCCESS;
}

CUptiResult set_attribute(CUpti_ActivityAttribute, const size_t* bytes, const void* value) {
  return bytes && *bytes && value ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult finalize() {
  wanted_kinds.store(0);
  subscribed.store(false);
  return CUPTI_SUCCESS;
}

}  // namespace profiling
