#include "client/collectives/nccl.h"

#include <span>
#include <utility>
#include <vector>

#include "client/process/handles.h"
#include "client/process/job_clock.h"
#include "client/process/unimplemented.h"

namespace pyft::client {
namespace {

thread_local std::string last_sentence;

// What the three ways to make a communicator have in common. `command` has the handle and the error
// base filled in; the answer brings rank and size.
struct Creation {
  uint64_t handle = 0;
  Communicator* communicator = nullptr;
};

Creation mint(Device& device) {
  const auto make = [](uint64_t handle, void* context) -> void* {
    return new Communicator(*static_cast<Device*>(context), handle, Handle{handle}.index());
  };
  const uint64_t handle = mint_word_handle(HandleKind::kCommunicator, make, &device);
  if (!handle) return {};
  auto* made = static_cast<Communicator*>(find_word_handle(handle, HandleKind::kCommunicator));
  made->error_base = device.next_value(made->word);
  for (int code = 1; code < ncclNumResults; ++code) device.next_value(made->word);
  return {handle, made};
}

std::string text_of(const Reply& reply) {
  return {reinterpret_cast<const char*>(reply.data.data()), reply.data.size()};
}

// A sentence from the server's library needs no name of the call before it.
ncclResult_t refused_by_server(const Reply& reply) {
  last_sentence = text_of(reply);
  say(last_sentence);
  return static_cast<ncclResult_t>(reply.code);
}

template <class Command>
ncclResult_t create_now(Call call, const Command& command, const Creation& made, Bytes payload,
                        ncclComm_t* out) {
  Reply reply;
  const cudaError_t error = made.communicator->device.call(static_cast<uint16_t>(call),
                                                           bytes_of(command), &reply, {}, payload);
  // A colour of "none" makes no communicator.
  if (error == cudaSuccess && reply.code == 0 && reply.values[1] != 0) {
    made.communicator->rank = static_cast<int>(reply.values[0]);
    made.communicator->size = static_cast<int>(reply.values[1]);
    made.communicator->device.took_place(static_cast<uint32_t>(reply.values[0]),
                                         static_cast<uint32_t>(reply.values[1]));
    *out = reinterpret_cast<ncclComm_t>(made.handle);
    return ncclSuccess;
  }
  end_word_handle(made.handle, HandleKind::kCommunicator);
  if (error != cudaSuccess) return nccl_result(error);
  return reply.code ? refused_by_server(reply) : ncclSuccess;
}

template <class Command>
ncclResult_t create(Call call, const Command& command, const Creation& made,
                    std::vector<std::byte> payload, ncclComm_t* out) {
  return create_or_keep([call, command, made, payload = std::move(payload), out] {
    return create_now(call, command, made, payload, out);
  });
}

ncclResult_t init(const char* call, int ordinal, ncclComm_t* comm, int ranks, int rank,
                  std::span<const ncclUniqueId> ids, const ncclConfig_t* config = nullptr) {
  if (!comm || ids.empty() || !ids.data())
    return refuse_nccl(call, ncclInvalidArgument, "got no result pointer or no unique id");
  *comm = nullptr;
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return refuse_nccl(
        call, ncclInvalidArgument,
        "with rank [" + std::to_string(rank) + "] of [" + std::to_string(ranks) + "]");
  const auto bytes = std::as_bytes(ids);
  std::vector<std::byte> payload(bytes.begin(), bytes.end());
  if (const ncclResult_t code = add_settings(call, config, &payload)) return code;
  cudaError_t error;
  Device* device = attach(ordinal, &error);
  if (!device) return nccl_result(error);
  watch(device->channel().control());
  const Creation made = mint(*device);
  if (!made.handle) return refuse_nccl(call, ncclSystemError, "finds no free completion word");
  return create(
      Call::ncclCommInitRankScalable,
      cmd::ncclCommInitRankScalable{made.handle, ranks, rank, made.communicator->error_base}, made,
      std::move(payload), comm);
}

ncclResult_t unique_id(ncclUniqueId* out) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return nccl_result(error);
  Reply reply;
  error = device->call(static_cast<uint16_t>(Call::ncclGetUniqueId),
                       bytes_of(cmd::ncclGetUniqueId{}), &reply);
  if (error != cudaSuccess) return nccl_result(error);
  if (reply.code) return refused_by_server(reply);
  if (reply.data.size() != sizeof *out) return ncclInternalError;
  std::memcpy(out, reply.data.data(), sizeof *out);
  return ncclSuccess;
}

// Sends a command about one communicator and waits.
template <class Command>
ncclResult_t confirm(Communicator& communicator, Call call, const Command& command, Reply* reply) {
  const cudaError_t error =
      communicator.device.call(static_cast<uint16_t>(call), bytes_of(command), reply);
  if (error != cudaSuccess) return nccl_result(error);
  return reply->code ? refused_by_server(*reply) : ncclSuccess;
}

template <class Command>
ncclResult_t end(Call call, Communicator* communicator) {
  Reply reply;
  const ncclResult_t result = confirm(*communicator, call, Command{communicator->handle}, &reply);
  end_word_handle(communicator->handle, HandleKind::kCommunicator);
  return result;
}

}  // namespace

