// What CutMark::forced says.
#ifndef PYFT_RING_FORCED_CUT_H_
#define PYFT_RING_FORCED_CUT_H_

#include <cstdint>

namespace pyft::ring {

inline constexpr uint8_t kHalfFull = 1;  // half of the ring or of the arena is in use
inline constexpr uint8_t kFull = 2;      // there is no room: the client waits for the decision

}  // namespace pyft::ring

#endif  // PYFT_RING_FORCED_CUT_H_
