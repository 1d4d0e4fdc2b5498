// NCCL for communicators of one rank: what `torchrun --nproc-per-node 1` makes. Every collective is
// then a copy in stream order, or nothing at all when it is in place. More ranks are refused.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api/support.h"

namespace api = softgpu::api;

// The part of NCCL's ABI (2.28.9) that is used here; its header is in no package the build needs.
enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
};
enum ncclDataType_t : int { ncclNumTypes = 12 };
enum ncclRedOp_t : int { ncclNumOps = 5 };
enum ncclScalarResidence_t : int {};
struct ncclConfig_t;
struct ncclWindow_vidmem;
struct ncclUniqueId {
  char internal[128];
};
struct ncclComm {
  int device;
};
using ncclComm_t = ncclComm*;

namespace {

constexpr int kVersion = 22809;  // what PyTorch 2.11 was compiled with
constexpr int kNoColor = -1;

struct Communicators {
  std::mutex mutex;
  std::map<const ncclComm*, std::unique_ptr<ncclComm>> live;
};

// Never destroyed: PyTorch's watchdog threads ask for communicators while the process exits.
Communicators& communicators() {
  static auto* const all = new Communicators;
  return *all;
}

// A send or receive whose other half comes later in the group.
struct Half {
  ncclComm_t comm;
  uint64_t address;
  size_t bytes;
  cudaStream_t stream;
};

struct Group {
  int depth = 0;
  std::vector<Half> sends, receives;
};
thread_local Group group;
thread_local std::string last_sentence;

ncclResult_t refuse(ncclResult_t code, const std::string& sentence) {
  last_sentence = sentence;
  fprintf(stderr, "softgpu: %s\n", sentence.c_str());
  return code;
}

bool known(const ncclComm* comm) {
  Communicators& all = communicators();
  const std::scoped_lock lock(all.mutex);
  return all.live.contains(comm);
}

ncclResult_t unknown(const char* call) {
  return refuse(ncclInvalidArgument, std::string("[") + call + "] got no live communicator");
}

ncclResult_t create(const char* call, ncclComm_t* comm, int ranks, int rank, int device) {
  if (!comm)
    return refuse(ncclInvalidArgument, std::string("[") + call + "] got no result pointer");
  *comm = nullptr;
  if (ranks > 1) {
    return refuse(ncclInvalidUsage,
                  std::string("[") + call + "] with [" + std::to_string(ranks) +
                      "] ranks: collectives over several ranks are not in this version");
  }
  if (ranks != 1 || rank != 0) {
    return refuse(ncclInvalidArgument, std::string("[") + call + "] with rank [" +
                                           std::to_string(rank) + "] of [" + std::to_string(ranks) +
                                           "]");
  }
  auto made = std::make_unique<ncclComm>(ncclComm{device});
  Communicators& all = communicators();
  const std::scoped_lock lock(all.mutex);
  *comm = made.get();
  all.live.emplace(made.get(), std::move(made));
  return ncclSuccess;
}

ncclResult_t create_here(const char* call, ncclComm_t* comm, int ranks, int rank) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
  return create(call, comm, ranks, rank, device);
}

ncclResult_t end(const char* call, ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  Communicators& all = communicators();
  const std::scoped_lock lock(all.mutex);
  return all.live.erase(comm) ? ncclSuccess : unknown(call);
}

// 0 for a number that is no data type.
size_t bytes_of(ncclDataType_t type) {
  constexpr uint8_t kBytes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < ncclNumTypes ? kBytes[type] : 0;
}

ncclResult_t move(uint64_t to, uint64_t from, size_t bytes, cudaStream_t stream) {
  if (to == from || bytes == 0) return ncclSuccess;
  return cudaMemcpyAsync(api::pointer(to), api::pointer(from), bytes, cudaMemcpyDefault, stream) ==
                 cudaSuccess
             ? ncclSuccess
             : ncclUnhandledCudaError;
}

