#include "client/blas/blas.h"

#include <cstring>

#include "api/commands.h"
#include "client/process/handles.h"

namespace pyft::client {

BlasHandle* blas_handle(const void* handle) {
  auto* blas = static_cast<BlasHandle*>(const_cast<void*>(handle));
  return blas && blas->magic == BlasHandle::kMagic ? blas : nullptr;
}

cublasStatus_t blas_status(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUBLAS_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
      return CUBLAS_STATUS_ALLOC_FAILED;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidResourceHandle:
      return CUBLAS_STATUS_INVALID_VALUE;
    case cudaErrorNotSupported:
      return CUBLAS_STATUS_NOT_SUPPORTED;
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
      return CUBLAS_STATUS_NOT_INITIALIZED;
    default:
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

size_t compute_scalar_bytes(cublasComputeType_t type) {
  switch (type) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      return 2;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      return 16;  // real and complex share the code; the larger is readable for both
    default:
      return 8;
  }
}

size_t type_bytes(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_64F:
    case CUDA_C_32F:
      return 8;
    case CUDA_C_64F:
      return 16;
    default:
      return 4;
  }
}

Scalar blas_scalar(const BlasHandle& blas, const void* value, size_t bytes) {
  Scalar scalar;
  if (blas.state.pointer_mode == CUBLAS_POINTER_MODE_DEVICE)
    scalar.low = reinterpret_cast<uint64_t>(value);
  else if (value)
    std::memcpy(&scalar, value, bytes < sizeof scalar ? bytes : sizeof scalar);
  return scalar;
}

BlasState wire_state(const BlasHandle& blas) {
  BlasState state = blas.state;
  cudaError_t error;
  if (state.stream == 2)
    if (const Stream* own = default_stream(blas.device, 2, &error)) state.stream = own->handle;
  return state;
}

cublasStatus_t blas_send(BlasHandle& blas, uint16_t call, const void* body, size_t bytes) {
  cudaError_t error;
  Stream* stream = stream_of(reinterpret_cast<cudaStream_t>(blas.state.stream), &error);
  if (!stream) return blas_status(error);
  error = blas.device.send(call, {static_cast<const std::byte*>(body), bytes});
  blas.device.touch(blas.state.stream ? *stream : blas.device.null_stream());
  return blas_status(error != cudaSuccess ? error : blas.device.late_error());
}

cublasStatus_t blas_ask(BlasHandle& blas, uint16_t call, const void* body, size_t bytes,
                        int* info) {
  if (!info) return CUBLAS_STATUS_INVALID_VALUE;
  cudaError_t error;
  Stream* stream = stream_of(reinterpret_cast<cudaStream_t>(blas.state.stream), &error);
  if (!stream) return blas_status(error);
  Reply reply;
  error = blas.device.call(call, {static_cast<const std::byte*>(body), bytes}, &reply);
  blas.device.touch(blas.state.stream ? *stream : blas.device.null_stream());
  if (error != cudaSuccess) return blas_status(error);
  *info = static_cast<int>(reply.values[0]);
  return static_cast<cublasStatus_t>(reply.code);
}

cublasStatus_t blas_send_result(BlasHandle& blas, uint16_t call, const void* body, size_t bytes,
                                void* result, size_t result_bytes) {
  if (blas.state.pointer_mode == CUBLAS_POINTER_MODE_DEVICE)
    return blas_send(blas, call, body, bytes);
  Reply reply;
  const cudaError_t error =
      blas.device.call(call, {static_cast<const std::byte*>(body), bytes}, &reply);
  if (error != cudaSuccess) return blas_status(error);
  if (reply.code == 0 && result) std::memcpy(result, reply.values, result_bytes);
  return static_cast<cublasStatus_t>(reply.code);
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

constexpr int kBlasVersion = CUBLAS_VERSION;

// Runs set(handle) on a valid handle.
template <class Set>
cublasStatus_t with_handle(cublasHandle_t handle, Set set) {
  BlasHandle* blas = blas_handle(handle);
  if (!blas) return CUBLAS_STATUS_NOT_INITIALIZED;
  set(*blas);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

PYFT_API cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  const Entered entered(Api::cublasCreate_v2);
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return blas_status(error);
  auto blas = std::make_unique<BlasHandle>(*device);
  blas->state.handle = mint_handle(HandleKind::kCublas);
  if (!blas->state.handle) return CUBLAS_STATUS_ALLOC_FAILED;
  blas->state.atomics_mode = CUBLAS_ATOMICS_ALLOWED;
  Reply reply;
  const cmd::cublasCreate_v2 body{blas->state.handle};
  error = device->call(static_cast<uint16_t>(Call::cublasCreate_v2), bytes_of(body), &reply);
  if (error != cudaSuccess) return blas_status(error);
  if (reply.code != 0) end_handle(blas->state.handle);
  if (reply.code == 0) *handle = reinterpret_cast<cublasHandle_t>(blas.release());
  return static_cast<cublasStatus_t>(reply.code);
}

PYFT_API cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  const Entered entered(Api::cublasDestroy_v2);
  BlasHandle* blas = blas_handle(handle);
  if (!blas) return CUBLAS_STATUS_NOT_INITIALIZED;
  const cudaError_t error =
      blas->device.send(Call::cublasDestroy_v2, cmd::cublasDestroy_v2{blas->state.handle});
  if (error == cudaSuccess) end_handle(blas->state.handle);
  blas->magic = 0;
  delete blas;
  return blas_status(error);
}

