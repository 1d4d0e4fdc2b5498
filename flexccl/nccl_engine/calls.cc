// What goes to NCCL as it is, but for ranks: callers name slots, NCCL numbers the live ones.
#include <cstring>

#include "nccl_engine/communicator.h"

namespace flexccl::nccl_engine {
namespace {

// The operator of the present NCCL communicator; made anew after each repair.
ncclRedOp_t real_op(ncclComm& comm, ncclRedOp_t op) {
  if (static_cast<int>(op) < ncclNumOps) return op;
  const auto found = comm.ops.find(op);
  if (found == comm.ops.end())
    fail(ncclInvalidArgument, "flexccl: [", int(op), "] is no operator of this communicator");
  PreMulSum& sum = found->second;
  if (!sum.real) {
    void* scalar = sum.residence == ncclScalarDevice ? sum.device_scalar : &sum.host_scalar;
    ncclRedOp_t made;
    check(library().ncclRedOpCreatePreMulSum(&made, scalar, sum.dtype, sum.residence, comm.real),
          comm.real, "ncclRedOpCreatePreMulSum");
    sum.real = made;
  }
  return *sum.real;
}

std::size_t element_bytes(ncclDataType_t dtype) {
  constexpr unsigned char kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return dtype >= 0 && dtype < ncclNumTypes ? kBytes[dtype] : 0;
}

}  // namespace
}  // namespace flexccl::nccl_engine

namespace engine = flexccl::nccl_engine;
using engine::guarded;
using engine::library;
using engine::on_real;
using engine::position_of;
using engine::real_op;

ncclResult_t ncclGetVersion(int* version) {
  return guarded([&] {
    engine::require(version, "version");
    *version = library().version;
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  const char* text = "NCCL could not be loaded";
  static_cast<void>(guarded([&] { text = library().ncclGetErrorString(result); }));
  return text;
}

const char* ncclGetLastError(ncclComm_t) {
  return engine::last_sentence().c_str();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return guarded([&] {
    engine::require(asyncError, "asyncError");
    const auto self = engine::live(comm);
    const std::scoped_lock lock(self->mutex);
    *asyncError = ncclRemoteError;  // the NCCL communicator was given up: waits for a repair
    if (self->real)
      engine::check(library().ncclCommGetAsyncError(self->real, asyncError), self->real,
                    "ncclCommGetAsyncError");
  });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return guarded([&] {
    engine::require(count, "count");
    const auto self = engine::live(comm);
    const std::scoped_lock lock(self->mutex);
    *count = self->members.count();
  });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return guarded([&] {
    engine::require(rank, "rank");
    *rank = engine::live(comm)->slot;
  });
}

ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  return guarded([&] {
    const auto call = engine::optional(library().ncclMemAlloc, "ncclMemAlloc");
    engine::check(call(ptr, size), nullptr, "ncclMemAlloc");
  });
}

ncclResult_t ncclMemFree(void* ptr) {
  return guarded([&] {
    const auto call = engine::optional(library().ncclMemFree, "ncclMemFree");
    engine::check(call(ptr), nullptr, "ncclMemFree");
  });
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  return on_real(comm, "ncclCommRegister", [&](ncclComm& self) {
    const auto call = engine::optional(library().ncclCommRegister, "ncclCommRegister");
    const ncclResult_t code = call(self.real, buff, size, handle);
    if (code == ncclSuccess) self.registrations.insert(*handle);
    return code;
  });
}

// A registration ends with the NCCL communicator it was made on: then there is nothing left to do.
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return guarded([&] {
    const auto self = engine::live(comm);
    const std::scoped_lock lock(self->mutex);
    if (!self->real || !self->registrations.erase(handle)) return;
    engine::check(library().ncclCommDeregister(self->real, handle), self->real,
                  "ncclCommDeregister");
  });
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded([&] {
    engine::require(op, "op");
    engine::require(scalar, "scalar");
    const std::size_t bytes = engine::element_bytes(datatype);
    if (!bytes)
      flexccl::fail(ncclInvalidArgument, "flexccl: datatype [", int(datatype), "] is unknown");
    engine::PreMulSum sum{.dtype = datatype, .residence = residence, .real = {}};
    if (residence == ncclScalarDevice)
      sum.device_scalar = scalar;
    else
      std::memcpy(&sum.host_scalar, scalar, bytes);
    const auto self = engine::live(comm);
    const std::scoped_lock lock(self->mutex);
    self->ops[self->next_op] = sum;
    *op = static_cast<ncclRedOp_t>(self->next_op++);
  });
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return guarded([&] {
    const auto self = engine::live(comm);
    const std::scoped_lock lock(self->mutex);
    const auto found = self->ops.find(op);
    if (found == self->ops.end())
      flexccl::fail(ncclInvalidArgument, "flexccl: [", int(op), "] is no created operator");
    const auto real = found->second.real;
    self->ops.erase(found);
    if (real && self->real)
      engine::check(library().ncclRedOpDestroy(*real, self->real), self->real, "ncclRedOpDestroy");
  });
}

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return on_real(comm, "ncclAllReduce", [&](ncclComm& self) {
    return library().ncclAllReduce(sendbuff, recvbuff, count, datatype, real_op(self, op),
                                   self.real, stream);
  });
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return on_real(comm, "ncclReduceScatter", [&](ncclComm& self) {
    return library().ncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, real_op(self, op),
                                       self.real, stream);
  });
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return on_real(comm, "ncclReduce", [&](ncclComm& self) {
    return library().ncclReduce(sendbuff, recvbuff, count, datatype, real_op(self, op),
                                position_of(self, root), self.real, stream);
  });
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return on_real(comm, "ncclAllGather", [&](ncclComm& self) {
    return library().ncclAllGather(sendbuff, recvbuff, sendcount, datatype, self.real, stream);
  });
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return on_real(comm, "ncclBroadcast", [&](ncclComm& self) {
    return library().ncclBroadcast(sendbuff, recvbuff, count, datatype, position_of(self, root),
                                   self.real, stream);
  });
}

ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return on_real(comm, "ncclAlltoAll", [&](ncclComm& self) {
    const auto call = engine::optional(library().ncclAlltoAll, "ncclAlltoAll");
    return call(sendbuff, recvbuff, count, datatype, self.real, stream);
  });
}

ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  return on_real(comm, "ncclGather", [&](ncclComm& self) {
    const auto call = engine::optional(library().ncclGather, "ncclGather");
    return call(sendbuff, recvbuff, count, datatype, position_of(self, root), self.real, stream);
  });
}

ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return on_real(comm, "ncclScatter", [&](ncclComm& self) {
    const auto call = engine::optional(library().ncclScatter, "ncclScatter");
    return call(sendbuff, recvbuff, count, datatype, position_of(self, root), self.real, stream);
  });
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return on_real(comm, "ncclSend", [&](ncclComm& self) {
    return library().ncclSend(sendbuff, count, datatype, position_of(self, peer), self.real,
                              stream);
  });
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return on_real(comm, "ncclRecv", [&](ncclComm& self) {
    return library().ncclRecv(recvbuff, count, datatype, position_of(self, peer), self.real,
                              stream);
  });
}