Communicator* communicator_of(const ncclComm* handle) {
  return static_cast<Communicator*>(
      find_word_handle(reinterpret_cast<uint64_t>(handle), HandleKind::kCommunicator));
}

ncclResult_t async_error(Communicator& c) {
  if (!c.device.reached(c.word, c.error_base + 1)) return ncclSuccess;
  int code = ncclNumResults - 1;
  while (code > 1 && !c.device.reached(c.word, c.error_base + static_cast<uint64_t>(code))) --code;
  const std::scoped_lock lock(c.mutex);
  if (!c.sentence.empty()) return static_cast<ncclResult_t>(code);
  Reply reply;
  const auto call = static_cast<uint16_t>(Call::ncclGetLastError);
  const cudaError_t asked = c.device.call(call, bytes_of(cmd::ncclGetLastError{c.handle}), &reply);
  c.sentence = asked == cudaSuccess ? text_of(reply) : "the server is gone";
  say(c.sentence);
  return static_cast<ncclResult_t>(code);
}

ncclResult_t refuse_nccl(const char* call, ncclResult_t code, const std::string& why) {
  last_sentence = std::string("[") + call + "] " + why;
  say(last_sentence);
  return code;
}

long unimplemented_nccl(Api api, long code) {
  const Entered entered(api);
  unsupported(api);
  last_sentence = std::string("[") + api_name(api) + "] is not supported by pyft";
  return code;
}

ncclResult_t no_communicator(const char* call) {
  return refuse_nccl(call, ncclInvalidArgument, "got no live communicator");
}

const std::string& last_nccl_sentence() {
  return last_sentence;
}

void set_last_nccl_sentence(std::string sentence) {
  last_sentence = std::move(sentence);
}

ncclResult_t nccl_result(cudaError_t error) {
  if (error == cudaSuccess) return ncclSuccess;
  last_sentence = std::string("a CUDA call failed: ") + cudaGetErrorString(error);
  return ncclUnhandledCudaError;
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId) {
  const Entered entered(Api::ncclGetUniqueId);
  if (!uniqueId) return refuse_nccl(__func__, ncclInvalidArgument, "got no result pointer");
  return unique_id(uniqueId);
}

PYFT_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId,
                                       int rank) {
  const Entered entered(Api::ncclCommInitRank);
  return init(__func__, current_device(), comm, nranks, rank, {&commId, 1});
}

PYFT_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId,
                                             int rank, ncclConfig_t* config) {
  const Entered entered(Api::ncclCommInitRankConfig);
  return init(__func__, current_device(), comm, nranks, rank, {&commId, 1}, config);
}

PYFT_API ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                               ncclUniqueId* commIds, ncclConfig_t* config) {
  const Entered entered(Api::ncclCommInitRankScalable);
  const size_t count = nId > 0 ? static_cast<size_t>(nId) : 0;
  return init(__func__, current_device(), newcomm, nranks, myrank, {commIds, count}, config);
}

PYFT_API ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  const Entered entered(Api::ncclCommInitAll);
  if (!comm || ndev < 1) return refuse_nccl(__func__, ncclInvalidArgument, "got no devices");
  ncclUniqueId id;
  if (const ncclResult_t error = unique_id(&id); error != ncclSuccess) return error;
  // Every rank waits for the others, in a server of its own.
  std::vector<NcclWork> ranks;
  for (int rank = 0; rank < ndev; ++rank) {
    ranks.emplace_back([&, rank] {
      return init("ncclCommInitAll", devlist ? devlist[rank] : rank, &comm[rank], ndev, rank,
                  {&id, 1});
    });
  }
  return all_at_once(ranks);
}

