// Handles by which another process of the same user reaches memory and events.
#include <unistd.h>

#include <cstring>

#include "api/support.h"
#include "graph/capture.h"
#include "stream/ipc_event.h"
#include "work/ipc_memory.h"

namespace api = softgpu::api;
using softgpu::Device;

namespace {

constexpr uint32_t kMemoryMagic = 0x304d4753, kEventMagic = 0x30454753;  // "SGM0", "SGE0"

// The 64 bytes that travel between processes; both run this library.
struct MemoryHandle {
  uint32_t magic = kMemoryMagic, reserved = 0;
  softgpu::IpcMemory memory;
};
struct EventHandle {
  uint32_t magic = kEventMagic, slot = 0;
  softgpu::IpcFile file;
};
static_assert(sizeof(MemoryHandle) <= sizeof(cudaIpcMemHandle_t));
static_assert(sizeof(EventHandle) <= sizeof(cudaIpcEventHandle_t));
static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle));
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle));

template <class Inner, class Outer>
void pack(const Inner& inner, Outer* outer) {
  std::memset(outer, 0, sizeof *outer);
  std::memcpy(outer, &inner, sizeof inner);
}

cudaError_t get_memory(void* out, uint64_t address) {
  return api::with_device([&](Device&) {
    if (!out) return cudaErrorInvalidValue;
    if (const cudaError_t bad = softgpu::check_unsafe_call(); bad != cudaSuccess) return bad;
    MemoryHandle handle;
    const cudaError_t status = softgpu::export_memory(address, &handle.memory);
    pack(handle, static_cast<cudaIpcMemHandle_t*>(out));
    return status;
  });
}

cudaError_t open_memory(void** out, const void* bytes, unsigned flags) {
  return api::with_device([&](Device& d) {
    if (!out || flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
    MemoryHandle handle;
    std::memcpy(&handle, bytes, sizeof handle);
    if (handle.magic != kMemoryMagic) return cudaErrorInvalidResourceHandle;
    // The process that exported the memory has it already.
    if (handle.memory.file.process == getpid()) return cudaErrorDeviceUninitialized;
    uint64_t address = 0;
    const cudaError_t status = softgpu::import_memory(d.index(), handle.memory, &address);
    *out = api::pointer(address);
    return status;
  });
}

cudaError_t close_memory(uint64_t address) {
  return api::with_device([&](Device& d) {
    if (!softgpu::is_imported(address)) return cudaErrorInvalidValue;
    d.scheduler().wait_device();
    int owner = 0;
    return softgpu::close_memory(address, &owner);
  });
}

cudaError_t get_event(void* out, const void* event) {
  return api::with_device([&](Device&) {
    softgpu::Event found;
    if (!out || !softgpu::find_event(event, &found)) return cudaErrorInvalidResourceHandle;
    if (!found.shared || !found.shared->own()) return cudaErrorInvalidResourceHandle;
    EventHandle handle;
    const softgpu::SharedEventPlace place = found.shared->place();
    handle.slot = place.slot;
    if (!softgpu::describe_file(place.fd, &handle.file)) return cudaErrorOperatingSystem;
    pack(handle, static_cast<cudaIpcEventHandle_t*>(out));
    return cudaSuccess;
  });
}

cudaError_t open_event(void** out, const void* bytes) {
  return api::with_device([&](Device& d) {
    if (!out) return cudaErrorInvalidValue;
    EventHandle handle;
    std::memcpy(&handle, bytes, sizeof handle);
    if (handle.magic != kEventMagic) return cudaErrorInvalidResourceHandle;
    if (handle.file.process == getpid()) return cudaErrorDeviceUninitialized;
    const int fd = softgpu::open_file(handle.file);
    if (fd < 0) return cudaErrorMapBufferObjectFailed;
    auto shared = softgpu::SharedEvent::open({fd, handle.slot});
    close(fd);
    if (!shared) return cudaErrorMapBufferObjectFailed;
    *out = softgpu::create_event(d.index(), cudaEventInterprocess | cudaEventDisableTiming,
                                 std::move(shared));
    return cudaSuccess;
  });
}

}  // namespace

SOFTGPU_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* out, void* address) {
  return api::record(get_memory(out, api::number(address)));
}

SOFTGPU_API cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle,
                                             unsigned flags) {
  return api::record(open_memory(out, &handle, flags));
}

SOFTGPU_API cudaError_t cudaIpcCloseMemHandle(void* address) {
  return api::record(close_memory(api::number(address)));
}

SOFTGPU_API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* out, cudaEvent_t event) {
  return api::record(get_event(out, event));
}

SOFTGPU_API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* out, cudaIpcEventHandle_t handle) {
  return api::record(open_event(reinterpret_cast<void**>(out), &handle));
}

SOFTGPU_API CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  return api::driver_result(get_memory(out, address));
}

SOFTGPU_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle,
                                           unsigned flags) {
  return api::driver_result(open_memory(reinterpret_cast<void**>(out), &handle, flags));
}

SOFTGPU_API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return api::driver_result(close_memory(address));
}

SOFTGPU_API CUresult cuIpcGetEventHandle(CUipcEventHandle* out, CUevent event) {
  return api::driver_result(get_event(out, event));
}

SOFTGPU_API CUresult cuIpcOpenEventHandle(CUevent* out, CUipcEventHandle handle) {
  return api::driver_result(open_event(reinterpret_cast<void**>(out), &handle));
}
