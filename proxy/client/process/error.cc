// Names and texts of result codes. Names are checked by the compiler against the vendor's enums; a
// code without a text of its own prints its name.
#include "client/process/process.h"
#include "client/process/vendor.h"

namespace {

struct Text {
  int code;
  const char* name;         // runtime API
  const char* driver_name;  // driver API, nullptr: has no such code
  const char* text;
};

#define RUNTIME(name) static_cast<int>(name), #name

constexpr Text kTexts[] = {
    {RUNTIME(cudaSuccess), "CUDA_SUCCESS", "no error"},
    {RUNTIME(cudaErrorInvalidValue), "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {RUNTIME(cudaErrorMemoryAllocation), "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {RUNTIME(cudaErrorInitializationError), "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {RUNTIME(cudaErrorCudartUnloading), "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {RUNTIME(cudaErrorProfilerDisabled), "CUDA_ERROR_PROFILER_DISABLED", nullptr},
    {RUNTIME(cudaErrorProfilerNotInitialized), "CUDA_ERROR_PROFILER_NOT_INITIALIZED", nullptr},
    {RUNTIME(cudaErrorProfilerAlreadyStarted), "CUDA_ERROR_PROFILER_ALREADY_STARTED", nullptr},
    {RUNTIME(cudaErrorProfilerAlreadyStopped), "CUDA_ERROR_PROFILER_ALREADY_STOPPED", nullptr},
    {RUNTIME(cudaErrorInvalidConfiguration), nullptr, "invalid configuration argument"},
    {RUNTIME(cudaErrorInvalidPitchValue), nullptr, "invalid pitch argument"},
    {RUNTIME(cudaErrorInvalidSymbol), nullptr, "invalid device symbol"},
    {RUNTIME(cudaErrorInvalidHostPointer), nullptr, nullptr},
    {RUNTIME(cudaErrorInvalidDevicePointer), nullptr, "invalid device pointer"},
    {RUNTIME(cudaErrorInvalidTexture), nullptr, nullptr},
    {RUNTIME(cudaErrorInvalidTextureBinding), nullptr, nullptr},
    {RUNTIME(cudaErrorInvalidChannelDescriptor), nullptr, nullptr},
    {RUNTIME(cudaErrorInvalidMemcpyDirection), nullptr, "invalid copy direction for memcpy"},
    {RUNTIME(cudaErrorAddressOfConstant), nullptr, nullptr},
    {RUNTIME(cudaErrorTextureFetchFailed), nullptr, nullptr},
    {RUNTIME(cudaErrorTextureNotBound), nullptr, nullptr},
    {RUNTIME(cudaErrorSynchronizationError), nullptr, nullptr},
    {RUNTIME(cudaErrorInvalidFilterSetting), nullptr, nullptr},
    {RUNTIME(cudaErrorInvalidNormSetting), nullptr, nullptr},
    {RUNTIME(cudaErrorMixedDeviceExecution), nullptr, nullptr},
    {RUNTIME(cudaErrorNotYetImplemented), nullptr, nullptr},
    {RUNTIME(cudaErrorMemoryValueTooLarge), nullptr, nullptr},
    {RUNTIME(cudaErrorStubLibrary), "CUDA_ERROR_STUB_LIBRARY", nullptr},
    {RUNTIME(cudaErrorInsufficientDriver), nullptr,
     "CUDA driver version is insufficient for CUDA runtime version"},
    {RUNTIME(cudaErrorCallRequiresNewerDriver), "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", nullptr},
    {RUNTIME(cudaErrorInvalidSurface), nullptr, nullptr},
    {RUNTIME(cudaErrorDuplicateVariableName), nullptr, nullptr},
    {RUNTIME(cudaErrorDuplicateTextureName), nullptr, nullptr},
    {RUNTIME(cudaErrorDuplicateSurfaceName), nullptr, nullptr},
    {RUNTIME(cudaErrorDevicesUnavailable), "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {RUNTIME(cudaErrorIncompatibleDriverContext), nullptr, nullptr},
    {RUNTIME(cudaErrorMissingConfiguration), nullptr, nullptr},
    {RUNTIME(cudaErrorPriorLaunchFailure), nullptr, nullptr},
    {RUNTIME(cudaErrorLaunchMaxDepthExceeded), nullptr, nullptr},
    {RUNTIME(cudaErrorLaunchFileScopedTex), nullptr, nullptr},
    {RUNTIME(cudaErrorLaunchFileScopedSurf), nullptr, nullptr},
    {RUNTIME(cudaErrorSyncDepthExceeded), nullptr, nullptr},
    {RUNTIME(cudaErrorLaunchPendingCountExceeded), nullptr, nullptr},
    {RUNTIME(cudaErrorInvalidDeviceFunction), nullptr, "invalid device function"},
    {RUNTIME(cudaErrorNoDevice), "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {RUNTIME(cudaErrorInvalidDevice), "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {RUNTIME(cudaErrorDeviceNotLicensed), "CUDA_ERROR_DEVICE_NOT_LICENSED", nullptr},
    {RUNTIME(cudaErrorSoftwareValidityNotEstablished), nullptr, nullptr},
    {RUNTIME(cudaErrorStartupFailure), nullptr, nullptr},
    {RUNTIME(cudaErrorInvalidKernelImage), "CUDA_ERROR_INVALID_IMAGE",
     "device kernel image is invalid"},
    {RUNTIME(cudaErrorDeviceUninitialized), "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {RUNTIME(cudaErrorMapBufferObjectFailed), "CUDA_ERROR_MAP_FAILED", nullptr},
    {RUNTIME(cudaErrorUnmapBufferObjectFailed), "CUDA_ERROR_UNMAP_FAILED", nullptr},
    {RUNTIME(cudaErrorArrayIsMapped), "CUDA_ERROR_ARRAY_IS_MAPPED", nullptr},
    {RUNTIME(cudaErrorAlreadyMapped), "CUDA_ERROR_ALREADY_MAPPED", nullptr},
    {RUNTIME(cudaErrorNoKernelImageForDevice), "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {RUNTIME(cudaErrorAlreadyAcquired), "CUDA_ERROR_ALREADY_ACQUIRED", nullptr},
    {RUNTIME(cudaErrorNotMapped), "CUDA_ERROR_NOT_MAPPED", nullptr},
    {RUNTIME(cudaErrorNotMappedAsArray), "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", nullptr},
    {RUNTIME(cudaErrorNotMappedAsPointer), "CUDA_ERROR_NOT_MAPPED_AS_POINTER", nullptr},
    {RUNTIME(cudaErrorECCUncorrectable), "CUDA_ERROR_ECC_UNCORRECTABLE",
     "uncorrectable ECC error encountered"},
    {RUNTIME(cudaErrorUnsupportedLimit), "CUDA_ERROR_UNSUPPORTED_LIMIT", nullptr},
    {RUNTIME(cudaErrorDeviceAlreadyInUse), "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", nullptr},
    {RUNTIME(cudaErrorPeerAccessUnsupported), "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {RUNTIME(cudaErrorInvalidPtx), "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {RUNTIME(cudaErrorInvalidGraphicsContext), "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", nullptr},
    {RUNTIME(cudaErrorNvlinkUncorrectable), "CUDA_ERROR_NVLINK_UNCORRECTABLE", nullptr},
    {RUNTIME(cudaErrorJitCompilerNotFound), "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", nullptr},
    {RUNTIME(cudaErrorUnsupportedPtxVersion), "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", nullptr},
    {RUNTIME(cudaErrorJitCompilationDisabled), "CUDA_ERROR_JIT_COMPILATION_DISABLED", nullptr},
    {RUNTIME(cudaErrorUnsupportedExecAffinity), "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", nullptr},
    {RUNTIME(cudaErrorUnsupportedDevSideSync), "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", nullptr},
    {RUNTIME(cudaErrorContained), "CUDA_ERROR_CONTAINED", nullptr},
    {RUNTIME(cudaErrorInvalidSource), "CUDA_ERROR_INVALID_SOURCE", nullptr},
    {RUNTIME(cudaErrorFileNotFound), "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {RUNTIME(cudaErrorSharedObjectSymbolNotFound), "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
     nullptr},
    {RUNTIME(cudaErrorSharedObjectInitFailed), "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", nullptr},
    {RUNTIME(cudaErrorOperatingSystem), "CUDA_ERROR_OPERATING_SYSTEM", nullptr},
    {RUNTIME(cudaErrorInvalidResourceHandle), "CUDA_ERROR_INVALID_HANDLE",
     "invalid resource handle"},
    {RUNTIME(cudaErrorIllegalState), "CUDA_ERROR_ILLEGAL_STATE", nullptr},
    {RUNTIME(cudaErrorLossyQuery), "CUDA_ERROR_LOSSY_QUERY", nullptr},
    {RUNTIME(cudaErrorSymbolNotFound), "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {RUNTIME(cudaErrorNotReady), "CUDA_ERROR_NOT_READY", "device not ready"},
    {RUNTIME(cudaErrorIllegalAddress), "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {RUNTIME(cudaErrorLaunchOutOfResources), "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {RUNTIME(cudaErrorLaunchTimeout), "CUDA_ERROR_LAUNCH_TIMEOUT",
     "the launch timed out and was terminated"},
    {RUNTIME(cudaErrorLaunchIncompatibleTexturing), "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING",
     nullptr},
    {RUNTIME(cudaErrorPeerAccessAlreadyEnabled), "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {RUNTIME(cudaErrorPeerAccessNotEnabled), "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
     "peer access has not been enabled"},
    {RUNTIME(cudaErrorSetOnActiveProcess), "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", nullptr},
    {RUNTIME(cudaErrorContextIsDestroyed), "CUDA_ERROR_CONTEXT_IS_DESTROYED",
     "context is destroyed"},
    {RUNTIME(cudaErrorAssert), "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {RUNTIME(cudaErrorTooManyPeers), "CUDA_ERROR_TOO_MANY_PEERS", nullptr},
    {RUNTIME(cudaErrorHostMemoryAlreadyRegistered), "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {RUNTIME(cudaErrorHostMemoryNotRegistered), "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {RUNTIME(cudaErrorHardwareStackError), "CUDA_ERROR_HARDWARE_STACK_ERROR",
     "hardware stack error"},
    {RUNTIME(cudaErrorIllegalInstruction), "CUDA_ERROR_ILLEGAL_INSTRUCTION",
     "an illegal instruction was encountered"},
    {RUNTIME(cudaErrorMisalignedAddress), "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {RUNTIME(cudaErrorInvalidAddressSpace), "CUDA_ERROR_INVALID_ADDRESS_SPACE",
     "operation not supported on global/shared address space"},
    {RUNTIME(cudaErrorInvalidPc), "CUDA_ERROR_INVALID_PC", "invalid program counter"},
    {RUNTIME(cudaErrorLaunchFailure), "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {RUNTIME(cudaErrorCooperativeLaunchTooLarge), "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     nullptr},
    {RUNTIME(cudaErrorTensorMemoryLeak), "CUDA_ERROR_TENSOR_MEMORY_LEAK", nullptr},
    {RUNTIME(cudaErrorNotPermitted), "CUDA_ERROR_NOT_PERMITTED", nullptr},
    {RUNTIME(cudaErrorNotSupported), "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {RUNTIME(cudaErrorSystemNotReady), "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {RUNTIME(cudaErrorSystemDriverMismatch), "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", nullptr},
    {RUNTIME(cudaErrorCompatNotSupportedOnDevice), "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     nullptr},
    {RUNTIME(cudaErrorMpsConnectionFailed), "CUDA_ERROR_MPS_CONNECTION_FAILED", nullptr},
    {RUNTIME(cudaErrorMpsRpcFailure), "CUDA_ERROR_MPS_RPC_FAILURE", nullptr},
    {RUNTIME(cudaErrorMpsServerNotReady), "CUDA_ERROR_MPS_SERVER_NOT_READY", nullptr},
    {RUNTIME(cudaErrorMpsMaxClientsReached), "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", nullptr},
    {RUNTIME(cudaErrorMpsMaxConnectionsReached), "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", nullptr},
    {RUNTIME(cudaErrorMpsClientTerminated), "CUDA_ERROR_MPS_CLIENT_TERMINATED", nullptr},
    {RUNTIME(cudaErrorCdpNotSupported), "CUDA_ERROR_CDP_NOT_SUPPORTED", nullptr},
    {RUNTIME(cudaErrorCdpVersionMismatch), "CUDA_ERROR_CDP_VERSION_MISMATCH", nullptr},
    {RUNTIME(cudaErrorStreamCaptureUnsupported), "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {RUNTIME(cudaErrorStreamCaptureInvalidated), "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {RUNTIME(cudaErrorStreamCaptureMerge), "CUDA_ERROR_STREAM_CAPTURE_MERGE", nullptr},
    {RUNTIME(cudaErrorStreamCaptureUnmatched), "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", nullptr},
    {RUNTIME(cudaErrorStreamCaptureUnjoined), "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", nullptr},
    {RUNTIME(cudaErrorStreamCaptureIsolation), "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", nullptr},
    {RUNTIME(cudaErrorStreamCaptureImplicit), "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", nullptr},
    {RUNTIME(cudaErrorCapturedEvent), "CUDA_ERROR_CAPTURED_EVENT", nullptr},
    {RUNTIME(cudaErrorStreamCaptureWrongThread), "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", nullptr},
    {RUNTIME(cudaErrorTimeout), "CUDA_ERROR_TIMEOUT", nullptr},
    {RUNTIME(cudaErrorGraphExecUpdateFailure), "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", nullptr},
    {RUNTIME(cudaErrorExternalDevice), "CUDA_ERROR_EXTERNAL_DEVICE", nullptr},
    {RUNTIME(cudaErrorInvalidClusterSize), "CUDA_ERROR_INVALID_CLUSTER_SIZE", nullptr},
    {RUNTIME(cudaErrorFunctionNotLoaded), "CUDA_ERROR_FUNCTION_NOT_LOADED", nullptr},
    {RUNTIME(cudaErrorInvalidResourceType), "CUDA_ERROR_INVALID_RESOURCE_TYPE", nullptr},
    {RUNTIME(cudaErrorInvalidResourceConfiguration), "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
     nullptr},
    {RUNTIME(cudaErrorUnknown), "CUDA_ERROR_UNKNOWN", "unknown error"},
};

#undef RUNTIME

const Text* find(int code) {
  for (const Text& text : kTexts)
    if (text.code == code) return &text;
  return nullptr;
}

}  // namespace

using pyft::Api;
using pyft::client::Entered;

PYFT_API const char* cudaGetErrorName(cudaError_t error) {
  const Entered entered(Api::cudaGetErrorName);
  const Text* found = find(error);
  return found ? found->name : "unrecognized error code";
}

PYFT_API const char* cudaGetErrorString(cudaError_t error) {
  const Entered entered(Api::cudaGetErrorString);
  const Text* found = find(error);
  if (!found) return "unrecognized error code";
  return found->text ? found->text : found->name;
}

PYFT_API CUresult cuGetErrorName(CUresult error, const char** pStr) {
  const Entered entered(Api::cuGetErrorName);
  const Text* found = find(error);
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  *pStr = found ? found->driver_name : nullptr;
  return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

PYFT_API CUresult cuGetErrorString(CUresult error, const char** pStr) {
  const Entered entered(Api::cuGetErrorString);
  const Text* found = find(error);
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  *pStr = !found ? nullptr : found->text ? found->text : found->driver_name;
  return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