// As documented: setting the stream resets the workspace to the library's own.
PYFT_API cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId) {
  const Entered entered(Api::cublasSetStream_v2);
  return with_handle(handle, [&](BlasHandle& blas) {
    blas.state.stream = reinterpret_cast<uint64_t>(streamId);
    blas.state.workspace = blas.state.workspace_bytes = 0;
  });
}

PYFT_API cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* streamId) {
  const Entered entered(Api::cublasGetStream_v2);
  return with_handle(handle, [&](BlasHandle& blas) {
    if (streamId) *streamId = reinterpret_cast<cudaStream_t>(blas.state.stream);
  });
}

PYFT_API cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace,
                                              size_t workspaceSizeInBytes) {
  const Entered entered(Api::cublasSetWorkspace_v2);
  return with_handle(handle, [&](BlasHandle& blas) {
    blas.state.workspace = reinterpret_cast<uint64_t>(workspace);
    blas.state.workspace_bytes = workspaceSizeInBytes;
  });
}

PYFT_API cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  const Entered entered(Api::cublasSetMathMode);
  return with_handle(handle,
                     [&](BlasHandle& b) { b.state.math_mode = static_cast<uint32_t>(mode); });
}

PYFT_API cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  const Entered entered(Api::cublasGetMathMode);
  return with_handle(handle, [&](BlasHandle& b) {
    if (mode) *mode = static_cast<cublasMath_t>(b.state.math_mode);
  });
}

PYFT_API cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  const Entered entered(Api::cublasSetPointerMode_v2);
  return with_handle(handle,
                     [&](BlasHandle& b) { b.state.pointer_mode = static_cast<uint32_t>(mode); });
}

PYFT_API cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  const Entered entered(Api::cublasGetPointerMode_v2);
  return with_handle(handle, [&](BlasHandle& b) {
    if (mode) *mode = static_cast<cublasPointerMode_t>(b.state.pointer_mode);
  });
}

PYFT_API cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
  const Entered entered(Api::cublasSetAtomicsMode);
  return with_handle(handle,
                     [&](BlasHandle& b) { b.state.atomics_mode = static_cast<uint32_t>(mode); });
}

PYFT_API cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t* mode) {
  const Entered entered(Api::cublasGetAtomicsMode);
  return with_handle(handle, [&](BlasHandle& b) {
    if (mode) *mode = static_cast<cublasAtomicsMode_t>(b.state.atomics_mode);
  });
}

PYFT_API cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int smCountTarget) {
  const Entered entered(Api::cublasSetSmCountTarget);
  return with_handle(
      handle, [&](BlasHandle& b) { b.state.sm_target = static_cast<uint32_t>(smCountTarget); });
}

PYFT_API cublasStatus_t cublasGetSmCountTarget(cublasHandle_t handle, int* smCountTarget) {
  const Entered entered(Api::cublasGetSmCountTarget);
  return with_handle(handle, [&](BlasHandle& b) {
    if (smCountTarget) *smCountTarget = static_cast<int>(b.state.sm_target);
  });
}

PYFT_API cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int* version) {
  const Entered entered(Api::cublasGetVersion_v2);
  if (!version) return CUBLAS_STATUS_INVALID_VALUE;
  *version = kBlasVersion;
  return CUBLAS_STATUS_SUCCESS;
}

PYFT_API cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
  const Entered entered(Api::cublasGetProperty);
  if (!value) return CUBLAS_STATUS_INVALID_VALUE;
  *value = type == MAJOR_VERSION   ? CUBLAS_VER_MAJOR
           : type == MINOR_VERSION ? CUBLAS_VER_MINOR
                                   : CUBLAS_VER_PATCH;
  return CUBLAS_STATUS_SUCCESS;
}

PYFT_API const char* cublasGetStatusName(cublasStatus_t status) {
  const Entered entered(Api::cublasGetStatusName);
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    default:
      return "unrecognized status";
  }
}

PYFT_API const char* cublasGetStatusString(cublasStatus_t status) {
  const Entered entered(Api::cublasGetStatusString);
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "cuBLAS call failed";
}
