// Device memory is mapped at the addresses the client chose; pinned memory is registered where the
// shared window already lies. Addresses of copies are for the backend to judge: module variables,
// which only it knows, are legal targets, and a wrong one costs the client its own server at worst.
#include <time.h>

#include <unordered_map>
#include <utility>

#include "pyft/log.h"
#include "server/handlers/handlers.h"
#include "server/handlers/host_copies.h"
#include "server/handlers/live_objects.h"

namespace pyft::server {
namespace {

struct Mappings {
  struct Mapping {
    CUmemGenericAllocationHandle handle;
    uint64_t bytes;
  };
  std::unordered_map<uint64_t, Mapping> by_address;
};

struct PinnedRanges {
  std::unordered_map<uint64_t, uint64_t> bytes_by_address;
};

}  // namespace

void allocated_memory(Session& session, std::vector<checkpoint::MemoryRange>* ranges) {
  for (const auto& [address, mapping] : session.state<Mappings>().by_address)
    ranges->push_back({address, mapping.bytes});
}

namespace {

CUmemAllocationProp properties(int ordinal) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = ordinal;
  return prop;
}

bool has(Session& session, CUdevice_attribute attribute) {
  const auto ask = session.backend().cuDeviceGetAttribute;
  int value = 0;
  return ask && ask(&value, attribute, session.ordinal()) == CUDA_SUCCESS && value;
}

// Memory of the window is such as the driver lets network cards and other processes have, where the
// device supports that: whether NCCL uses either is settled when memory is made. A driver that
// claims it and refuses gets no such request again.
class SharableMemory {
 public:
  CUresult create(Session& session, uint64_t bytes, CUmemGenericAllocationHandle* out) {
    const auto call = session.backend().cuMemCreate;
    if (!asked_) ask(session);
    const CUresult code = call(out, bytes, &prop_, 0);
    if (!sharable_ || code == CUDA_SUCCESS || code == CUDA_ERROR_OUT_OF_MEMORY) return code;
    const CUmemAllocationProp plain = properties(session.ordinal());
    const CUresult again = call(out, bytes, &plain, 0);
    if (again == CUDA_SUCCESS) prop_ = plain, sharable_ = false;
    return again;
  }

