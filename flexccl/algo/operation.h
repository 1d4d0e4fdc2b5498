// One collective as it was called: what is needed to run it, to run it again, and to know what of
// it others may need. Ranks are slots here; schedules work with positions in the ring.
#ifndef FLEXCCL_ALGO_OPERATION_H_
#define FLEXCCL_ALGO_OPERATION_H_

#include "algo/schedule.h"

namespace flexccl {

struct Operation {
  OpDescriptor op = {};  // its root is a position
  Reduction reduction = {};
  Buffers buffers = {};
  Schedule (*reduce)(const OpDescriptor&, const Reduction&, Ring, Buffers) = nullptr;
  Schedule (*move)(const OpDescriptor&, Ring, Buffers) = nullptr;

  Schedule schedule(Ring ring, Buffers where) const {
    return reduce ? reduce(op, reduction, ring, where) : move(op, ring, where);
  }
  std::size_t unit() const {
    return op.count * element_size(static_cast<ncclDataType_t>(op.dtype));
  }
};

// All members get the same bytes: the first complete result serves all.
bool identical_output(Collective collective);
// No member can complete it before all have begun it.
bool synchronising(Collective collective);
// A broadcast whose root was removed: only a rank that has the result can give it.
bool lacks_root(const Operation& operation);
// Its buffers have one block per rank.
bool has_blocks(Collective collective);
// Bytes that this rank puts in and gets out; 0 where its buffer has no meaning.
std::size_t input_bytes(const Operation& operation, Ring ring);
std::size_t output_bytes(const Operation& operation, Ring ring);

std::size_t message_bytes(const PointToPoint& call);

}  // namespace flexccl

#endif  // FLEXCCL_ALGO_OPERATION_H_