PYFT_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                                    ncclConfig_t* config) {
  const Entered entered(Api::ncclCommSplit);
  Communicator* parent = communicator_of(comm);
  if (!parent || !newcomm) return no_communicator(__func__);
  *newcomm = nullptr;
  std::vector<std::byte> payload;
  if (const ncclResult_t code = add_settings(__func__, config, &payload)) return code;
  const Creation made = mint(parent->device);
  if (!made.handle) return refuse_nccl(__func__, ncclSystemError, "finds no free completion word");
  return create(
      Call::ncclCommSplit,
      cmd::ncclCommSplit{made.handle, parent->handle, color, key, made.communicator->error_base},
      made, std::move(payload), newcomm);
}

PYFT_API ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                                     ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  const Entered entered(Api::ncclCommShrink);
  Communicator* parent = communicator_of(comm);
  if (!parent || !newcomm) return no_communicator(__func__);
  *newcomm = nullptr;
  if (!excludeRanksList || excludeRanksCount < 1 || excludeRanksCount > parent->size)
    return refuse_nccl(__func__, ncclInvalidArgument,
                       "excludes [" + std::to_string(excludeRanksCount) + "] ranks");
  const auto excluded =
      std::as_bytes(std::span<const int>(excludeRanksList, static_cast<size_t>(excludeRanksCount)));
  std::vector<std::byte> payload(excluded.begin(), excluded.end());
  if (const ncclResult_t code = add_settings(__func__, config, &payload)) return code;
  const Creation made = mint(parent->device);
  if (!made.handle) return refuse_nccl(__func__, ncclSystemError, "finds no free completion word");
  return create(Call::ncclCommShrink,
                cmd::ncclCommShrink{made.handle, parent->handle, excludeRanksCount, shrinkFlags,
                                    made.communicator->error_base},
                made, std::move(payload), newcomm);
}

PYFT_API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Entered entered(Api::ncclCommFinalize);
  if (!comm) return ncclSuccess;
  Communicator* communicator = communicator_of(comm);
  if (!communicator) return no_communicator(__func__);
  return end_or_keep(*communicator, [communicator] {
    Reply reply;
    const cmd::ncclCommFinalize command{communicator->handle};
    return confirm(*communicator, Call::ncclCommFinalize, command, &reply);
  });
}

PYFT_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Entered entered(Api::ncclCommDestroy);
  if (!comm) return ncclSuccess;
  Communicator* communicator = communicator_of(comm);
  if (!communicator) return no_communicator(__func__);
  return end_or_keep(*communicator, [communicator] {
    return end<cmd::ncclCommDestroy>(Call::ncclCommDestroy, communicator);
  });
}

// At once, also in a group: a program that aborts may never end it.
PYFT_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Entered entered(Api::ncclCommAbort);
  if (!comm) return ncclSuccess;
  Communicator* communicator = communicator_of(comm);
  if (!communicator) return no_communicator(__func__);
  return end<cmd::ncclCommAbort>(Call::ncclCommAbort, communicator);
}

PYFT_API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar,
                                               ncclDataType_t datatype,
                                               ncclScalarResidence_t residence, ncclComm_t comm) {
  const Entered entered(Api::ncclRedOpCreatePreMulSum);
  Communicator* communicator = communicator_of(comm);
  if (!communicator) return no_communicator(__func__);
  if (!op || !scalar || datatype < 0 || datatype >= ncclNumTypes)
    return refuse_nccl(__func__, ncclInvalidArgument,
                       "with data type [" + std::to_string(datatype) + "] or without pointers");
  auto value = reinterpret_cast<uint64_t>(scalar);
  if (residence == ncclScalarHostImmediate) {
    value = 0;
    std::memcpy(&value, scalar, kNcclElementBytes[datatype]);
  }
  Reply reply;
  const ncclResult_t result = confirm(
      *communicator, Call::ncclRedOpCreatePreMulSum,
      cmd::ncclRedOpCreatePreMulSum{communicator->handle, value, datatype, residence}, &reply);
  if (result == ncclSuccess) *op = static_cast<ncclRedOp_t>(reply.values[0]);
  return result;
}

PYFT_API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const Entered entered(Api::ncclRedOpDestroy);
  Communicator* communicator = communicator_of(comm);
  if (!communicator) return no_communicator(__func__);
  return end_or_keep(*communicator, [communicator, op] {
    Reply reply;
    return confirm(*communicator, Call::ncclRedOpDestroy,
                   cmd::ncclRedOpDestroy{communicator->handle, static_cast<int>(op), 0}, &reply);
  });
}
