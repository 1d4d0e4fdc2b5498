// Stream-ordered memory and its pools.
#include "api/runtime/memory_calls.h"
#include "api/stub.h"
#include "api/support.h"
#include "device/memory_pool.h"
#include "graph/capture.h"
#include "graph/graph_memory.h"
#include "memory/pointers.h"
#include "work/perform.h"

namespace api = softgpu::api;
using softgpu::MemoryPool;
using StreamPointer = std::shared_ptr<softgpu::Stream>;

namespace {

bool valid_device(int device) {
  return device >= 0 && device < softgpu::device_count();
}

// On a stream that is being captured: a node, with memory of the graph. Empty if it is not.
std::optional<cudaError_t> capture_allocation(const softgpu::Stream& stream, int device,
                                              uint64_t bytes, uint64_t* address) {
  if (!softgpu::any_capture()) return std::nullopt;
  const softgpu::GraphLock lock;
  softgpu::StreamCapture* part = softgpu::capture_of(stream);
  if (!part) return std::nullopt;
  if (part->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  softgpu::GraphNode* node = nullptr;
  const cudaError_t bad =
      softgpu::add_alloc_node(part->capture->graph.get(), part->dependencies, device, bytes, &node);
  if (bad != cudaSuccess) return bad;
  part->dependencies = {node};
  *address = std::get<softgpu::AllocOperation>(*node->operation).memory->address;
  return cudaSuccess;
}

std::optional<cudaError_t> capture_free(const softgpu::Stream& stream, uint64_t address) {
  if (!softgpu::any_capture()) return std::nullopt;
  const softgpu::GraphLock lock;
  softgpu::StreamCapture* part = softgpu::capture_of(stream);
  if (!part) return std::nullopt;
  if (part->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  softgpu::GraphNode* node = nullptr;
  const cudaError_t bad =
      softgpu::add_free_node(part->capture->graph.get(), part->dependencies, address, &node);
  if (bad == cudaSuccess) part->dependencies = {node};
  return bad;
}

cudaError_t allocate_from(const std::shared_ptr<MemoryPool>& pool, uint64_t bytes,
                          const void* stream, void** out) {
  return api::with_stream(stream, [&](const StreamPointer& s) {
    if (!out || !pool) return cudaErrorInvalidValue;
    *out = nullptr;
    if (bytes == 0) return cudaSuccess;
    uint64_t address = 0;
    const auto captured = capture_allocation(*s, pool->device, bytes, &address);
    const cudaError_t status = captured ? *captured : pool->allocate(s, bytes, &address);
    *out = api::pointer(address);
    return status;
  });
}

// The pool that the calls without a pool mean: the current one of the stream's device.
cudaError_t allocate_on(const void* stream, uint64_t bytes, void** out) {
  int device = 0;
  const cudaError_t bad = api::with_stream(stream, [&](const StreamPointer& s) {
    device = s->device;
    return cudaSuccess;
  });
  if (bad != cudaSuccess) return bad;
  return allocate_from(softgpu::find_pool(softgpu::current_pool(device)), bytes, stream, out);
}

// Memory of a graph that is freed outside of it: kept until the stream has got there.
cudaError_t free_graph_memory(const StreamPointer& stream, uint64_t address) {
  const auto memory = softgpu::find_graph_memory(address);
  if (!memory || !softgpu::graph_memory_live(address)) return cudaErrorInvalidValue;
  softgpu::set_graph_memory_live(memory, false);
  return softgpu::perform(stream, softgpu::AllocOperation{memory, memory->bytes});
}

cudaError_t free_on(const void* stream, uint64_t address) {
  return api::with_stream(stream, [&](const StreamPointer& s) {
    if (!address) return cudaSuccess;
    if (const auto captured = capture_free(*s, address)) return *captured;
    if (const auto pool = softgpu::pool_of(address)) return pool->free(s, address);
    if (softgpu::find_graph_memory(address)) return free_graph_memory(s, address);
    return api::free_device(address);
  });
}

// Calls `body(pool)`.
template <class Body>
cudaError_t with_pool(const void* handle, Body body) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return bad;
  const auto pool = softgpu::find_pool(handle);
  return pool ? body(*pool) : cudaErrorInvalidValue;
}

template <class Location>
bool names_device(const Location& at) {
  return static_cast<int>(at.type) == cudaMemLocationTypeDevice && valid_device(at.id);
}

// Every device reaches every memory here: access can neither be given nor taken away.
template <class Description>
cudaError_t set_access(const void* pool, const Description* all, size_t count) {
  return with_pool(pool, [&](MemoryPool& p) {
    if (count && !all) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; ++i) {
      if (!names_device(all[i].location)) return cudaErrorInvalidDevice;
      const bool none = static_cast<int>(all[i].flags) == cudaMemAccessFlagsProtNone;
      if (none && all[i].location.id == p.device) return cudaErrorInvalidDevice;
    }
    return cudaSuccess;
  });
}

template <class Properties>
cudaError_t make_pool(const Properties* p, void** out) {
  return api::with_device([&](softgpu::Device&) {
    if (!p || !out || static_cast<int>(p->allocType) != cudaMemAllocationTypePinned) {
      return cudaErrorInvalidValue;
    }
    if (!names_device(p->location)) return cudaErrorInvalidDevice;
    if (static_cast<int>(p->handleTypes) != cudaMemHandleTypeNone) {
      static std::atomic<bool> said{false};
      api::report_stub("cudaMemPoolCreate with shareable handles", said);
      return cudaErrorNotSupported;
    }
    *out = softgpu::create_pool(p->location.id, p->maxSize);
    return cudaSuccess;
  });
}

cudaError_t give_pool(void* pool, void** out) {
  if (!out) return cudaErrorInvalidValue;
  *out = pool;
  return cudaSuccess;
}

cudaError_t pool_for(int device, bool current, void** out) {
  if (const cudaError_t bad = api::usable(); bad != cudaSuccess) return bad;
  if (!valid_device(device)) return cudaErrorInvalidDevice;
  return give_pool(current ? softgpu::current_pool(device) : softgpu::default_pool(device), out);
}

}  // namespace

