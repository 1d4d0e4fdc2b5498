// Many copies by one call. Each is an entry of its own, so a replay repeats them one by one.
#include "client/memory/copy.h"
#include "client/queries/cuda12.h"

#undef cuMemcpyBatchAsync

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

// The runtime's and the driver's attributes are one structure under two names.
static_assert(sizeof(cudaMemcpyAttributes) == sizeof(CUmemcpyAttributes));
static_assert(int{cudaMemcpySrcAccessOrderDuringApiCall} ==
              int{CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL});

struct Batch {
  const uint64_t *dsts, *srcs;
  const size_t* sizes;
  size_t count;
  const CUmemcpyAttributes* attributes;
  const size_t* first;  // of the copies that an attribute is for
  size_t attribute_count;
};

bool valid(const Batch& b) {
  if (!b.dsts || !b.srcs || !b.sizes || !b.attributes || !b.first) return false;
  if (b.attribute_count == 0 || b.attribute_count > b.count || b.first[0] != 0) return false;
  for (size_t i = 0; i < b.attribute_count; ++i) {
    const auto order = b.attributes[i].srcAccessOrder;
    if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
      return false;
    if (b.first[i] >= b.count || (i && b.first[i] <= b.first[i - 1])) return false;
  }
  return true;
}

// What the call may read only while it lasts is read in time if the stream is waited for: pinned
// memory is read when the stream gets there.
bool waits(const Batch& b) {
  for (size_t i = 0; i < b.attribute_count; ++i)
    if (b.attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) return true;
  return false;
}

// *failed is the number of the copy that could not be begun; SIZE_MAX: none of them is at fault.
cudaError_t copy_all(const Batch& b, cudaStream_t stream, size_t* failed) {
  *failed = SIZE_MAX;
  const bool legacy = stream == cudaStreamLegacy || (!stream && !null_is_own());
  if (legacy || !valid(b)) return cudaErrorInvalidValue;
  for (size_t i = 0; i < b.count; ++i) {
    const cudaError_t error = copy(b.dsts[i], b.srcs[i], b.sizes[i], stream, false);
    if (error == cudaSuccess) continue;
    *failed = i;
    return error;
  }
  return waits(b) ? cudaStreamSynchronize(stream) : cudaSuccess;
}

CUresult driver_batch(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                      CUmemcpyAttributes* attrs, size_t* first, size_t attr_count, CUstream stream,
                      size_t* failed) {
  static_assert(sizeof(CUdeviceptr) == sizeof(uint64_t));
  const Batch batch{reinterpret_cast<const uint64_t*>(dsts),
                    reinterpret_cast<const uint64_t*>(srcs),
                    sizes,
                    count,
                    attrs,
                    first,
                    attr_count};
  return static_cast<CUresult>(copy_all(batch, stream, failed));
}

}  // namespace

PYFT_API cudaError_t cudaMemcpyBatchAsync(void* const* dsts, const void* const* srcs,
                                          const size_t* sizes, size_t count,
                                          struct cudaMemcpyAttributes* attrs, size_t* attrsIdxs,
                                          size_t numAttrs, cudaStream_t stream) {
  const Entered entered(Api::cudaMemcpyBatchAsync);
  if (built_with_cuda_12()) {
    say("[cudaMemcpyBatchAsync] of CUDA 12 has other parameters, and is not served");
    return done(cudaErrorNotSupported);
  }
  const Batch batch{reinterpret_cast<const uint64_t*>(dsts),
                    reinterpret_cast<const uint64_t*>(srcs),
                    sizes,
                    count,
                    reinterpret_cast<const CUmemcpyAttributes*>(attrs),
                    attrsIdxs,
                    numAttrs};
  size_t failed;
  return done(copy_all(batch, stream, &failed));
}

PYFT_API CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                        size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                        size_t numAttrs, CUstream hStream) {
  const Entered entered(Api::cuMemcpyBatchAsync_v2);
  size_t failed;
  return driver_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream, &failed);
}

// That of CUDA 12.8 and 12.9, which says which copy has failed.
PYFT_API CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                     size_t count, CUmemcpyAttributes* attrs, size_t* attrsIdxs,
                                     size_t numAttrs, size_t* failIdx, CUstream hStream) {
  const Entered entered(Api::cuMemcpyBatchAsync);
  size_t failed;
  return driver_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream,
                      failIdx ? failIdx : &failed);
}

PYFT_API CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                          size_t count, CUmemcpyAttributes* attrs,
                                          size_t* attrsIdxs, size_t numAttrs, size_t* failIdx,
                                          CUstream hStream) {
  const Entered entered(Api::cuMemcpyBatchAsync_ptsz);
  const OwnNullStream own;
  size_t failed;
  return driver_batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream,
                      failIdx ? failIdx : &failed);
}
