// Flips one bit of device memory, as an unnoticed memory error would.
#ifndef SOFTGPU_FAULT_BIT_FLIP_H_
#define SOFTGPU_FAULT_BIT_FLIP_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fault/fault_request.h"
#include "fault/written.h"

namespace softgpu {

struct FlipOutcome {
  bool done = false;
  std::string sentence;  // what was done, or why nothing was
};

// In the allocation or at the address that the request names. `times`: as below.
FlipOutcome flip_memory(int device, const FaultRequest& request, uint64_t times);

// In what a copy has just written: rows of `width` bytes.
struct CopiedRows {
  uint64_t address = 0, width = 0, rows = 1, pitch = 0, slices = 1, slice = 0;
  uint64_t size() const { return width * rows * slices; }
};
FlipOutcome flip_copied(const CopiedRows& copied, const FaultRequest& request, uint64_t times);

// In what a launch has written. Made before the launch runs, since only a comparison tells what a
// kernel writes.
class ResultFlip {
 public:
  // `times`: how often the request has happened before; each time another byte is drawn.
  ResultFlip(std::span<const uint8_t> params, const FaultRequest& request, uint64_t times);
  // Not done: another launch has to be waited for. `said`: what the launch said of itself, if it is
  // a library's.
  FlipOutcome flip(std::span<const WrittenBlock> said) const;

 private:
  struct Range {
    uint64_t address = 0;
    std::vector<uint8_t> before;
    uint64_t end() const { return address + before.size(); }
  };
  void remember(uint64_t begin, uint64_t end);
  std::vector<uint64_t> changed(uint64_t begin, uint64_t end) const;

  FlipOutcome of_argument(std::span<const WrittenBlock> said) const;
  FlipOutcome of_changed(std::span<const WrittenBlock> said) const;
  FlipOutcome of_any(std::span<const WrittenBlock> said) const;

  FaultRequest request_;
  uint64_t times_;
  std::vector<uint64_t> pointers_;  // of the parameters, in their order, each once
  std::vector<Range> ranges_;       // what can be reached from these, by address, without overlap
};

}  // namespace softgpu

#endif  // SOFTGPU_FAULT_BIT_FLIP_H_
