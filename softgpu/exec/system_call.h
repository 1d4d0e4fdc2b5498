// The functions kernels call outside their own text: vprintf, __assertfail, malloc and free.
#ifndef SOFTGPU_EXEC_SYSTEM_CALL_H_
#define SOFTGPU_EXEC_SYSTEM_CALL_H_

#include "exec/warp.h"

namespace softgpu::exec {

// Runs the function at `address` for one lane; `in->imm` is the row of R4, where the arguments
// start. False after a fault.
bool system_call(const Inst* in, Warp* w, int lane, uint64_t address);

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_SYSTEM_CALL_H_
