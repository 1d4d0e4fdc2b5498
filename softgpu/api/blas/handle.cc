// cuBLAS handles and their settings.
#include <mutex>
#include <unordered_map>

#include "api/blas/blas.h"
#include "api/library_work.h"
#include "api/support.h"

namespace softgpu::api {
namespace {

struct BlasHandles {
  std::mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<BlasHandle>> all;
};

BlasHandles& blas_handles() {
  static BlasHandles* handles = std::make_unique<BlasHandles>().release();
  return *handles;
}

}  // namespace

BlasHandle* blas_handle(const void* handle) {
  std::lock_guard lock(blas_handles().mutex);
  const auto it = blas_handles().all.find(handle);
  return it == blas_handles().all.end() ? nullptr : it->second.get();
}

cublasStatus_t enqueue_blas(const BlasHandle& handle, cudaStream_t stream,
                            std::function<Fault()> run) {
  return enqueue_host_blas("cublas", handle.device, stream, std::move(run));
}

cublasStatus_t enqueue_host_blas(const char* library, int device, cudaStream_t stream,
                                 std::function<Fault()> run) {
  if (usable() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  prepare_host_blas();
  const cudaError_t status = enqueue_library(library, device, stream, std::move(run));
  if (status == cudaErrorInvalidResourceHandle) return CUBLAS_STATUS_INVALID_VALUE;
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t create_blas(void** out) {
  if (!out) return CUBLAS_STATUS_INVALID_VALUE;
  if (usable() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  auto handle = std::make_unique<BlasHandle>();
  handle->device = current_device().index();
  *out = handle.get();
  std::lock_guard lock(blas_handles().mutex);
  blas_handles().all[*out] = std::move(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t destroy_blas(const void* handle) {
  std::lock_guard lock(blas_handles().mutex);
  return blas_handles().all.erase(handle) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

}  // namespace softgpu::api

namespace api = softgpu::api;

namespace {

// Sets or gets one field of a handle.
template <class Use>
cublasStatus_t with_handle(cublasHandle_t handle, Use use) {
  api::BlasHandle* h = api::blas_handle(handle);
  if (!h) return CUBLAS_STATUS_NOT_INITIALIZED;
  use(*h);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

SOFTGPU_API cublasStatus_t cublasCreate_v2(cublasHandle_t* out) {
  return api::create_blas(reinterpret_cast<void**>(out));
}

SOFTGPU_API cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  return api::destroy_blas(handle);
}

SOFTGPU_API cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

SOFTGPU_API cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return with_handle(handle, [&](api::BlasHandle& h) { h.stream = stream; });
}

SOFTGPU_API cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  return with_handle(handle, [&](api::BlasHandle& h) { *stream = h.stream; });
}

// Nothing here needs scratch memory on the device.
SOFTGPU_API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void*, size_t) {
  return with_handle(handle, [](api::BlasHandle&) {});
}

SOFTGPU_API cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle,
                                                   cublasPointerMode_t mode) {
  return with_handle(handle, [&](api::BlasHandle& h) { h.pointer_mode = mode; });
}

SOFTGPU_API cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle,
                                                   cublasPointerMode_t* mode) {
  return with_handle(handle, [&](api::BlasHandle& h) { *mode = h.pointer_mode; });
}

// Products are always computed in the precision of their compute type: no mode makes them coarser.
SOFTGPU_API cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return with_handle(handle, [&](api::BlasHandle& h) { h.math_mode = mode; });
}

SOFTGPU_API cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  return with_handle(handle, [&](api::BlasHandle& h) { *mode = h.math_mode; });
}

SOFTGPU_API cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
  return with_handle(handle, [&](api::BlasHandle& h) { h.atomics_mode = mode; });
}

SOFTGPU_API cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t* mode) {
  return with_handle(handle, [&](api::BlasHandle& h) { *mode = h.atomics_mode; });
}

SOFTGPU_API cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int target) {
  return with_handle(handle, [&](api::BlasHandle& h) { h.sm_count_target = target; });
}

SOFTGPU_API cublasStatus_t cublasGetSmCountTarget(cublasHandle_t handle, int* target) {
  return with_handle(handle, [&](api::BlasHandle& h) { *target = h.sm_count_target; });
}

SOFTGPU_API const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}

SOFTGPU_API const char* cublasGetStatusString(cublasStatus_t status) {
  return cublasGetStatusName(status);
}

SOFTGPU_API cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
  if (!value) return CUBLAS_STATUS_INVALID_VALUE;
  *value = type == MAJOR_VERSION   ? CUBLAS_VER_MAJOR
           : type == MINOR_VERSION ? CUBLAS_VER_MINOR
                                   : CUBLAS_VER_PATCH;
  return CUBLAS_STATUS_SUCCESS;
}

SOFTGPU_API size_t cublasGetCudartVersion() {
  return CUDART_VERSION;
}
