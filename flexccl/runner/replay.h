// What an operation was given, as one hash: a repetition with another one has diverged.
#ifndef FLEXCCL_RUNNER_REPLAY_H_
#define FLEXCCL_RUNNER_REPLAY_H_

#include <vector>

#include "algo/operation.h"
#include "base/hash.h"

namespace flexccl {

Hash input_hash(const Operation& operation, Ring ring);
Hash input_hash(const std::vector<PointToPoint>& calls);

}  // namespace flexccl

#endif  // FLEXCCL_RUNNER_REPLAY_H_