// What every collective is with one rank: the input becomes the output, in stream order. Any
// reduction of one operand is that operand.
ncclResult_t collective(const char* call, const void* from, void* to, size_t count,
                        ncclDataType_t type, int operation, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  if (!known(comm)) return unknown(call);
  if (!bytes_of(type) || operation < 0 || operation >= ncclNumOps || root != 0) {
    return refuse(ncclInvalidArgument, std::string("[") + call + "] with data type [" +
                                           std::to_string(type) + "], operation [" +
                                           std::to_string(operation) + "], root [" +
                                           std::to_string(root) + "]");
  }
  return move(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from),
              count * bytes_of(type), stream);
}

ncclResult_t queue_half(const char* call, std::vector<Half>& halves, const void* buffer,
                        size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                        cudaStream_t stream) {
  if (!known(comm)) return unknown(call);
  if (!bytes_of(type) || peer != 0) {
    return refuse(ncclInvalidArgument, std::string("[") + call + "] with data type [" +
                                           std::to_string(type) + "], peer [" +
                                           std::to_string(peer) + "] of a single rank");
  }
  if (!group.depth) {
    return refuse(ncclInvalidUsage, std::string("[") + call +
                                        "] to the own rank outside a group would wait for ever");
  }
  halves.push_back({comm, reinterpret_cast<uint64_t>(buffer), count * bytes_of(type), stream});
  return ncclSuccess;
}

// Carries out one send with the first receive of the same communicator.
ncclResult_t match(const Half& send, std::vector<Half>& receives) {
  const auto receive = std::ranges::find(receives, send.comm, &Half::comm);
  if (receive == receives.end())
    return refuse(ncclInvalidUsage, "[ncclGroupEnd] a send to the own rank has no receive");
  const Half to = *receive;
  receives.erase(receive);
  if (to.bytes != send.bytes || to.stream != send.stream)
    return refuse(ncclInvalidUsage, "[ncclGroupEnd] send of [" + std::to_string(send.bytes) +
                                        "] and receive of [" + std::to_string(to.bytes) +
                                        "] bytes: sizes and streams have to be the same");
  return move(to.address, send.address, send.bytes, send.stream);
}

}  // namespace

SOFTGPU_API ncclResult_t ncclGetVersion(int* version) {
  if (!version) return ncclInvalidArgument;
  *version = kVersion;
  return ncclSuccess;
}

SOFTGPU_API ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  static std::atomic<unsigned> count{0};
  if (!uniqueId) return ncclInvalidArgument;
  *uniqueId = {};  // nobody else joins, so it only has to differ from this process's others
  snprintf(uniqueId->internal, sizeof uniqueId->internal, "single rank %d.%u", getpid(), ++count);
  return ncclSuccess;
}

SOFTGPU_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId, int rank) {
  return create_here(__func__, comm, nranks, rank);
}

SOFTGPU_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId,
                                                int rank, ncclConfig_t*) {
  return create_here(__func__, comm, nranks, rank);
}

SOFTGPU_API ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int,
                                                  ncclUniqueId*, ncclConfig_t*) {
  return create_here(__func__, newcomm, nranks, myrank);
}

SOFTGPU_API ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return create(__func__, comm, ndev, 0, devlist ? devlist[0] : 0);
}

SOFTGPU_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int, ncclComm_t* newcomm,
                                       ncclConfig_t*) {
  if (!known(comm)) return unknown(__func__);
  if (color != kNoColor) return create(__func__, newcomm, 1, 0, comm->device);
  if (newcomm) *newcomm = nullptr;
  return ncclSuccess;
}

SOFTGPU_API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return known(comm) ? ncclSuccess : unknown(__func__);
}

SOFTGPU_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return end(__func__, comm);
}

SOFTGPU_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return end(__func__, comm);
}

SOFTGPU_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  if (!asyncError || !known(comm)) return unknown(__func__);
  *asyncError = ncclSuccess;
  return ncclSuccess;
}

SOFTGPU_API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (!count || !known(comm)) return unknown(__func__);
  *count = 1;
  return ncclSuccess;
}

SOFTGPU_API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  if (!device || !known(comm)) return unknown(__func__);
  *device = comm->device;
  return ncclSuccess;
}

SOFTGPU_API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  if (!rank || !known(comm)) return unknown(__func__);
  *rank = 0;
  return ncclSuccess;
}

