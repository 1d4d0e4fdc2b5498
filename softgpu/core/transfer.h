// Copies and fills: which memory they touch, when they read it, and whether the caller waits.
#ifndef SOFTGPU_CORE_TRANSFER_H_
#define SOFTGPU_CORE_TRANSFER_H_

#include <driver_types.h>

#include <cstdint>
#include <memory>

#include "core/stream.h"

namespace softgpu {

// `slices` rectangles of `rows` rows; a plain copy has one row.
struct CopyShape {
  uint64_t width = 0, rows = 1;
  uint64_t dst_pitch = 0, src_pitch = 0;
  uint64_t slices = 1, dst_slice = 0, src_slice = 0;
  bool empty() const { return !width || !rows || !slices; }
  uint64_t dst_span() const { return (slices - 1) * dst_slice + (rows - 1) * dst_pitch + width; }
  uint64_t src_span() const { return (slices - 1) * src_slice + (rows - 1) * src_pitch + width; }
};

// Pageable sources are copied away before the call returns, pinned and device sources are read
// when the stream gets there. A copy to pageable memory returns when it is done, as does any with
// `synchronous`.
cudaError_t copy(const std::shared_ptr<Stream>& stream, uint64_t dst, uint64_t src,
                 const CopyShape& shape, cudaMemcpyKind kind, bool synchronous);

struct CopyOperation;
struct FillOperation;

// The same checks for a copy that a graph makes later; sets which sides the GPU has to find mapped.
cudaError_t check_copy(CopyOperation* operation);
// Memory of the program is read and written when the copy is done, not before.
Work copy_work(const std::shared_ptr<const CopyOperation>& operation);

// Fills rows with a pattern of 1, 2 or 4 bytes; `width` counts elements.
struct FillShape {
  uint64_t width = 0, rows = 1, pitch = 0;
  uint32_t value = 0, element_bytes = 1;
  uint64_t span() const { return (rows - 1) * pitch + width * element_bytes; }
};
cudaError_t fill(const std::shared_ptr<Stream>& stream, uint64_t dst, const FillShape& shape);
cudaError_t check_fill(const FillOperation& operation);
Work fill_work(const FillOperation& operation);

}  // namespace softgpu

#endif  // SOFTGPU_CORE_TRANSFER_H_
