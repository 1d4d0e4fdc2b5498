// The faults that CUDA error numbers stand for, and what devices need after them.
#include "core/device.h"
#include "core/fault_injection.h"

namespace softgpu {

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
