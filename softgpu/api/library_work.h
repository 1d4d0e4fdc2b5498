// Calls of libraries become work on streams, like launches of kernels.
#ifndef SOFTGPU_API_LIBRARY_WORK_H_
#define SOFTGPU_API_LIBRARY_WORK_H_

#include <driver_types.h>

#include <functional>

#include "core/kernel.h"

namespace softgpu::api {

// The legacy stream is that of `device`, whatever device is current. The work counts as a launch
// called `library`. cudaErrorInvalidResourceHandle if there is no such stream.
cudaError_t enqueue_library(const char* library, int device, cudaStream_t stream,
                            std::function<Fault()> run);

}  // namespace softgpu::api

#endif  // SOFTGPU_API_LIBRARY_WORK_H_
