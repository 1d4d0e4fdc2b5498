#ifndef PYFT_RING_ALIGN_H_
#define PYFT_RING_ALIGN_H_

#include <cstdint>

namespace pyft::ring {

// The next multiple of `to`, which need not be a power of two.
constexpr uint64_t align_up(uint64_t value, uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace pyft::ring

#endif  // PYFT_RING_ALIGN_H_
