// Operations become work: at once, or as nodes of the graph that a capture makes.
#ifndef SOFTGPU_WORK_PERFORM_H_
#define SOFTGPU_WORK_PERFORM_H_

#include <driver_types.h>

#include <memory>

#include "stream/operation.h"
#include "stream/stream.h"

namespace softgpu {

// The work of an operation that a stream of `device` does now. Event operations look their event
// up now, as a launch of their graph does. Precondition: no ChildOperation.
Work make_work(const std::shared_ptr<const Operation>& operation, int device);

// Puts an operation on a stream; on a stream that is being captured, into its graph.
cudaError_t perform(const std::shared_ptr<Stream>& stream, Operation operation);

}  // namespace softgpu

#endif  // SOFTGPU_WORK_PERFORM_H_
