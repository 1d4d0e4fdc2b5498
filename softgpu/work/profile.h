// SOFTGPU_PROFILE=1: where kernel time goes, as a table on stderr when the process ends.
#ifndef SOFTGPU_WORK_PROFILE_H_
#define SOFTGPU_WORK_PROFILE_H_

#include <cstdint>

#include "core/kernel.h"

namespace softgpu {

// Notes one launch; does nothing unless the variable is set. Thread-safe.
void profile_launch(const Launch& launch, uint64_t instructions, uint64_t time_ns);

}  // namespace softgpu

#endif  // SOFTGPU_WORK_PROFILE_H_
