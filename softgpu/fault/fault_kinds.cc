#include "fault/fault_kinds.h"

namespace softgpu {

cudaError_t fault_code(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNone:
      return cudaSuccess;
    case FaultKind::kIllegalAddress:
      return cudaErrorIllegalAddress;
    case FaultKind::kMisalignedAddress:
      return cudaErrorMisalignedAddress;
    case FaultKind::kIllegalInstruction:
      return cudaErrorIllegalInstruction;
    case FaultKind::kAssert:
      return cudaErrorAssert;
    case FaultKind::kLaunchTimeout:
      return cudaErrorLaunchTimeout;
    case FaultKind::kDeviceTrap:
      return cudaErrorLaunchFailure;
    case FaultKind::kEccUncontained:
      return cudaErrorECCUncorrectable;
    case FaultKind::kEccContained:
      return cudaErrorContained;
    case FaultKind::kDeviceLost:
      return cudaErrorUnknown;
    case FaultKind::kCode:
      break;
  }
  return static_cast<cudaError_t>(static_cast<int>(kind) - static_cast<int>(FaultKind::kCode));
}

FaultKind fault_kind(int cuda_error) {
  for (const FaultKind kind :
       {FaultKind::kIllegalAddress, FaultKind::kMisalignedAddress, FaultKind::kIllegalInstruction,
        FaultKind::kAssert, FaultKind::kLaunchTimeout, FaultKind::kDeviceTrap,
        FaultKind::kEccUncontained, FaultKind::kEccContained, FaultKind::kDeviceLost}) {
    if (fault_code(kind) == cuda_error) return kind;
  }
  for (const cudaError_t code :
       {cudaErrorHardwareStackError, cudaErrorInvalidAddressSpace, cudaErrorInvalidPc}) {
    if (code == cuda_error) return code_fault(code);
  }
  return FaultKind::kNone;
}

DeviceNeeds device_needs(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNone:
      return DeviceNeeds::kNothing;
    case FaultKind::kEccUncontained:
      return DeviceNeeds::kReset;
    case FaultKind::kDeviceLost:
      return DeviceNeeds::kReplacement;
    default:
      return DeviceNeeds::kNewProcess;
  }
}

}  // namespace softgpu
