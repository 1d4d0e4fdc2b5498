// Memory in rows, which is plain memory whose rows begin at aligned addresses.
#include "client/device/device.h"
#include "client/memory/memory.h"

namespace pyft::client {
namespace {

// What devices ask of the rows of a texture, and so what drivers give.
constexpr size_t kRowAlignment = 512;

cudaError_t allocate_rows(size_t width, size_t rows, size_t* pitch, void** out) {
  size_t padded = 0, bytes = 0;
  *out = nullptr;
  if (__builtin_add_overflow(width, kRowAlignment - 1, &padded) ||
      __builtin_mul_overflow(padded &= ~(kRowAlignment - 1), rows, &bytes))
    return cudaErrorMemoryAllocation;
  *pitch = padded;
  uint64_t address = 0;
  const cudaError_t error = allocate(bytes, &address);
  *out = reinterpret_cast<void*>(address);
  return error;
}

}  // namespace
}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API cudaError_t cudaMallocPitch(void** devPtr, size_t* pitch, size_t width, size_t height) {
  const Entered entered(Api::cudaMallocPitch);
  if (!devPtr || !pitch) return done(cudaErrorInvalidValue);
  return done(allocate_rows(width, height, pitch, devPtr));
}

PYFT_API cudaError_t cudaMalloc3D(struct cudaPitchedPtr* pitchedDevPtr, struct cudaExtent extent) {
  const Entered entered(Api::cudaMalloc3D);
  size_t rows = 0;
  if (!pitchedDevPtr) return done(cudaErrorInvalidValue);
  if (__builtin_mul_overflow(extent.height, extent.depth, &rows))
    return done(cudaErrorMemoryAllocation);
  pitchedDevPtr->xsize = extent.width;
  pitchedDevPtr->ysize = extent.height;
  return done(allocate_rows(extent.width, rows, &pitchedDevPtr->pitch, &pitchedDevPtr->ptr));
}

PYFT_API struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                            enum cudaChannelFormatKind f) {
  const Entered entered(Api::cudaCreateChannelDesc);
  return {x, y, z, w, f};
}
