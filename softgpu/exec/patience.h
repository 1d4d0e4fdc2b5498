// When a block is taken to wait for another one.
#ifndef SOFTGPU_EXEC_PATIENCE_H_
#define SOFTGPU_EXEC_PATIENCE_H_

#include <cstdint>

namespace softgpu::exec {

// Times a block may let others run. Long loops do so as well: taking them for waiting costs little.
inline constexpr uint32_t kPatience = 8;

}  // namespace softgpu::exec

#endif  // SOFTGPU_EXEC_PATIENCE_H_
