// Client and server in one process over an in-memory channel, the generated mock behind: an API
// call on one side becomes the expected backend calls on the other.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <thread>

#include "alive.h"
#include "api/mock_table.h"
#include "api/printer.h"
#include "check.h"
#include "client/device/device.h"
#include "client/device/stream.h"
#include "fake_device.h"
#include "ring/reader.h"
#include "server/handlers/handlers.h"
#include "server/loop.h"
#include "server/recovery/agent_link.h"
#include "server/recovery/reads.h"

namespace {

using namespace pyft;  // NOLINT: a test

CUresult fail_create(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                     unsigned long long) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult give_stream(CUstream* stream, unsigned, int) {
  *stream = reinterpret_cast<CUstream>(0x1000);
  return CUDA_SUCCESS;
}

CUresult give_event(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(0x2000);
  return CUDA_SUCCESS;
}

cublasStatus_t give_blas(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(0x3000);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t dot(cublasHandle_t, int, const float*, int, const float*, int, float* result) {
  *result = 42.5f;
  return CUBLAS_STATUS_SUCCESS;
}

ncclResult_t give_comm(ncclComm_t* comm, int, int, int, ncclUniqueId*, ncclConfig_t*) {
  *comm = reinterpret_cast<ncclComm_t>(0x4000);
  return ncclSuccess;
}

ncclResult_t two(const ncclComm_t, int* count) {
  *count = 2;
  return ncclSuccess;
}

ncclResult_t broken(ncclComm_t, ncclResult_t* error) {
  *error = ncclRemoteError;
  return ncclSuccess;
}

const char* sentence(ncclComm_t) {
  return "rank [1] is gone";
}

backend::Table& table() {
  static backend::Table mocked = [] {
    backend::Table t = backend::mock_table();
    t.cuDeviceGetAttribute = nullptr;  // of memory's kinds: asked by whichever test is the first
    t.cuStreamCreateWithPriority = give_stream;
    t.cuEventCreate = give_event;
    t.cublasCreate_v2 = give_blas;
    t.cublasSdot_v2 = dot;
    t.ncclCommInitRankScalable = give_comm;
    t.ncclCommCount = two;
    t.ncclGetLastError = sentence;
    return t;
  }();
  return mocked;
}

// The device every test uses, and the server of it.
struct Wire {
  Wire() {
    setenv("PYFT_AGENT", "test", 1);
    setenv("PYFT_DEVICES", "1", 1);
    std::string error;
    ring::ChannelShape shape;
    shape.ring_bytes = 1 << 16;
    shape.arena_bytes = 1 << 16;
    shape.object_log_bytes = 1 << 16;
    shape.bounce_bytes = 1 << 16;
    auto channel = ring::Channel::create(shape, &error);
    ring::ChannelSizes sizes = channel->sizes();
    sizes.pinned = 0;
    server_side = ring::Channel::map(ring::Role::kServer, 0, channel->dup_fds(), sizes, &error);
    client_side = channel.get();
    ring::ClientAttachment attachment;
    attachment.channel = std::move(channel);
    device = client::adopt(0, std::move(attachment));
    session = std::make_unique<server::Session>(*server_side, &table(), alive);
    std::thread([this] {
      server::Loop loop(*session, server::dispatch);
      loop.run();
    }).detach();
  }
  // Calls of the backend since the last look, joined by blanks.
  std::string calls() {
    device->writer().wait_consumed_all();
    return backend::mock::calls().take();
  }

  AlwaysAlive alive;
  std::unique_ptr<ring::Channel> server_side;
  ring::Channel* client_side = nullptr;
  client::Device* device = nullptr;
  std::unique_ptr<server::Session> session;
};

Wire& wire() {
  static Wire* const made = new Wire;
  return *made;
}

// Sends one hand-made entry to a server of its own; the sentence it dies with, or "".
std::string hostile(uint16_t call, std::span<const std::byte> body) {
  Wire& w = wire();
  ring::EntryHeader header{};
  header.call = call;
  header.reply_slot = ring::kNoSlot;
  server::Session session(*w.server_side, &table(), w.alive);
  return server::dispatch(session, header, body, {}).text;
}

template <class Command>
std::string hostile(Call call, const Command& command) {
  return hostile(static_cast<uint16_t>(call), std::as_bytes(std::span(&command, 1)));
}

}  // namespace

TEST(memory_is_mapped_confirmed_and_slabs_are_shared) {
  Wire& w = wire();
  void* a = nullptr;
  void* b = nullptr;
  CHECK_EQ(cudaMalloc(&a, 1000), cudaSuccess);
  CHECK_EQ(w.calls(), "cuMemCreate cuMemMap cuMemSetAccess");
  CHECK_EQ(cudaMalloc(&b, 1000), cudaSuccess);
  CHECK_EQ(w.calls(), "");
  CHECK_EQ(reinterpret_cast<uint64_t>(b) - reinterpret_cast<uint64_t>(a), 1024u);
  CHECK_EQ(cudaFree(a), cudaSuccess);
  CHECK_EQ(cudaFree(b), cudaSuccess);
  CHECK_EQ(w.calls(), "cuCtxSynchronize cuMemUnmap cuMemRelease");
  CHECK_EQ(cudaFree(b), cudaErrorInvalidValue);
  CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(out_of_memory_is_exact) {
  Wire& w = wire();
  const auto create = table().cuMemCreate;
  table().cuMemCreate = fail_create;
  void* a = nullptr;
  CHECK_EQ(cudaMalloc(&a, 8 << 20), cudaErrorMemoryAllocation);
  CHECK(a == nullptr);
  table().cuMemCreate = create;
  CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  CHECK_EQ(cudaGetLastError(), cudaSuccess);
  CHECK_EQ(w.calls(), "");
}

TEST(programs_map_memory_themselves) {
  Wire& w = wire();
  constexpr uint64_t kPiece = 2 << 20;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CUmemGenericAllocationHandle handles[2], again = 0;
  CHECK_EQ(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
           CUDA_SUCCESS);
  CHECK_EQ(bytes, size_t{kPiece});
  CHECK_EQ(cuMemAddressReserve(&base, kPiece / 2, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemAddressReserve(&base, 4 * kPiece, 0, 0, 0), CUDA_SUCCESS);
  CHECK_EQ(w.calls(), "");
  for (int i = 0; i < 2; ++i) {
    CHECK_EQ(cuMemCreate(&handles[i], kPiece, &prop, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemMap(base + i * kPiece, kPiece, 0, handles[i], 0), CUDA_SUCCESS);
  }
  CHECK_EQ(w.calls(), "cuMemCreate cuMemMap cuMemCreate cuMemMap");
  CHECK_EQ(cuMemMap(base, kPiece, 0, handles[1], 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemMap(base + 4 * kPiece, kPiece, 0, handles[1], 0), CUDA_ERROR_INVALID_VALUE);
  cudaPointerAttributes attributes;
  auto* inside = reinterpret_cast<void*>(base + kPiece + 8);
  CHECK_EQ(cudaPointerGetAttributes(&attributes, inside), cudaSuccess);
  CHECK_EQ(attributes.type, cudaMemoryTypeUnregistered);  // no access yet
  CHECK_EQ(cuMemSetAccess(base, 3 * kPiece, &access, 1), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemSetAccess(base, 2 * kPiece, &access, 1), CUDA_SUCCESS);
  CHECK_EQ(w.calls(), "cuMemSetAccess cuMemSetAccess");
  CHECK_EQ(cudaPointerGetAttributes(&attributes, inside), cudaSuccess);
  CHECK_EQ(attributes.type, cudaMemoryTypeDevice);
  CUdeviceptr start = 0;
  CHECK_EQ(cuMemGetAddressRange_v2(&start, &bytes, base + kPiece + 8), CUDA_SUCCESS);
  CHECK_EQ(start, base + kPiece);
  CHECK_EQ(bytes, size_t{kPiece});
  CHECK_EQ(cuMemGetAddressRange_v2(&start, &bytes, base + 2 * kPiece), CUDA_ERROR_NOT_FOUND);
  // The memory of a released handle lives on in its mapping, and the handle can be had again.
  CHECK_EQ(cuMemRelease(handles[0]), CUDA_SUCCESS);
  CHECK_EQ(cuMemRelease(handles[0]), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(base + 1)), CUDA_SUCCESS);
  CHECK_EQ(again, handles[0]);
  CHECK_EQ(cuMemRelease(again), CUDA_SUCCESS);
  CHECK_EQ(cuMemAddressFree(base, 4 * kPiece), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(w.calls(), "");
  CHECK_EQ(cuMemUnmap(base, kPiece / 2), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(cuMemUnmap(base, 2 * kPiece), CUDA_SUCCESS);
  CHECK_EQ(w.calls(), "cuCtxSynchronize cuMemUnmap cuMemRelease cuCtxSynchronize cuMemUnmap");
  CHECK_EQ(cuMemRelease(handles[1]), CUDA_SUCCESS);
  CHECK_EQ(w.calls(), "cuMemRelease");
  CHECK_EQ(cuMemAddressFree(base, 4 * kPiece), CUDA_SUCCESS);
  CHECK_EQ(cuMemAddressFree(base, 4 * kPiece), CUDA_ERROR_INVALID_VALUE);
}

TEST(collectives_reach_over_neighbouring_mappings) {
  Wire& w = wire();
  constexpr uint64_t kPiece = 2 << 20;
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access{prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr base = 0;
  CUmemGenericAllocationHandle handle = 0;
  ncclComm_t comm = nullptr;
  CHECK_EQ(ncclCommInitRank(&comm, 2, ncclUniqueId{}, 0), ncclSuccess);
  CHECK_EQ(cuMemAddressReserve(&base, 4 * kPiece, 0, 0, 0), CUDA_SUCCESS);
  CHECK_EQ(cuMemCreate(&handle, 2 * kPiece, &prop, 0), CUDA_SUCCESS);
  for (int i = 0; i < 2; ++i)
    CHECK_EQ(cuMemMap(base + i * kPiece, kPiece, i * kPiece, handle, 0), CUDA_SUCCESS);
  CHECK_EQ(cuMemSetAccess(base, 2 * kPiece, &access, 1), CUDA_SUCCESS);
  auto* across = reinterpret_cast<char*>(base + kPiece - 8);
  w.calls();
  CHECK_EQ(ncclAllReduce(across, across, 8 + kPiece, ncclChar, ncclSum, comm, nullptr),
           ncclSuccess);
  CHECK_EQ(w.calls(), "ncclAllReduce");
  CHECK_EQ(ncclAllReduce(across, across, 9 + kPiece, ncclChar, ncclSum, comm, nullptr),
           ncclInvalidArgument);
  CHECK_EQ(ncclCommAbort(comm), ncclSuccess);
  CHECK_EQ(cuMemUnmap(base, 2 * kPiece), CUDA_SUCCESS);
  CHECK_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  CHECK_EQ(cuMemAddressFree(base, 4 * kPiece), CUDA_SUCCESS);
  w.calls();
}

TEST(copies_go_the_way_the_addresses_say) {
  Wire& w = wire();
  void* a = nullptr;
  CHECK_EQ(cudaMalloc(&a, 4 << 20), cudaSuccess);
  w.calls();
  std::vector<char> host(40000);
  CHECK_EQ(cudaMemcpy(a, host.data(), 100, cudaMemcpyHostToDevice), cudaSuccess);
  CHECK_EQ(w.calls(), "cuMemcpyHtoDAsync_v2");
  CHECK_EQ(cudaMemcpy(a, host.data(), host.size(), cudaMemcpyDefault), cudaSuccess);
  CHECK_EQ(w.calls(), "cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2");
  CHECK_EQ(cudaMemcpy(host.data(), a, host.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  CHECK_EQ(w.calls(), "cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2");
  CHECK_EQ(cudaMemcpy(a, static_cast<char*>(a) + 512, 512, cudaMemcpyDefault), cudaSuccess);
  CHECK_EQ(cudaMemset(a, 1, 512), cudaSuccess);
  CHECK_EQ(w.calls(), "cuMemcpyAsync cuMemsetD8Async");
  CHECK_EQ(cudaFree(a), cudaSuccess);
  w.calls();
}

TEST(registered_memory_is_remembered_and_copied_as_pageable) {
  Wire& w = wire();
  void* a = nullptr;
  CHECK_EQ(cudaMalloc(&a, 4 << 20), cudaSuccess);
  w.calls();
  std::vector<char> host(4096);
  CHECK_EQ(cudaHostRegister(host.data(), 0, 0), cudaErrorInvalidValue);
  CHECK_EQ(cudaHostRegister(host.data(), 16, cudaHostRegisterIoMemory), cudaErrorNotSupported);
  CHECK_EQ(cudaHostRegister(host.data() + 100, 1000, cudaHostRegisterPortable), cudaSuccess);
  CHECK_EQ(cuMemHostRegister_v2(host.data() + 1099, 1, 0),
           CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CHECK_EQ(cuMemHostRegister_v2(host.data(), 101, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CHECK_EQ(cuMemHostRegister_v2(host.data() + 1100, 1, 0), CUDA_SUCCESS);
  cudaPointerAttributes attributes;
  CHECK_EQ(cudaPointerGetAttributes(&attributes, host.data() + 1099), cudaSuccess);
  CHECK_EQ(attributes.type, cudaMemoryTypeHost);
  CHECK(attributes.hostPointer == host.data() + 1099 && !attributes.devicePointer);
  CHECK_EQ(cudaPointerGetAttributes(&attributes, host.data() + 99), cudaSuccess);
  CHECK_EQ(attributes.type, cudaMemoryTypeUnregistered);
  unsigned flags = 0;
  void* device_pointer = nullptr;
  CHECK_EQ(cudaHostGetFlags(&flags, host.data() + 500), cudaSuccess);
  CHECK_EQ(flags, unsigned{cudaHostRegisterPortable});
  CHECK_EQ(cudaHostGetDevicePointer(&device_pointer, host.data() + 500, 0), cudaErrorNotSupported);
  CHECK_EQ(cudaMemcpy(a, host.data() + 100, 100, cudaMemcpyDefault), cudaSuccess);
  CHECK_EQ(w.calls(), "cuMemcpyHtoDAsync_v2");
  CHECK_EQ(cudaHostUnregister(host.data() + 101), cudaErrorHostMemoryNotRegistered);
  CHECK_EQ(cudaHostUnregister(host.data() + 100), cudaSuccess);
  CHECK_EQ(cuMemHostUnregister(host.data() + 100), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CHECK_EQ(cuMemHostUnregister(host.data() + 1100), CUDA_SUCCESS);
  CHECK_EQ(cudaFree(a), cudaSuccess);
  CHECK_EQ(cudaGetLastError(), cudaErrorHostMemoryNotRegistered);
  w.calls();
}

TEST(streams_and_events_complete_by_words) {
  Wire& w = wire();
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  CHECK_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  CHECK_EQ(cudaEventCreate(&event), cudaSuccess);
  CHECK_EQ(cudaEventQuery(event), cudaSuccess);  // never recorded
  CHECK_EQ(cudaEventRecord(event, stream), cudaSuccess);
  CHECK_EQ(cudaEventSynchronize(event), cudaSuccess);
  const uint64_t entries = w.client_side->log().entries_total;
  CHECK_EQ(cudaStreamQuery(stream), cudaSuccess);  // the record was a fence too
  CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  CHECK_EQ(cudaEventQuery(event), cudaSuccess);
  CHECK_EQ(w.client_side->log().entries_total - entries, 1u);  // one mark: observed
  CHECK_EQ(cudaStreamWaitEvent(nullptr, event, 0), cudaSuccess);
  CHECK_EQ(w.calls(), "cuEventRecord cuStreamWaitEvent");
  CHECK_EQ(cudaStreamDestroy(stream), cudaSuccess);
  CHECK_EQ(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
  CHECK_EQ(cudaEventDestroy(event), cudaSuccess);
  CHECK_EQ(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  CHECK_EQ(w.calls(), "cuStreamDestroy_v2 cuEventDestroy_v2");
}

TEST(blas_state_travels_with_the_commands) {
  Wire& w = wire();
  cublasHandle_t blas = nullptr;
  CHECK_EQ(cublasCreate_v2(&blas), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cublasSetStream_v2(blas, nullptr), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(cublasSetWorkspace_v2(blas, reinterpret_cast<void*>(ring::kDeviceWindowBase), 4096),
           CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(w.calls(), "");  // nothing yet
  const float one = 1;
  auto* matrix = reinterpret_cast<float*>(ring::kDeviceWindowBase);
  for (int i = 0; i < 2; ++i)
    CHECK_EQ(cublasSgemm_v2(blas, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, matrix, 2, matrix, 2,
                            &one, matrix, 2),
             CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(w.calls(), "cublasSetWorkspace_v2 cublasSgemm_v2 cublasSgemm_v2");
  float result = 0;
  CHECK_EQ(cublasSdot_v2(blas, 2, matrix, 1, matrix, 1, &result), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(result, 42.5f);
  CHECK_EQ(cublasDestroy_v2(blas), CUBLAS_STATUS_SUCCESS);
  CHECK_EQ(w.calls(), "cublasDestroy_v2");
}

TEST(collectives_travel_in_groups_and_errors_come_unasked) {
  Wire& w = wire();
  ncclComm_t comm = nullptr;
  int size = 0;
  float* buffer = nullptr;
  CHECK_EQ(cudaMalloc(reinterpret_cast<void**>(&buffer), 1024), cudaSuccess);
  CHECK_EQ(ncclCommInitRank(&comm, 2, ncclUniqueId{}, 0), ncclSuccess);
  CHECK_EQ(ncclCommCount(comm, &size), ncclSuccess);
  CHECK_EQ(size, 2);
  w.calls();
  CHECK_EQ(ncclAllReduce(buffer, buffer, 4, ncclFloat, ncclSum, comm, nullptr), ncclSuccess);
  CHECK_EQ(w.calls(), "ncclAllReduce");
  CHECK_EQ(ncclGroupStart(), ncclSuccess);
  CHECK_EQ(ncclSend(buffer, 4, ncclFloat, 1, comm, nullptr), ncclSuccess);
  CHECK_EQ(ncclRecv(buffer, 4, ncclFloat, 1, comm, nullptr), ncclSuccess);
  CHECK_EQ(w.calls(), "");
  CHECK_EQ(ncclGroupEnd(), ncclSuccess);
  CHECK_EQ(w.calls(), "ncclGroupStart ncclSend ncclRecv ncclGroupEnd");
  CHECK_EQ(ncclAllGather(buffer, buffer, 1 << 20, ncclFloat, comm, nullptr), ncclInvalidArgument);
  CHECK_EQ(ncclSend(buffer, 4, ncclFloat, 2, comm, nullptr), ncclInvalidArgument);
  ncclResult_t error = ncclInternalError;
  CHECK_EQ(ncclCommGetAsyncError(comm, &error), ncclSuccess);
  CHECK_EQ(error, ncclSuccess);
  table().ncclCommGetAsyncError = broken;
  w.session->sweep();
  CHECK_EQ(ncclCommGetAsyncError(comm, &error), ncclSuccess);
  CHECK_EQ(error, ncclRemoteError);
  CHECK_EQ(std::string(ncclGetLastError(comm)), "rank [1] is gone");
  CHECK_EQ(ncclCommAbort(comm), ncclSuccess);
  CHECK_EQ(ncclCommGetAsyncError(comm, &error), ncclInvalidArgument);
  CHECK_EQ(w.calls(), "ncclCommAbort");
  CHECK_EQ(cudaFree(buffer), cudaSuccess);
  w.calls();
}

TEST(hostile_commands_end_the_server_with_a_sentence) {
  CHECK(hostile(9999, {}).find("[9999] does not exist") != std::string::npos);
  CHECK(hostile(static_cast<uint16_t>(Call::cudaMalloc), {}).find("too short") !=
        std::string::npos);
  CHECK(!hostile(Call::cudaMalloc, cmd::cudaMalloc{0x1000, 2 << 20}).empty());
  CHECK(!hostile(Call::cudaMalloc, cmd::cudaMalloc{ring::kDeviceWindowBase, ~0ull}).empty());
  CHECK(!hostile(Call::cudaFree, cmd::cudaFree{ring::kDeviceWindowBase, 2 << 20}).empty());
  CHECK(!hostile(Call::cuMemCreate, cmd::cuMemCreate{77, 2 << 20}).empty());
  CHECK(!hostile(Call::cuMemRelease, cmd::cuMemRelease{77}).empty());
  CHECK(!hostile(Call::cuMemMap, cmd::cuMemMap{ring::kDeviceWindowBase, 2 << 20, 0, 77}).empty());
  CHECK(!hostile(Call::cuMemUnmap, cmd::cuMemUnmap{0x1000, 2 << 20}).empty());
  CHECK(!hostile(Call::cuMemSetAccess, cmd::cuMemSetAccess{0x1000, 2 << 20, 3, 0}).empty());
  CHECK(!hostile(Call::cudaHostAlloc, cmd::cudaHostAlloc{0x1000, 4096, 0, 0}).empty());
  CHECK(!hostile(Call::cudaEventRecord, cmd::cudaEventRecord{77, 0, 1, 1}).empty());
  CHECK(!hostile(Call::pyftReadDevice, cmd::pyftReadDevice{0, 0, 16, ~0ull - 8}).empty());
  CHECK(!hostile(Call::cuModuleLoadData, cmd::cuModuleLoadData{1}).empty());
  CHECK(!hostile(Call::cublasSgemm_v2, cmd::cublasSgemm_v2{}).empty());
  CHECK(!hostile(Call::cuLaunchKernel, cmd::cuLaunchKernel{}).empty());
  CHECK(!hostile(Call::ncclAllReduce, cmd::ncclAllReduce{}).empty());
  CHECK(!hostile(Call::ncclCommInitRankScalable, cmd::ncclCommInitRankScalable{}).empty());
}

// The server's side of the channel, with a store as well.
static std::unique_ptr<ring::Channel> with_store() {
  ring::ChannelFds fds = wire().server_side->dup_fds();
  fds.store = UniqueFd(memfd_create("store", MFD_CLOEXEC));
  ring::ChannelSizes sizes = wire().server_side->sizes();
  sizes.store = 1 << 16;
  CHECK_EQ(ftruncate(fds.store.get(), 1 << 16), 0);
  std::string error;
  auto channel = ring::Channel::map(ring::Role::kServer, 0, std::move(fds), sizes, &error);
  CHECK_EQ(error, "");
  return channel;
}

TEST(a_failure_that_no_call_has_returned_is_the_gpus) {
  const auto channel = with_store();
  std::cout.flush();  // or the child says it as well
  const pid_t child = fork();
  if (child == 0) {
    channel->control().protect = static_cast<uint32_t>(ring::Protect::kSnapshot);
    FakeDevice calls;
    server::Session session(*channel, &table(), wire().alive, calls);
    session.set_sticky(999);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(WEXITSTATUS(status), ring::kFaultExit);
  CHECK_EQ(std::string(channel->control().fault_text), "the GPU reports error [999]");
}

// A server whose work is repaired ends, and leaves word; the client never hears of it.
TEST(a_collective_that_fails_with_its_device_is_the_devices_failure) {
  const auto channel = with_store();
  std::cout.flush();  // or the child says it as well
  int ends[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    channel->control().protect = static_cast<uint32_t>(ring::Protect::kSnapshot);
    backend::Table failing = table();
    failing.ncclGroupEnd = [] { return ncclUnhandledCudaError; };
    FakeDevice calls;
    calls.on_status = [] { return 700; };
    server::Session session(*channel, &failing, wire().alive, calls);
    server::AgentReports last_words(ends[1]);
    session.recovery().set_reports(&last_words);
    ring::EntryHeader header{};
    header.call = static_cast<uint16_t>(Call::ncclGroupEnd);
    const cmd::ncclGroupEnd body{};
    const auto body_bytes = std::as_bytes(std::span(&body, 1));
    _exit(server::dispatch(session, header, body_bytes, {}).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(WEXITSTATUS(status), ring::kFaultExit);
  CHECK_EQ(channel->control().fault_code, 700);
  CHECK_EQ(std::string(channel->control().fault_text), "[ncclGroupEnd] reports error [700]");
  // The agent is told by the socket, since the client can write into the page.
  server::AgentMessage words{};
  CHECK(server::receive_message(ends[0], &words));
  const auto fault = words.as<ring::msg::Fault>();
  CHECK(fault.has_value());
  CHECK_EQ(fault->fault, static_cast<uint64_t>(ring::FaultKind::kDevice));
  CHECK_EQ(fault->code, 700);
  const std::string sentence(reinterpret_cast<const char*>(words.payload.data()),
                             words.payload.size());
  CHECK_EQ(sentence, std::string(channel->control().fault_text));
  close(ends[0]);
  close(ends[1]);
  channel->control().protect = static_cast<uint32_t>(ring::Protect::kNone);
}

// A library that fails says nothing of the GPU while the device works: it must not be taken for
// lost, although there is no better code for the client.
TEST(a_library_that_fails_is_not_a_lost_gpu) {
  const auto channel = with_store();
  std::cout.flush();  // or the child says it as well
  const pid_t child = fork();
  if (child == 0) {
    channel->control().protect = static_cast<uint32_t>(ring::Protect::kSnapshot);
    FakeDevice calls;
    calls.on_status = [] { return 0; };
    server::Session session(*channel, &table(), wire().alive, calls);
    ring::EntryHeader header{};
    header.flags = ring::kStreamCaptured;  // so that it fails for good
    header.reply_slot = ring::kNoSlot;
    const bool told = server::finish(session, header, "cublasSgemm_v2", server::Domain::kCublas,
                                     CUBLAS_STATUS_INTERNAL_ERROR)
                          .ok();
    const int first = session.sticky();
    // What it should have made is named: the client gets the error again.
    header.call = static_cast<uint16_t>(Call::cuLaunchKernel);
    const cmd::cuLaunchKernel body{};
    const auto body_bytes = std::as_bytes(std::span(&body, 1));
    const bool again = server::perform(session, header, body_bytes, {}).ok();
    _exit(told && again && first == CUDA_ERROR_UNKNOWN ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
  channel->control().protect = static_cast<uint32_t>(ring::Protect::kNone);
  channel->control().sticky_error = 0;
}

// In a replay that gives the program its own error the device may have failed before it was asked
// for an object which the program was told that it has.
TEST(what_a_failed_device_could_not_make_fails_as_the_device_did) {
  ring::ChannelShape shape;
  shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
  std::string error;
  const auto channel = ring::Channel::create(shape, &error);
  FakeDevice calls;
  int status = 0;
  calls.on_status = [&] { return status; };
  server::Session session(*channel, &table(), wire().alive, calls);
  const auto perform = [&](Call call, const auto& command, uint32_t slot) {
    ring::EntryHeader header{};
    header.call = static_cast<uint16_t>(call);
    header.seq = 5;
    header.flags = slot == ring::kNoSlot ? 0 : ring::kWantsReply;
    header.reply_slot = static_cast<uint16_t>(slot);
    return server::perform(session, header, std::as_bytes(std::span(&command, 1)), {});
  };
  CHECK(!perform(Call::cuLaunchKernel, cmd::cuLaunchKernel{}, ring::kNoSlot).ok());
  status = 600;  // it works
  CHECK(!perform(Call::cuLaunchKernel, cmd::cuLaunchKernel{}, ring::kNoSlot).ok());
  status = 710;
  CHECK(perform(Call::cuModuleGetFunction, cmd::cuModuleGetFunction{}, 3).ok());
  CHECK_EQ(channel->slot(3).done_seq.load(), 5u);
  CHECK_EQ(channel->slot(3).code, 710);
  CHECK_EQ(channel->control().sticky_error.load(), 0);
  CHECK(perform(Call::cuLaunchKernel, cmd::cuLaunchKernel{}, ring::kNoSlot).ok());
  CHECK_EQ(channel->control().sticky_error.load(), 710);
  CHECK(!perform(Call::cudaMalloc, cmd::cudaMalloc{0x1000, 2 << 20}, ring::kNoSlot).ok());
}

// A client that writes a lost GPU's code into the page, and names an object that does not exist,
// has lost the own server, and no more.
TEST(what_the_page_says_of_the_device_is_not_believed) {
  ring::ChannelShape shape;
  shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
  std::string error;
  const auto channel = ring::Channel::create(shape, &error);
  FakeDevice calls;
  calls.on_status = [] { return 0; };
  server::Session session(*channel, &table(), wire().alive, calls);
  channel->control().sticky_error = 999;
  CHECK_EQ(session.device_failure(), 0);
  CHECK_EQ(session.sticky(), 0);
  ring::EntryHeader header{};
  header.call = static_cast<uint16_t>(Call::cuLaunchKernel);
  header.reply_slot = ring::kNoSlot;
  const cmd::cuLaunchKernel body{};
  CHECK(!server::perform(session, header, std::as_bytes(std::span(&body, 1)), {}).ok());
  session.set_sticky(710);
  CHECK_EQ(session.device_failure(), 710);
}

// Snapshots are deferred for such entries only: what is not known to read counts as a change.
TEST(few_entries_only_read) {
  std::string error;
  ring::ChannelShape shape;
  shape.ring_bytes = shape.arena_bytes = shape.object_log_bytes = shape.bounce_bytes = 1 << 16;
  shape.pinned_bytes = 1 << 20;
  const auto channel = ring::Channel::create(shape, &error);
  CHECK_EQ(error, "");
  const server::Session session(*channel, &table(), wire().alive);
  const auto only_reads = [&](uint16_t call, const auto& body) {
    ring::EntryView entry;
    entry.header.call = call;
    entry.body = std::as_bytes(std::span(&body, 1));
    return server::only_reads(session, entry);
  };
  const auto number = [](auto call) { return static_cast<uint16_t>(call); };
  const cmd::pyftReadDevice read{0, ring::kDeviceWindowBase, 16, 0};
  CHECK(only_reads(number(Call::pyftReadDevice), read));
  for (const auto mark : {ring::Mark::kFence, ring::Mark::kObserved, ring::Mark::kFree})
    CHECK(only_reads(number(mark), read));
  for (const auto mark : {ring::Mark::kGate, ring::Mark::kCut, ring::Mark::kGoodbye})
    CHECK(!only_reads(number(mark), read));
  for (uint16_t call = ring::kFirstCall; call < 2000; ++call)
    CHECK_EQ(only_reads(call, uint64_t{0}), call == number(Call::pyftReadDevice));
  const auto pinned = reinterpret_cast<uint64_t>(channel->pinned());
  const auto copies = [&](uint64_t to, uint64_t from, uint64_t bytes) {
    return only_reads(number(Call::cudaMemcpyAsync), cmd::cudaMemcpyAsync{0, to, from, bytes});
  };
  CHECK(copies(pinned + 64, ring::kDeviceWindowBase, 16));
  CHECK(!copies(ring::kDeviceWindowBase, pinned, 16));
  CHECK(!copies(ring::kDeviceWindowBase + 64, ring::kDeviceWindowBase, 16));
  CHECK(!copies(pinned + 64, ring::kDeviceWindowBase, 1 << 20));
}

// Background copies are waited for before these: by way of the device they would fail it.
TEST(few_entries_take_memory_away) {
  std::vector<uint16_t> found;
  for (uint16_t call = 0; call < 2000; ++call) {
    ring::EntryView entry;
    entry.header.call = call;
    if (server::takes_memory_away(entry)) found.push_back(call);
  }
  std::vector<uint16_t> wanted;
  for (const Call call :
       {Call::cudaFree, Call::cuMemUnmap, Call::cuMemSetAccess, Call::cuModuleUnload})
    wanted.push_back(static_cast<uint16_t>(call));
  std::ranges::sort(wanted);
  CHECK(found == wanted);
}

TEST(entries_print_with_named_arguments) {
  ring::EntryHeader header{};
  header.call = static_cast<uint16_t>(Call::cudaMemsetAsync);
  const cmd::cudaMemsetAsync body{0, ring::kDeviceWindowBase + 0x200, 7, 1, 16};
  CHECK_EQ(print_entry(header, std::as_bytes(std::span(&body, 1))),
           "cudaMemsetAsync(stream=0, dst=dev0+0x200, value=7, element_bytes=1, count=16)");
  CHECK_EQ(print_entry(header, {}), "cudaMemsetAsync(damaged)");
}

CHECK_MAIN
