#include <cstring>
#include <limits>

#include "api/state.h"

namespace flexccl {
namespace {

// What the arguments of every call have in common.
struct Arguments {
  Collective collective;
  const void* in;
  void* out;
  std::size_t count;
  ncclDataType_t dtype;
  int root = -1;
  bool needs_in = true, needs_out = true;
};

OpDescriptor check(const Arguments& call, const Communicator& communicator) {
  const std::size_t element = element_size(call.dtype);
  const auto view = communicator.view();
  const Membership& self = *view;
  const int n = self.ring().size;
  if (!communicator.ready())
    fail(ncclInvalidUsage, "flexccl: a new rank has to call ncclCommSetupNewRank first");
  if (!element) fail(ncclInvalidArgument, "flexccl: datatype [", int(call.dtype), "] is unknown");
  // A rank that was there before may be named in a replay, and by a broadcast that others have.
  const bool was_one = call.collective == Collective::kBroadcast && self.repair_ms &&
                       !self.partial && self.has_removed(call.root);
  const bool is_one = self.position(call.root) >= 0 || was_one ||
                      (call.root < self.slots() && communicator.replaying());
  if (call.root < -1 || (call.root >= 0 && !is_one))
    fail(ncclInvalidArgument, "flexccl: rank [", call.root, "] is not one of [", n, "] ranks");
  if (call.count >
      std::numeric_limits<std::size_t>::max() / 2 / element / static_cast<std::size_t>(n))
    fail(ncclInvalidArgument, "flexccl: count [", call.count, "] is too large");
  if (call.count && call.needs_in) require(call.in, "sendbuff");
  if (call.count && call.needs_out) require(call.out, "recvbuff");
  if (const ncclResult_t code = communicator.async_error(); code != ncclSuccess)
    throw Error(code, communicator.error_sentence());
  return {.collective = call.collective,
          .dtype = static_cast<std::uint8_t>(call.dtype),
          .root = call.root,
          .count = call.count};
}

Buffers buffers(const Arguments& call) {
  return {static_cast<const std::byte*>(call.in), static_cast<std::byte*>(call.out)};
}

struct Operator {
  Reduction reduction;
  const void* device_scalar = nullptr;
  std::uint8_t name = kNoRedop;

