// What an operation was given, as one hash: a repetition with another one has diverged. And how
// operations are named in records.
#ifndef FLEXCCL_RUNNER_REPLAY_H_
#define FLEXCCL_RUNNER_REPLAY_H_

#include <vector>

#include "algo/operation.h"
#include "base/hash.h"
#include "membership/membership.h"

namespace flexccl {

Hash input_hash(const Operation& operation, Ring ring);
Hash input_hash(const std::vector<PointToPoint>& calls);
// For a replay: roots are slots in it, as in records. Which ranks are live may have changed since.
Membership with_all_slots(Membership self);

}  // namespace flexccl

#endif  // FLEXCCL_RUNNER_REPLAY_H_
