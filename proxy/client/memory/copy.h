// Copies and fills. Which way a copy goes follows from the addresses, not from the kind argument:
// device and pinned addresses are known to the server, everything else is pageable.
#ifndef PYFT_CLIENT_MEMORY_COPY_H_
#define PYFT_CLIENT_MEMORY_COPY_H_

#include "client/device/stream.h"

namespace pyft::client {

// Stream-ordered copy. `blocking`: the caller may touch source and destination when it returns.
cudaError_t copy(uint64_t dst, uint64_t src, size_t bytes, cudaStream_t stream, bool blocking);

struct Copy2D {
  uint64_t dst, dst_pitch, src, src_pitch, width, height;
};
cudaError_t copy_2d(const Copy2D& job, cudaStream_t stream, bool blocking);

cudaError_t fill(uint64_t dst, uint32_t value, uint32_t element_bytes, uint64_t count,
                 cudaStream_t stream);
cudaError_t fill_2d(uint64_t dst, uint64_t pitch, uint32_t value, uint32_t element_bytes,
                    uint64_t width, uint64_t height, cudaStream_t stream);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_MEMORY_COPY_H_