 private:
  void ask(Session& session) {
    asked_ = true;
    prop_ = properties(session.ordinal());
    const bool cards = has(session, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
    const bool files =
        has(session, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    if (cards) prop_.allocFlags.gpuDirectRDMACapable = 1;
    if (files) prop_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    sharable_ = cards || files;
  }
  CUmemAllocationProp prop_{};
  bool asked_ = false, sharable_ = false;
};

// How long a server that restores objects waits for memory: that of the one before it is given back
// some time after its death, 0.4 s and more on an H100 with 67 GB.
struct Patience {
  static constexpr uint64_t kMostNs = 10'000'000'000;
  uint64_t since_ns = 0;  // the first refusal
};

}  // namespace

CUresult create_memory(Session& session, uint64_t bytes, CUmemGenericAllocationHandle* out) {
  SharableMemory& memory = session.state<SharableMemory>();
  Patience& patience = session.state<Patience>();
  for (bool asked = false;;) {
    const CUresult code = memory.create(session, bytes, out);
    if (code != CUDA_ERROR_OUT_OF_MEMORY) return code;
    if (!std::exchange(asked, true) && session.make_room()) continue;
    if (session.recovery().make_room()) continue;
    if (!session.recovery().restores_objects()) return code;
    const uint64_t now = ring::now_ns();
    if (!patience.since_ns) patience.since_ns = now;
    if (now - patience.since_ns > Patience::kMostNs) return code;
    const timespec moment{0, 10'000'000};
    nanosleep(&moment, nullptr);
  }
}

namespace {

int map_memory(Session& session, uint64_t address, uint64_t bytes) {
  const backend::Table& api = session.backend();
  CUmemGenericAllocationHandle handle{};
  if (const CUresult code = create_memory(session, bytes, &handle)) return code;
  if (const CUresult code = api.cuMemMap(address, bytes, 0, handle, 0)) {
    api.cuMemRelease(handle);
    return code;
  }
  CUmemAccessDesc access{};
  access.location = properties(session.ordinal()).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (const CUresult code = api.cuMemSetAccess(address, bytes, &access, 1)) {
    api.cuMemUnmap(address, bytes);
    api.cuMemRelease(handle);
    return code;
  }
  session.state<Mappings>().by_address[address] = {handle, bytes};
  return CUDA_SUCCESS;
}

}  // namespace

Status do_cudaMalloc(Session& session, const EntryHeader& header, const cmd::cudaMalloc& c, Body,
                     Body) {
  if (c.bytes == 0 || (c.address | c.bytes) % ring::kGranule ||
      !session.in_device_window(c.address, c.bytes))
    return Status::broken("cudaMalloc of [" + std::to_string(c.bytes) + "] bytes at [" +
                          std::to_string(c.address) + "] lies outside the device window");
  return finish(session, header, "cudaMalloc", Domain::kCuda,
                map_memory(session, c.address, c.bytes));
}

// Unmapping is not documented to wait for running work, so the server does.
Status do_cudaFree(Session& session, const EntryHeader& header, const cmd::cudaFree& c, Body,
                   Body) {
  auto& mappings = session.state<Mappings>().by_address;
  const auto found = mappings.find(c.address);
  if (found == mappings.end() || found->second.bytes != c.bytes)
    return Status::broken("cudaFree of [" + std::to_string(c.address) + "], which is not mapped");
  const backend::Table& api = session.backend();
  int code = api.cuCtxSynchronize();
  if (code == 0) code = api.cuMemUnmap(c.address, c.bytes);
  if (code == 0) code = api.cuMemRelease(found->second.handle);
  mappings.erase(found);
  return finish(session, header, "cudaFree", Domain::kCuda, code);
}

// The program takes the address for the device's as well.
static int register_pinned(const backend::Table& api, uint64_t address, uint64_t bytes) {
  constexpr unsigned kFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  auto* const memory = reinterpret_cast<void*>(address);
  if (const CUresult code = api.cuMemHostRegister_v2(memory, bytes, kFlags)) return code;
  CUdeviceptr seen = address;
  if (api.cuMemHostGetDevicePointer_v2) api.cuMemHostGetDevicePointer_v2(&seen, memory, 0);
  if (seen == address) return CUDA_SUCCESS;
  PYFT_LOG(kServer, kWarning, "the device has page-locked memory at [%llx] instead of [%llx]",
           static_cast<unsigned long long>(seen), static_cast<unsigned long long>(address));
  api.cuMemHostUnregister(memory);
  return CUDA_ERROR_NOT_SUPPORTED;
}

Status do_cudaHostAlloc(Session& session, const EntryHeader& header, const cmd::cudaHostAlloc& c,
                        Body, Body) {
  if (c.bytes == 0 || !session.in_pinned(c.address, c.bytes))
    return Status::broken("cudaHostAlloc at [" + std::to_string(c.address) +
                          "] lies outside the pinned window");
  const int code = register_pinned(session.backend(), c.address, c.bytes);
  if (code == 0) session.state<PinnedRanges>().bytes_by_address[c.address] = c.bytes;
  return finish(session, header, "cudaHostAlloc", Domain::kCuda, code);
}

Status do_cudaFreeHost(Session& session, const EntryHeader& header, const cmd::cudaFreeHost& c,
                       Body, Body) {
  if (!session.state<PinnedRanges>().bytes_by_address.erase(c.address))
    return Status::broken("cudaFreeHost of [" + std::to_string(c.address) +
                          "], which is not allocated");
  int code = session.backend().cuCtxSynchronize();
  if (code == 0) code = session.backend().cuMemHostUnregister(reinterpret_cast<void*>(c.address));
  return finish(session, header, "cudaFreeHost", Domain::kCuda, code);
}

// The backend snapshots pageable sources at the call, so the arena may be reused afterwards.
Status do_pyftWriteDevice(Session& session, const EntryHeader& header,
                          const cmd::pyftWriteDevice& c, Body, Body payload) {
  CUstream stream;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  return finish(
      session, header, "cuMemcpyHtoDAsync_v2", Domain::kCuda,
      session.backend().cuMemcpyHtoDAsync_v2(c.dst, payload.data(), payload.size(), stream));
}

Status do_pyftReadDevice(Session& session, const EntryHeader& header, const cmd::pyftReadDevice& c,
                         Body, Body) {
  CUstream stream;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  const uint64_t size = session.channel().bounce_bytes();
  if (c.bounce_offset > size || c.bytes > size - c.bounce_offset)
    return Status::broken("pyftReadDevice of [" + std::to_string(c.bytes) +
                          "] bytes leaves the bounce area");
  const auto target = reinterpret_cast<uint64_t>(session.channel().bounce() + c.bounce_offset);
  JournaledResult result(session, header, 0, target, c.bytes);
  int code = session.backend().cuMemcpyDtoHAsync_v2(reinterpret_cast<void*>(result.address()),
                                                    c.src, c.bytes, stream);
  if (code == 0) code = result.finish(stream);
  return finish(session, header, "cuMemcpyDtoHAsync_v2", Domain::kCuda, code);
}

Status do_cudaMemcpyAsync(Session& session, const EntryHeader& header,
                          const cmd::cudaMemcpyAsync& c, Body, Body) {
  CUstream stream;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  return finish(session, header, "cuMemcpyAsync", Domain::kCuda,
                copy_journaled(session, header, c.dst, c.src, c.bytes, stream));
}

Status do_cudaMemcpy2DAsync(Session& session, const EntryHeader& header,
                            const cmd::cudaMemcpy2DAsync& c, Body, Body) {
  CUstream stream;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  return finish(session, header, "cuMemcpy2DAsync_v2", Domain::kCuda,
                copy_2d_journaled(session, header, c, stream));
}

namespace {

int fill(const backend::Table& api, const cmd::cudaMemsetAsync& c, CUstream stream) {
  switch (c.element_bytes) {
    case 1:
      return api.cuMemsetD8Async(c.dst, static_cast<unsigned char>(c.value), c.count, stream);
    case 2:
      return api.cuMemsetD16Async(c.dst, static_cast<unsigned short>(c.value), c.count, stream);
    case 4:
      return api.cuMemsetD32Async(c.dst, c.value, c.count, stream);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

int fill(const backend::Table& api, const cmd::cudaMemset2DAsync& c, CUstream stream) {
  switch (c.element_bytes) {
    case 1:
      return api.cuMemsetD2D8Async(c.dst, c.pitch, static_cast<unsigned char>(c.value), c.width,
                                   c.height, stream);
    case 2:
      return api.cuMemsetD2D16Async(c.dst, c.pitch, static_cast<unsigned short>(c.value), c.width,
                                    c.height, stream);
    case 4:
      return api.cuMemsetD2D32Async(c.dst, c.pitch, c.value, c.width, c.height, stream);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// From the first byte to the last; 0: none, or more than memory has, for the backend to refuse.
uint64_t extent(uint64_t pitch, uint64_t element_bytes, uint64_t width, uint64_t height) {
  uint64_t row = 0, rows = 0, all = 0;
  const bool too_large = __builtin_mul_overflow(width, element_bytes, &row) ||
                         __builtin_mul_overflow(height ? height - 1 : 0, pitch, &rows) ||
                         __builtin_add_overflow(rows, row, &all);
  return too_large || !height ? 0 : all;
}

}  // namespace

Status do_cudaMemsetAsync(Session& session, const EntryHeader& header,
                          const cmd::cudaMemsetAsync& c, Body, Body) {
  CUstream stream;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  const int code = fill_journaled(session, header, c.dst, extent(0, c.element_bytes, c.count, 1),
                                  stream, [&] { return fill(session.backend(), c, stream); });
  return finish(session, header, "cudaMemsetAsync", Domain::kCuda, code);
}

Status do_cudaMemset2DAsync(Session& session, const EntryHeader& header,
                            const cmd::cudaMemset2DAsync& c, Body, Body) {
  CUstream stream;
  if (!resolve_stream(session, c.stream, &stream)) return bad_handle(c.stream);
  const uint64_t bytes = extent(c.pitch, c.element_bytes, c.width, c.height);
  const int code = fill_journaled(session, header, c.dst, bytes, stream,
                                  [&] { return fill(session.backend(), c, stream); });
  return finish(session, header, "cudaMemset2DAsync", Domain::kCuda, code);
}

}  // namespace pyft::server
