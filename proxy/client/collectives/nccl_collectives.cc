// Collectives, sends and receives. What the server could not take back is checked here.
#include "client/collectives/nccl.h"
#include "client/memory/virtual_memory.h"

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

namespace {

// One call's arguments. Elements are those of this rank's buffers.
struct Arguments {
  Call call;
  const char* name;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  ncclComm_t comm;
  cudaStream_t stream;
  int op = ncclSum;
  int root = 0;  // or the peer
};

// How many elements a rank reads and writes.
struct Elements {
  size_t read, written;
};

Elements elements(const Arguments& a, const Communicator& c) {
  const auto all = a.count * static_cast<size_t>(c.size);
  const bool root = c.rank == a.root;
  switch (a.call) {
    case Call::ncclReduceScatter:
      return {all, a.count};
    case Call::ncclAllGather:
      return {a.count, all};
    case Call::ncclAlltoAll:
      return {all, all};
    case Call::ncclGather:
      return {a.count, root ? all : 0};
    case Call::ncclScatter:
      return {root ? all : 0, a.count};
    case Call::ncclReduce:
      return {a.count, root ? a.count : 0};
    case Call::ncclBroadcast:
      return {root ? a.count : 0, a.count};
    case Call::ncclSend:
      return {a.count, 0};
    case Call::ncclRecv:
      return {0, a.count};
    default:
      return {a.count, a.count};
  }
}

// Memory the server may touch for us: inside one allocation of this device, pinned for it, or
// mapped by the program in one piece or several.
bool accessible(Device& device, uint64_t address, uint64_t bytes) {
  if (!bytes) return true;
  {
    const std::lock_guard lock(device.memory_mutex);
    for (const Window* window : {&device.memory, &device.pinned}) {
      uint64_t start = 0, size = 0;
      if (window->find(address, &start, &size))
        return address - start <= size && bytes <= size - (address - start);
    }
  }
  // Without that lock: a thread that reserves addresses takes the one of the mappings first.
  return covers(device, address, bytes);
}

ncclResult_t check_numbers(const Arguments& a, const Communicator& c) {
  const auto bad = [&a](const char* what, long long value) {
    return refuse_nccl(a.name, ncclInvalidArgument,
                       std::string("with ") + what + " [" + std::to_string(value) + "]");
  };
  if (a.type < 0 || a.type >= ncclNumTypes) return bad("data type", a.type);
  if (a.op < 0) return bad("operation", a.op);
  if (a.root < 0 || a.root >= c.size) return bad("root or peer", a.root);
  if (a.count > SIZE_MAX / 8 / static_cast<size_t>(c.size))
    return bad("count", static_cast<long long>(a.count));
  return ncclSuccess;
}

ncclResult_t check_memory(const Arguments& a, Communicator& c) {
  const Elements n = elements(a, c);
  const size_t width = kNcclElementBytes[a.type];
  const auto check = [&](const void* buffer, size_t count) {
    const auto address = reinterpret_cast<uint64_t>(buffer);
    if (accessible(c.device, address, count * width)) return ncclSuccess;
    return refuse_nccl(a.name, ncclInvalidArgument,
                       "with [" + std::to_string(count * width) + "] bytes at [" +
                           std::to_string(address) + "], which are no memory of device [" +
                           std::to_string(c.device.ordinal()) + "]");
  };
  const ncclResult_t read = check(a.send, n.read);
  return read != ncclSuccess ? read : check(a.receive, n.written);
}

ncclResult_t run(const Arguments& a) {
  Communicator* c = communicator_of(a.comm);
  if (!c) return no_communicator(a.name);
  if (const ncclResult_t error = async_error(*c); error != ncclSuccess) return error;
  if (const ncclResult_t error = check_numbers(a, *c); error != ncclSuccess) return error;
  if (const ncclResult_t error = check_memory(a, *c); error != ncclSuccess) return error;
  cudaError_t error;
  Stream* stream = stream_of(a.stream, &error);
  if (!stream) return nccl_result(error);
  // Streams 0, 1 and 2 mean those of the communicator's device, whichever device is current.
  const auto value = reinterpret_cast<uint64_t>(a.stream);
  if (value <= 2) stream = default_stream(c->device, value, &error);
  if (!stream) return nccl_result(error);
  if (&stream->device != &c->device)
    return refuse_nccl(a.name, ncclInvalidArgument, "with a stream of another device");
  return submit({a.call,
                 c,
                 stream,
                 {c->handle, stream->handle, reinterpret_cast<uint64_t>(a.send),
                  reinterpret_cast<uint64_t>(a.receive), a.count, a.type, a.op, a.root, 0}});
}

}  // namespace

PYFT_API ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                    cudaStream_t stream) {
  const Entered entered(Api::ncclAllReduce);
  return run({Call::ncclAllReduce, __func__, sendbuff, recvbuff, count, datatype, comm, stream,
              static_cast<int>(op)});
}

PYFT_API ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count,
                                 ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                                 cudaStream_t stream) {
  const Entered entered(Api::ncclReduce);
  return run({Call::ncclReduce, __func__, sendbuff, recvbuff, count, datatype, comm, stream,
              static_cast<int>(op), root});
}

PYFT_API ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                        ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                        cudaStream_t stream) {
  const Entered entered(Api::ncclReduceScatter);
  return run({Call::ncclReduceScatter, __func__, sendbuff, recvbuff, recvcount, datatype, comm,
              stream, static_cast<int>(op)});
}

PYFT_API ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                    ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  const Entered entered(Api::ncclAllGather);
  return run(
      {Call::ncclAllGather, __func__, sendbuff, recvbuff, sendcount, datatype, comm, stream});
}

PYFT_API ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                   ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  const Entered entered(Api::ncclAlltoAll);
  return run({Call::ncclAlltoAll, __func__, sendbuff, recvbuff, count, datatype, comm, stream});
}

PYFT_API ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count,
                                 ncclDataType_t datatype, int root, ncclComm_t comm,
                                 cudaStream_t stream) {
  const Entered entered(Api::ncclGather);
  return run({Call::ncclGather, __func__, sendbuff, recvbuff, count, datatype, comm, stream,
              ncclSum, root});
}

PYFT_API ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count,
                                  ncclDataType_t datatype, int root, ncclComm_t comm,
                                  cudaStream_t stream) {
  const Entered entered(Api::ncclScatter);
  return run({Call::ncclScatter, __func__, sendbuff, recvbuff, count, datatype, comm, stream,
              ncclSum, root});
}

PYFT_API ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                    ncclDataType_t datatype, int root, ncclComm_t comm,
                                    cudaStream_t stream) {
  const Entered entered(Api::ncclBroadcast);
  return run({Call::ncclBroadcast, __func__, sendbuff, recvbuff, count, datatype, comm, stream,
              ncclSum, root});
}

PYFT_API ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root,
                                ncclComm_t comm, cudaStream_t stream) {
  const Entered entered(Api::ncclBcast);
  return run(
      {Call::ncclBroadcast, __func__, buff, buff, count, datatype, comm, stream, ncclSum, root});
}

PYFT_API ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype,
                               int peer, ncclComm_t comm, cudaStream_t stream) {
  const Entered entered(Api::ncclSend);
  return run(
      {Call::ncclSend, __func__, sendbuff, nullptr, count, datatype, comm, stream, ncclSum, peer});
}

PYFT_API ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                               ncclComm_t comm, cudaStream_t stream) {
  const Entered entered(Api::ncclRecv);
  return run(
      {Call::ncclRecv, __func__, nullptr, recvbuff, count, datatype, comm, stream, ncclSum, peer});
}
