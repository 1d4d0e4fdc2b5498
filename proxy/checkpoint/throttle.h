// PYFT_COPY_MB_S: on a soft GPU copies of snapshots are short beside a step, on a real one they are
// not. With it they take as large a share of a step as those of a large model
// (docs/research/rehearsal.md). All threads of a server share one bus.
#ifndef PYFT_CHECKPOINT_THROTTLE_H_
#define PYFT_CHECKPOINT_THROTTLE_H_

#include <cstdint>

namespace pyft::checkpoint {

// How long the bus is taken by so many bytes at this rate; 0 without one.
uint64_t bus_ns(uint64_t bytes, double mb_per_s);

// So many bytes have been copied: returns when the bus would have passed them.
void throttle(uint64_t bytes);
// So many bytes of the store are touched for the first time, which takes longer than copying.
void throttle_new(uint64_t bytes);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_THROTTLE_H_