SOFTGPU_API ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t,
                                          void** handle) {
  if (!handle || !known(comm)) return unknown(__func__);
  *handle = buff;
  return ncclSuccess;
}

SOFTGPU_API ncclResult_t ncclCommDeregister(const ncclComm_t comm, void*) {
  return known(comm) ? ncclSuccess : unknown(__func__);
}

SOFTGPU_API ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void*, size_t,
                                                ncclWindow_vidmem** win, int) {
  if (!win || !known(comm)) return unknown(__func__);
  *win = nullptr;  // NCCL's answer where windows bring nothing
  return ncclSuccess;
}

SOFTGPU_API ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_vidmem*) {
  return known(comm) ? ncclSuccess : unknown(__func__);
}

SOFTGPU_API ncclResult_t ncclMemAlloc(void** ptr, size_t size) {
  return cudaMalloc(ptr, size) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

SOFTGPU_API ncclResult_t ncclMemFree(void* ptr) {
  return cudaFree(ptr) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

SOFTGPU_API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t*, void*, ncclDataType_t,
                                                  ncclScalarResidence_t, ncclComm_t) {
  return refuse(ncclInvalidUsage, "[ncclRedOpCreatePreMulSum] is not supported");
}

SOFTGPU_API ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) {
  return refuse(ncclInvalidArgument,
                "[ncclRedOpDestroy] there are no operations of the user's own");
}

SOFTGPU_API ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                       ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                       cudaStream_t stream) {
  return collective(__func__, sendbuff, recvbuff, count, datatype, op, 0, comm, stream);
}

SOFTGPU_API ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    ncclDataType_t datatype, ncclRedOp_t op, int root,
                                    ncclComm_t comm, cudaStream_t stream) {
  return collective(__func__, sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}

SOFTGPU_API ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                           cudaStream_t stream) {
  return collective(__func__, sendbuff, recvbuff, recvcount, datatype, op, 0, comm, stream);
}

SOFTGPU_API ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                       ncclDataType_t datatype, ncclComm_t comm,
                                       cudaStream_t stream) {
  return collective(__func__, sendbuff, recvbuff, sendcount, datatype, 0, 0, comm, stream);
}

SOFTGPU_API ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                      ncclDataType_t datatype, ncclComm_t comm,
                                      cudaStream_t stream) {
  return collective(__func__, sendbuff, recvbuff, count, datatype, 0, 0, comm, stream);
}

SOFTGPU_API ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                       ncclDataType_t datatype, int root, ncclComm_t comm,
                                       cudaStream_t stream) {
  return collective(__func__, sendbuff, recvbuff, count, datatype, 0, root, comm, stream);
}

SOFTGPU_API ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root,
                                   ncclComm_t comm, cudaStream_t stream) {
  return collective(__func__, buff, buff, count, datatype, 0, root, comm, stream);
}

SOFTGPU_API ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype,
                                  int peer, ncclComm_t comm, cudaStream_t stream) {
  return queue_half(__func__, group.sends, sendbuff, count, datatype, peer, comm, stream);
}

SOFTGPU_API ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
  return queue_half(__func__, group.receives, recvbuff, count, datatype, peer, comm, stream);
}

SOFTGPU_API ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

SOFTGPU_API ncclResult_t ncclGroupEnd() {
  if (!group.depth) return refuse(ncclInvalidUsage, "[ncclGroupEnd] without [ncclGroupStart]");
  if (--group.depth || (group.sends.empty() && group.receives.empty())) return ncclSuccess;
  const Group ended = std::exchange(group, {});
  std::vector<Half> receives = ended.receives;
  for (const Half& send : ended.sends) {
    if (const ncclResult_t bad = match(send, receives); bad != ncclSuccess) return bad;
  }
  if (receives.empty()) return ncclSuccess;
  return refuse(ncclInvalidUsage, "[ncclGroupEnd] a receive from the own rank has no send");
}

SOFTGPU_API const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "a CUDA call failed";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
  }
  return "unknown result code";
}

SOFTGPU_API const char* ncclGetLastError(const ncclComm_t) {
  return last_sentence.c_str();
}
