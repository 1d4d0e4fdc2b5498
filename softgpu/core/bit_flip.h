// Flips one bit of device memory, as a memory error that nobody noticed would.
#ifndef SOFTGPU_CORE_BIT_FLIP_H_
#define SOFTGPU_CORE_BIT_FLIP_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/fault_request.h"

namespace softgpu {

// In the allocation or at the address that the request names. Returns the sentence that says what
// was done, or why nothing was.
std::string flip_memory(int device, const FaultRequest& request);

// In what a launch has written. Made before the launch runs, since only a comparison tells what it
// writes.
class ResultFlip {
 public:
  ResultFlip(std::span<const uint8_t> params, const FaultRequest& request);
  // False if the launch has no such pointer: another one has to be waited for.
  bool possible() const { return !pointers_.empty(); }
  std::string flip() const;

 private:
  struct Target {
    uint64_t address = 0;
    std::vector<uint8_t> before;  // empty unless contents are compared
  };
  FaultRequest request_;
  std::vector<Target> pointers_;
};

}  // namespace softgpu

#endif  // SOFTGPU_CORE_BIT_FLIP_H_
