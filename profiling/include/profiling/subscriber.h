// CUPTI's functions around its activities. There may be one subscriber to callbacks, and none
// comes: contexts are there from the start, and calls call nothing back.
#ifndef PROFILING_SUBSCRIBER_H_
#define PROFILING_SUBSCRIBER_H_

#include <cupti_activity.h>
#include <cupti_version.h>

namespace profiling {

CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback);
CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber);
// Callbacks about resources may be asked for, those of calls are not supported.
CUptiResult enable_domain(bool enabled, CUpti_SubscriberHandle subscriber,
                          CUpti_CallbackDomain domain);
// Attributes say how CUPTI uses a device's memory: they are checked, and change nothing.
CUptiResult set_attribute(CUpti_ActivityAttribute attribute, const size_t* bytes,
                          const void* value);
// Ends what a program has asked for.
CUptiResult finalize();

}  // namespace profiling

#endif  // PROFILING_SUBSCRIBER_H_
