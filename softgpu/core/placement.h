// How what a thread puts on streams is executed.
#ifndef SOFTGPU_CORE_PLACEMENT_H_
#define SOFTGPU_CORE_PLACEMENT_H_

#include <cstdint>

namespace softgpu {

struct Placement {
  bool again = false;   // for the second time: no launch to requests for faults
  uint64_t places = 0;  // its blocks start so many SMs further on
};

}  // namespace softgpu

#endif  // SOFTGPU_CORE_PLACEMENT_H_
