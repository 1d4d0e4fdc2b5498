// Completion words: published by the device side, read by the client without crossing the ring.
#ifndef PYFT_RING_COMPLETION_H_
#define PYFT_RING_COMPLETION_H_

#include <cstdint>

#include "ring/channel.h"
#include "ring/wait.h"

namespace pyft::ring {

// Word indexes that belong to no minted handle. Handle indexes of streams and events share the
// words: the client gives both out from one counter starting at kFirstFreeWord.
inline constexpr uint32_t kNullStreamWord = 0;       // streams 0 and 1
inline constexpr uint32_t kPerThreadStreamWord = 1;  // stream 2
inline constexpr uint32_t kDeviceWord = 2;
inline constexpr uint32_t kFirstFreeWord = 16;

// Device side, any thread. Values of a word only grow; a smaller one is ignored.
void publish(Channel& channel, uint32_t word, uint64_t value);

bool reached(const Channel& channel, uint32_t word, uint64_t value);
// When the word got its present value, CLOCK_MONOTONIC.
uint64_t time_ns(const Channel& channel, uint32_t word);
WaitStatus wait_word(Channel& channel, uint32_t word, uint64_t value, const Liveness& liveness);

}  // namespace pyft::ring

#endif  // PYFT_RING_COMPLETION_H_
