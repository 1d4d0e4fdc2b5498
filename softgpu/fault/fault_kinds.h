// The faults that CUDA error numbers stand for, and what devices need after them.
#ifndef SOFTGPU_FAULT_FAULT_KINDS_H_
#define SOFTGPU_FAULT_FAULT_KINDS_H_

#include <driver_types.h>

#include <cstdint>

#include "core/kernel.h"

namespace softgpu {

// The error that a fault is reported as; cudaSuccess for kNone.
cudaError_t fault_code(FaultKind kind);
// The fault that a CUDA error number stands for; kNone for numbers no device fails with.
FaultKind fault_kind(int cuda_error);

// What a device that failed needs before it can be used again.
enum class DeviceNeeds : uint8_t { kNothing, kNewProcess, kReset, kReplacement };
DeviceNeeds device_needs(FaultKind kind);

}  // namespace softgpu

#endif  // SOFTGPU_FAULT_FAULT_KINDS_H_
