// Activity records of what streams do (CUPTI's kernels, copies and fills), while they are wanted.
#ifndef SOFTGPU_WORK_ACTIVITY_H_
#define SOFTGPU_WORK_ACTIVITY_H_

#include <functional>

#include "profiling/activities.h"
#include "stream/operation.h"
#include "stream/stream.h"

namespace softgpu {

using Run = std::function<Fault()>;

// `run`, which does what `operation` says on that stream, and then leaves the record of it. The
// record belongs to the call that this thread is in; to one of its own, if it is in none.
Run recorded(const Operation& operation, const Stream& stream, Run run);

// Two works between which the stream stands still for a library: both together are one kernel of
// that name.
void record_pause(const char* name, const Stream& stream, Work* begin, Work* end);

// recorded() for a work. While nothing is wanted this is one relaxed load.
inline void record_activity(const Operation& operation, const Stream& stream, Work* work) {
  if (!profiling::wanted(profiling::kDeviceWork)) [[likely]]
    return;
  if (work->run) work->run = recorded(operation, stream, std::move(work->run));
}

}  // namespace softgpu

#endif  // SOFTGPU_WORK_ACTIVITY_H_
