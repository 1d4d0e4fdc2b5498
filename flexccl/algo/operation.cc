#include "algo/operation.h"

namespace flexccl {

bool identical_output(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kAllGather ||
         collective == Collective::kBroadcast || collective == Collective::kSplit;
}

bool synchronising(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kAllGather ||
         collective == Collective::kReduceScatter || collective == Collective::kAllToAll ||
         collective == Collective::kSplit;
}

bool lacks_root(const Operation& operation) {
  return operation.op.collective == Collective::kBroadcast && operation.op.root < 0;
}

bool has_blocks(Collective collective) {
  return collective != Collective::kAllReduce && collective != Collective::kBroadcast &&
         collective != Collective::kReduce;
}

std::size_t input_bytes(const Operation& operation, Ring ring) {
  const std::size_t unit = operation.unit(), all = unit * static_cast<std::size_t>(ring.size);
  switch (operation.op.collective) {
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return all;
    case Collective::kScatter:
      return ring.rank == operation.op.root ? all : 0;
    case Collective::kBroadcast:
      return ring.rank == operation.op.root ? unit : 0;
    default:
      return unit;
  }
}

std::size_t output_bytes(const Operation& operation, Ring ring) {
  const std::size_t unit = operation.unit(), all = unit * static_cast<std::size_t>(ring.size);
  switch (operation.op.collective) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kSplit:
      return all;
    case Collective::kGather:
      return ring.rank == operation.op.root ? all : 0;
    case Collective::kReduce:
      return ring.rank == operation.op.root ? unit : 0;
    default:
      return unit;
  }
}

std::size_t message_bytes(const PointToPoint& call) {
  return call.op.count * element_size(static_cast<ncclDataType_t>(call.op.dtype));
}

}  // namespace flexccl
