// How what a thread puts on streams is executed, and on which SM.
#ifndef SOFTGPU_CORE_PLACEMENT_H_
#define SOFTGPU_CORE_PLACEMENT_H_

#include <cstdint>

namespace softgpu {

struct Placement {
  bool again = false;   // for the second time: no launch to requests for faults
  uint64_t places = 0;  // its blocks start so many SMs further on
};

// Which SM executes what: kernels read it as %smid, and stuck bits are those of an SM.
struct Sms {
  uint64_t count = 1;  // of the device
  uint64_t first = 0;  // where the first one begins
  // `n`: of a block in the order in which those of a launch start; of a tile of a product.
  uint32_t of(uint64_t n) const { return static_cast<uint32_t>((n + first) % count); }
};

}  // namespace softgpu

#endif  // SOFTGPU_CORE_PLACEMENT_H_
