// flexccl on the streams of a real GPU: inputs are copied to page-locked host memory, the ranks
// work there while the stream stands still, and results are copied back. Each function has the
// meaning of NCCL's without the prefix; the server's table takes these instead.
#include <flexccl.h>

#include <utility>
#include <vector>

#include "api/wire_types.h"
#include "collectives/holds.h"
#include "pyft/log.h"

namespace {

using pyft::collectives::driver;
using pyft::collectives::give_staging;
using pyft::collectives::notify;
using pyft::collectives::take_staging;

struct Buffer {  // of the program; 0 bytes: this rank has no use for it
  const void* device = nullptr;
  size_t bytes = 0;
};

// What remains to be done when the library has put an operation into its stream.
struct Rest {
  cudaStream_t stream;
  Buffer result;
  std::byte* in;
  std::byte* out;  // may be `in`
};

thread_local int group_depth = 0;
thread_local std::vector<Rest> of_group;

size_t element_bytes(ncclDataType_t type) {
  const auto number = static_cast<size_t>(type);
  return number < std::size(pyft::kNcclElementBytes) ? pyft::kNcclElementBytes[number] : 0;
}

CUdeviceptr address(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

void give_back(Rest* rest) {
  if (rest->out != rest->in) give_staging(rest->out);
  give_staging(rest->in);
  delete rest;
}

// Memory is given back when the stream has used it.
ncclResult_t finish(const Rest& rest, bool worked) {
  int code = 0;
  if (worked && rest.result.bytes)
    code =
        driver().to_device(address(rest.result.device), rest.out, rest.result.bytes, rest.stream);
  const auto later = [](void* data) { give_back(static_cast<Rest*>(data)); };
  auto* const kept = new Rest(rest);
  // A stream that takes no more commands belongs to a context that is lost, and the memory with it.
  if (const int refused = notify(rest.stream, later, kept); refused && !code) code = refused;
  return code ? ncclUnhandledCudaError : ncclSuccess;
}

ncclResult_t refused(const char* what) {
  PYFT_LOG(kServer, kWarning, "a staged collective: %s", what);
  return ncclUnhandledCudaError;
}

template <class Call>
ncclResult_t staged(cudaStream_t stream, Buffer send, Buffer receive, Call call) {
  if (!send.bytes && !receive.bytes) return call(send.device, const_cast<void*>(receive.device));
  const bool in_place = send.device == receive.device && send.bytes == receive.bytes;
  Rest rest{stream, receive, nullptr, nullptr};
  if (send.bytes && !(rest.in = take_staging(send.bytes)))
    return refused("no page-locked memory for its input");
  rest.out = in_place ? rest.in : nullptr;
  if (receive.bytes && !rest.out && !(rest.out = take_staging(receive.bytes))) {
    give_staging(rest.in);
    return refused("no page-locked memory for its result");
  }
  if (send.bytes && driver().to_host(rest.in, address(send.device), send.bytes, stream)) {
    if (!in_place) give_staging(rest.out);
    give_staging(rest.in);
    return refused("its input cannot be copied");
  }
  std::byte* const in = rest.in ? rest.in : rest.out;
  std::byte* const out = rest.out ? rest.out : rest.in;
  const ncclResult_t code = call(in, out);
  if (code == ncclSuccess && group_depth) {
    of_group.push_back(rest);
    return code;
  }
  const ncclResult_t finished = finish(rest, code == ncclSuccess);
  return code ? code : finished;
}

int rank_of(ncclComm_t comm) {
  int rank = 0;
  ncclCommUserRank(comm, &rank);
  return rank;
}

size_t size_of(ncclComm_t comm) {
  int size = 1;
  ncclCommCount(comm, &size);
  return static_cast<size_t>(size);
}

Buffer only(bool used, const void* device, size_t bytes) {
  return {device, used ? bytes : 0};
}

}  // namespace

#define STAGED(name) FLEXCCL_API ncclResult_t pyft_staged_##name

extern "C" {

STAGED(ncclAllReduce)(const void* send, void* receive, size_t count, ncclDataType_t type,
                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * element_bytes(type);
  return staged(stream, {send, bytes}, {receive, bytes}, [&](const void* in, void* out) {
    return ncclAllReduce(in, out, count, type, op, comm, stream);
  });
}

STAGED(ncclReduce)(const void* send, void* receive, size_t count, ncclDataType_t type,
                   ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * element_bytes(type);
  const Buffer result = only(rank_of(comm) == root, receive, bytes);
  return staged(stream, {send, bytes}, result, [&](const void* in, void* out) {
    return ncclReduce(in, out, count, type, op, root, comm, stream);
  });
}

STAGED(ncclReduceScatter)(const void* send, void* receive, size_t count, ncclDataType_t type,
                          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * element_bytes(type);
  return staged(stream, {send, bytes * size_of(comm)}, {receive, bytes},
                [&](const void* in, void* out) {
                  return ncclReduceScatter(in, out, count, type, op, comm, stream);
                });
}

STAGED(ncclAllGather)(const void* send, void* receive, size_t count, ncclDataType_t type,
                      ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * element_bytes(type);
  return staged(
      stream, {send, bytes}, {receive, bytes * size_of(comm)},
      [&](const void* in, void* out) { return ncclAllGather(in, out, count, type, comm, stream); });
}

STAGED(ncclAlltoAll)(const void* send, void* receive, size_t count, ncclDataType_t type,
                     ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * element_bytes(type) * size_of(comm);
  return staged(stream, {send, bytes}, {receive, bytes}, [&](const void* in, void* out) {
    return ncclAlltoAll(in, out, count, type, comm, stream);
  });
}

STAGED(ncclBroadcast)(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                      ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * element_bytes(type);
  const Buffer input = only(rank_of(comm) == root, send, bytes);
  return staged(stream, input, {receive, bytes}, [&](const void* in, void* out) {
    return ncclBroadcast(in, out, count, type, root, comm, stream);
  });
}

STAGED(ncclGather)(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                   ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * element_bytes(type);
  const Buffer result = only(rank_of(comm) == root, receive, bytes * size_of(comm));
  return staged(stream, {send, bytes}, result, [&](const void* in, void* out) {
    return ncclGather(in, out, count, type, root, comm, stream);
  });
}

STAGED(ncclScatter)(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                    ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * element_bytes(type);
  const Buffer input = only(rank_of(comm) == root, send, bytes * size_of(comm));
  return staged(stream, input, {receive, bytes}, [&](const void* in, void* out) {
    return ncclScatter(in, out, count, type, root, comm, stream);
  });
}

STAGED(ncclSend)(const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                 cudaStream_t stream) {
  return staged(stream, {send, count * element_bytes(type)}, {}, [&](const void* in, void*) {
    return ncclSend(in, count, type, peer, comm, stream);
  });
}

STAGED(ncclRecv)(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                 cudaStream_t stream) {
  return staged(stream, {}, {receive, count * element_bytes(type)}, [&](const void*, void* out) {
    return ncclRecv(out, count, type, peer, comm, stream);
  });
}

STAGED(ncclGroupStart)() {
  ++group_depth;
  return ncclGroupStart();
}

// Results are copied back behind the operations, which the end of the group has put there.
STAGED(ncclGroupEnd)() {
  ncclResult_t code = ncclGroupEnd();
  if (group_depth == 0 || --group_depth > 0) return code;
  for (const Rest& rest : std::exchange(of_group, {}))
    if (const ncclResult_t finished = finish(rest, code == ncclSuccess); finished && !code)
      code = finished;
  return code;
}

STAGED(ncclRedOpCreatePreMulSum)(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                 ncclScalarResidence_t residence, ncclComm_t comm) {
  if (residence == ncclScalarHostImmediate)
    return ncclRedOpCreatePreMulSum(op, scalar, type, residence, comm);
  refused("ncclRedOpCreatePreMulSum with a scalar in device memory is not supported");
  return ncclInvalidUsage;
}
}
