// A named bit range of an instruction word.
#ifndef SOFTGPU_ISA_FIELD_H_
#define SOFTGPU_ISA_FIELD_H_

#include <cstdint>

namespace softgpu {

struct Field {
  uint8_t first, width;
};

}  // namespace softgpu

#endif  // SOFTGPU_ISA_FIELD_H_
