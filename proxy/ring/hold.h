// A hold: the program stands still behind the cut of a step until the agent releases it, so that
// all ranks of a job are at the same place (docs/concepts/recovery-line.md).
//
//     agent    hold_step = s, two steps ahead      server   snapshots the cut of s, whatever K is
//     client   appends the cut, held_step = s, waits until hold_step is another, or hold_until_ns
//
// The client's part. What it waits for has a deadline, which only the agent can put off: an agent
// that has died holds no client.
#ifndef PYFT_RING_HOLD_H_
#define PYFT_RING_HOLD_H_

#include <cstdint>

#include "ring/wait.h"

namespace pyft::ring {

// Whether the agent wants the program to stand still behind the cut of this step.
bool is_hold_wanted(const ControlPage& page, uint64_t step);
// Says that the client stands behind a cut, which ends before that ring position. False: no agent
// wants it to.
bool begin_hold(ControlPage& page, uint64_t step, uint64_t cut, uint64_t position);
// Waits until it is released, and says that it goes on. kOk too when the time is over.
WaitStatus end_hold(ControlPage& page, const Liveness& liveness);

}  // namespace pyft::ring

#endif  // PYFT_RING_HOLD_H_
