// Copies and fills: which memory they touch, when they read it, and whether the caller waits.
#ifndef SOFTGPU_WORK_TRANSFER_H_
#define SOFTGPU_WORK_TRANSFER_H_

#include <driver_types.h>

#include <cstdint>
#include <memory>

#include "stream/operation.h"
#include "stream/stream.h"

namespace softgpu {

// Pageable sources are copied away before the call returns, pinned and device sources are read
// when the stream gets there. A copy to pageable memory returns when it is done, as does any with
// `synchronous`.
cudaError_t copy(const std::shared_ptr<Stream>& stream, uint64_t dst, uint64_t src,
                 const CopyShape& shape, cudaMemcpyKind kind, bool synchronous);

// The same checks for a copy that a graph makes later; sets which sides the GPU has to find mapped.
cudaError_t check_copy(CopyOperation* operation);
// Memory of the program is read and written when the copy is done, not before.
Work copy_work(const std::shared_ptr<const CopyOperation>& operation);

cudaError_t fill(const std::shared_ptr<Stream>& stream, uint64_t dst, const FillShape& shape);
cudaError_t check_fill(const FillOperation& operation);
Work fill_work(const FillOperation& operation);

}  // namespace softgpu

#endif  // SOFTGPU_WORK_TRANSFER_H_