  Reduction now(int nranks) const {
    if (name == ncclAvg) return average(reduction.dtype, nranks);
    Reduction copy = reduction;
    if (device_scalar) std::memcpy(&copy.scalar, device_scalar, element_size(copy.dtype));
    return copy;
  }
};

Operator find_operator(ncclRedOp_t op, ncclDataType_t dtype, const Communicator& communicator) {
  Operator found{.reduction = {.dtype = dtype}, .name = static_cast<std::uint8_t>(op)};
  switch (static_cast<int>(op)) {
    case ncclSum:
    case ncclAvg:
      return found;
    case ncclProd:
      found.reduction.combine = Combine::kProd;
      return found;
    case ncclMax:
      found.reduction.combine = Combine::kMax;
      return found;
    case ncclMin:
      found.reduction.combine = Combine::kMin;
      return found;
    default:
      break;
  }
  const CustomOp custom = communicator.find_op(op);
  if (custom.dtype != dtype)
    fail(ncclInvalidArgument, "flexccl: the operator was made for datatype [", int(custom.dtype),
         "], the call uses [", int(dtype), "]");
  found.reduction.premultiplies = true;
  found.reduction.scalar = custom.scalar;
  found.device_scalar = custom.device_scalar;
  found.name = kPreMulSum;
  return found;
}

// The root of a call is a rank's number; schedules know positions. Of a broadcast another rank may
// have the result when the root is gone: it has no position then.
OpDescriptor placed(OpDescriptor op, const Membership& self) {
  if (op.root < 0) return op;
  const int slot = op.root;
  op.root = self.position(slot);
  if (op.root < 0 && op.collective != Collective::kBroadcast)
    fail(ncclInvalidUsage, "flexccl: the root, rank [", slot, "], was removed from communicator");
  return op;
}

using ReduceAlgorithm = Schedule (*)(const OpDescriptor&, const Reduction&, Ring, Buffers);
using MoveAlgorithm = Schedule (*)(const OpDescriptor&, Ring, Buffers);

ncclResult_t reducing(const Arguments& call, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                      ReduceAlgorithm algorithm) {
  return guarded([&] {
    const auto communicator = live(comm);
    Arguments checked = call;
    checked.needs_out = call.needs_out || communicator->view()->slot == call.root;
    OpDescriptor descriptor = check(checked, *communicator);
    const Operator with = find_operator(op, call.dtype, *communicator);
    descriptor.redop = with.name;
    enqueue({communicator,
             stream,
             [=, where = buffers(call)](const Membership& self) {
               return Operation{.op = placed(descriptor, self),
                                .reduction = with.now(self.ring().size),
                                .buffers = where,
                                .reduce = algorithm};
             },
             {}});
  });
}

ncclResult_t moving(Arguments call, ncclComm_t comm, cudaStream_t stream, MoveAlgorithm algorithm) {
  return guarded([&] {
    const auto communicator = live(comm);
    const bool is_root = communicator->view()->slot == call.root;
    if (call.collective == Collective::kGather) call.needs_out = is_root;
    if (call.collective == Collective::kScatter || call.collective == Collective::kBroadcast)
      call.needs_in = is_root;
    const OpDescriptor descriptor = check(call, *communicator);
    enqueue({communicator,
             stream,
             [=, where = buffers(call)](const Membership& self) {
               return Operation{
                   .op = placed(descriptor, self), .buffers = where, .move = algorithm};
             },
             {}});
  });
}

ncclResult_t transfer(bool sends, const void* in, void* out, std::size_t count,
                      ncclDataType_t dtype, int peer, ncclComm_t comm, cudaStream_t stream) {
  return guarded([&] {
    const auto communicator = live(comm);
    Arguments call{Collective::kSendRecv, in, out, count, dtype, peer, sends, !sends};
    if (peer < 0) fail(ncclInvalidArgument, "flexccl: peer [", peer, "] is not a rank");
    OpDescriptor descriptor = check(call, *communicator);
    descriptor.root = -1;  // both sides describe the message in the same words
    if (count == 0) return;
    enqueue({communicator, stream, nullptr, {sends, peer, buffers(call), descriptor}});
  });
}

}  // namespace
}  // namespace flexccl

using flexccl::Collective;

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return flexccl::reducing({Collective::kAllReduce, sendbuff, recvbuff, count, datatype}, op, comm,
                           stream, flexccl::all_reduce);
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return flexccl::reducing({Collective::kReduceScatter, sendbuff, recvbuff, recvcount, datatype},
                           op, comm, stream, flexccl::reduce_scatter);
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  if (root < 0) root = INT_MAX;  // refused as every other number that is not a rank
  return flexccl::reducing(
      {Collective::kReduce, sendbuff, recvbuff, count, datatype, root, true, false}, op, comm,
      stream, flexccl::reduce);
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return flexccl::moving({Collective::kAllGather, sendbuff, recvbuff, sendcount, datatype}, comm,
                         stream, flexccl::all_gather);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  if (root < 0) root = INT_MAX;
  return flexccl::moving({Collective::kBroadcast, sendbuff, recvbuff, count, datatype, root}, comm,
                         stream, flexccl::broadcast);
}

ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  if (count && sendbuff == recvbuff)
    return flexccl::guarded(
        [] { flexccl::fail(ncclInvalidArgument, "flexccl: ncclAlltoAll cannot work in place"); });
  return flexccl::moving({Collective::kAllToAll, sendbuff, recvbuff, count, datatype}, comm, stream,
                         flexccl::all_to_all);
}

ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  if (root < 0) root = INT_MAX;
  return flexccl::moving({Collective::kGather, sendbuff, recvbuff, count, datatype, root}, comm,
                         stream, flexccl::gather);
}

ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  if (root < 0) root = INT_MAX;
  return flexccl::moving({Collective::kScatter, sendbuff, recvbuff, count, datatype, root}, comm,
                         stream, flexccl::scatter);
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return flexccl::transfer(true, sendbuff, nullptr, count, datatype, peer, comm, stream);
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return flexccl::transfer(false, nullptr, recvbuff, count, datatype, peer, comm, stream);
}
