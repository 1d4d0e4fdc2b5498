#include <array>

#include "api/support.h"
#include "device/device.h"

namespace softgpu::api {
namespace {

struct ErrorText {
  int code;
  const char* runtime_name;
  const char* text;
};

#define SOFTGPU_ERROR(name, text)       \
  ErrorText {                           \
    static_cast<int>(name), #name, text \
  }
constexpr auto kErrors = std::to_array<ErrorText>({
    SOFTGPU_ERROR(cudaSuccess, "no error"),
    SOFTGPU_ERROR(cudaErrorInvalidValue, "invalid argument"),
    SOFTGPU_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    SOFTGPU_ERROR(cudaErrorInitializationError, "initialization error"),
    SOFTGPU_ERROR(cudaErrorCudartUnloading, "driver shutting down"),
    SOFTGPU_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    SOFTGPU_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    SOFTGPU_ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    SOFTGPU_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    SOFTGPU_ERROR(cudaErrorMissingConfiguration, "__global__ function call is not configured"),
    SOFTGPU_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    SOFTGPU_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    SOFTGPU_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    SOFTGPU_ERROR(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    SOFTGPU_ERROR(cudaErrorDeviceUninitialized, "invalid device context"),
    SOFTGPU_ERROR(cudaErrorNoKernelImageForDevice,
                  "no kernel image is available for execution on the device"),
    SOFTGPU_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    SOFTGPU_ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    SOFTGPU_ERROR(cudaErrorNotReady, "device not ready"),
    SOFTGPU_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    SOFTGPU_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    SOFTGPU_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    SOFTGPU_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    SOFTGPU_ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    SOFTGPU_ERROR(cudaErrorAssert, "device-side assert triggered"),
    SOFTGPU_ERROR(cudaErrorHostMemoryAlreadyRegistered,
                  "part or all of the requested memory range is already mapped"),
    SOFTGPU_ERROR(cudaErrorHostMemoryNotRegistered,
                  "pointer does not correspond to a registered memory region"),
    SOFTGPU_ERROR(cudaErrorIllegalInstruction, "an illegal instruction was encountered"),
    SOFTGPU_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    SOFTGPU_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    SOFTGPU_ERROR(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    SOFTGPU_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    SOFTGPU_ERROR(cudaErrorNotSupported, "operation not supported"),
    SOFTGPU_ERROR(cudaErrorStreamCaptureUnsupported,
                  "operation not permitted when stream is capturing"),
    SOFTGPU_ERROR(cudaErrorStreamCaptureInvalidated,
                  "operation failed due to a previous error during capture"),
    SOFTGPU_ERROR(cudaErrorStreamCaptureMerge,
                  "operation would result in a merge of separate capture sequences"),
    SOFTGPU_ERROR(cudaErrorStreamCaptureUnmatched,
                  "capture was not ended in the same stream as it began"),
    SOFTGPU_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    SOFTGPU_ERROR(cudaErrorStreamCaptureIsolation,
                  "dependency created on uncaptured work in another stream"),
    SOFTGPU_ERROR(cudaErrorStreamCaptureImplicit,
                  "operation would make the legacy stream depend on a capturing blocking stream"),
    SOFTGPU_ERROR(cudaErrorCapturedEvent,
                  "operation not permitted on an event last recorded in a capturing stream"),
    SOFTGPU_ERROR(cudaErrorStreamCaptureWrongThread,
                  "attempt to terminate a thread-local capture sequence from another thread"),
    SOFTGPU_ERROR(cudaErrorGraphExecUpdateFailure,
                  "the graph update was not performed because it included changes which violated "
                  "constraints specific to instantiated graph update"),
    SOFTGPU_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    SOFTGPU_ERROR(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed"),
    SOFTGPU_ERROR(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    SOFTGPU_ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    SOFTGPU_ERROR(cudaErrorUnknown, "unknown error"),
});
#undef SOFTGPU_ERROR

const ErrorText* find_error(int code) {
  for (const ErrorText& e : kErrors) {
    if (e.code == code) return &e;
  }
  return nullptr;
}

// The thread's last error; a dead device stays an error for ever.
cudaError_t peek() {
  if (usable() == cudaSuccess && thread_device().bound) {
    const cudaError_t dead = device(thread_device().index).sticky();
    if (dead != cudaSuccess) return dead;
  }
  return last_error();
}

}  // namespace

const char* error_name(int code) {
  const ErrorText* found = find_error(code);
  return found ? found->runtime_name : nullptr;
}

const char* error_text(int code) {
  const ErrorText* found = find_error(code);
  return found ? found->text : nullptr;
}

}  // namespace softgpu::api

namespace api = softgpu::api;

SOFTGPU_API cudaError_t cudaGetLastError() {
  const cudaError_t last = api::peek();
  api::last_error() = cudaSuccess;
  return last;
}

SOFTGPU_API cudaError_t cudaPeekAtLastError() {
  return api::peek();
}

SOFTGPU_API const char* cudaGetErrorName(cudaError_t error) {
  const char* name = api::error_name(error);
  return name ? name : "unrecognized error code";
}

SOFTGPU_API const char* cudaGetErrorString(cudaError_t error) {
  const char* text = api::error_text(error);
  return text ? text : "unrecognized error code";
}
