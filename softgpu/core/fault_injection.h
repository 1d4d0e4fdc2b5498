// Faults on request: SOFTGPU_FAULT="<kernel launch>:<CUDA error>" makes that launch of the process
// (counted from 1 over all devices) end with the error instead of running.
#ifndef SOFTGPU_CORE_FAULT_INJECTION_H_
#define SOFTGPU_CORE_FAULT_INJECTION_H_

#include "core/kernel.h"

namespace softgpu {

// The fault that a CUDA error number stands for; kNone for numbers no kernel can cause.
FaultKind fault_kind(int cuda_error);

// Counts a launch; the fault it shall end with, if it is the one asked for.
Fault injected_fault();

}  // namespace softgpu

#endif  // SOFTGPU_CORE_FAULT_INJECTION_H_