SOFTGPU_API cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaMallocAsync_v11020);
  return api::record(allocate_on(stream, bytes, out));
}

SOFTGPU_API cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool,
                                                cudaStream_t stream) {
  return api::record(allocate_from(softgpu::find_pool(pool), bytes, stream, out));
}

SOFTGPU_API cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  const profiling::RuntimeCall traced(CUPTI_RUNTIME_TRACE_CBID_cudaFreeAsync_v11020);
  return api::record(free_on(stream, api::number(address)));
}

SOFTGPU_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return api::record(pool_for(device, false, reinterpret_cast<void**>(pool)));
}

SOFTGPU_API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return api::record(pool_for(device, true, reinterpret_cast<void**>(pool)));
}

SOFTGPU_API cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  if (!valid_device(device)) return api::record(cudaErrorInvalidDevice);
  return api::record(softgpu::set_current_pool(device, pool));
}

SOFTGPU_API cudaError_t cudaMemPoolCreate(cudaMemPool_t* out, const cudaMemPoolProps* properties) {
  return api::record(make_pool(properties, reinterpret_cast<void**>(out)));
}

SOFTGPU_API cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return api::record(softgpu::destroy_pool(pool));
}

SOFTGPU_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  return api::record(with_pool(pool, [&](MemoryPool& p) {
    p.trim(keep);
    return cudaSuccess;
  }));
}

SOFTGPU_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                                void* value) {
  return api::record(with_pool(pool, [&](MemoryPool& p) {
    return value ? p.set(attribute, value) : cudaErrorInvalidValue;
  }));
}

SOFTGPU_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                                void* value) {
  return api::record(with_pool(pool, [&](MemoryPool& p) {
    return value ? p.get(attribute, value) : cudaErrorInvalidValue;
  }));
}

SOFTGPU_API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* all,
                                             size_t count) {
  return api::record(set_access(pool, all, count));
}

SOFTGPU_API cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool,
                                             cudaMemLocation* location) {
  return api::record(with_pool(pool, [&](MemoryPool&) {
    if (!flags || !location || !names_device(*location)) return cudaErrorInvalidValue;
    *flags = cudaMemAccessFlagsProtReadWrite;
    return cudaSuccess;
  }));
}

SOFTGPU_API CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  return api::driver_result(allocate_on(stream, bytes, reinterpret_cast<void**>(out)));
}

SOFTGPU_API CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool,
                                             CUstream stream) {
  return api::driver_result(
      allocate_from(softgpu::find_pool(pool), bytes, stream, reinterpret_cast<void**>(out)));
}

SOFTGPU_API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return api::driver_result(free_on(stream, address));
}

SOFTGPU_API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return api::driver_result(pool_for(device, false, reinterpret_cast<void**>(pool)));
}

SOFTGPU_API CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return api::driver_result(pool_for(device, true, reinterpret_cast<void**>(pool)));
}

SOFTGPU_API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  return api::driver_result(softgpu::set_current_pool(device, pool));
}

SOFTGPU_API CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* properties) {
  return api::driver_result(make_pool(properties, reinterpret_cast<void**>(out)));
}

SOFTGPU_API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return api::driver_result(softgpu::destroy_pool(pool));
}

SOFTGPU_API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  return api::driver_result(with_pool(pool, [&](MemoryPool& p) {
    p.trim(keep);
    return cudaSuccess;
  }));
}

SOFTGPU_API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                           void* value) {
  return api::driver_result(with_pool(pool, [&](MemoryPool& p) {
    return value ? p.set(static_cast<cudaMemPoolAttr>(attribute), value) : cudaErrorInvalidValue;
  }));
}

SOFTGPU_API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                           void* value) {
  return api::driver_result(with_pool(pool, [&](MemoryPool& p) {
    return value ? p.get(static_cast<cudaMemPoolAttr>(attribute), value) : cudaErrorInvalidValue;
  }));
}

SOFTGPU_API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* all,
                                        size_t count) {
  return api::driver_result(set_access(pool, all, count));
}

SOFTGPU_API CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool,
                                        CUmemLocation* location) {
  return api::driver_result(with_pool(pool, [&](MemoryPool&) {
    if (!flags || !location || !names_device(*location)) return cudaErrorInvalidValue;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return cudaSuccess;
  }));
}
