// Device memory and events that other processes open. The two servers share them without us; what
// passes through here are the 64 bytes that name them, and the addresses at which our server has
// mapped what it has opened: the server after it opens that again, at the same place. What another
// process writes is in no log of ours, so that a replay need not come to the same values: this is
// said once and noted in the log's header.
#include <cstring>
#include <map>

#include "api/commands.h"
#include "client/device/capture.h"
#include "client/process/handles.h"

namespace pyft::client {
namespace {

struct Opened {
  Device* device = nullptr;
  uint64_t bytes = 0;
  int uses = 0;
};

struct Imports {
  std::mutex mutex;
  std::map<uint64_t, Opened> by_address;
};

// Never destroyed: memory may be closed while the process exits.
Imports& imports() {
  static auto* const all = new Imports;
  return *all;
}

void announce(Device& device, const char* call, ring::Shared how) {
  device.channel().control().shared.fetch_or(how);
  if (device.writer().unreplayable())
    say(std::string("[") + call +
        "] shares device memory with other processes: what they write is in no log, so from here "
        "on "
        "a recovery goes on with what is there then, and need not be exact");
}

// An answer of up to 64 bytes.
template <class Command>
cudaError_t ask_handle(Device& device, Call call, const Command& command, void* out) {
  Reply reply;
  const cudaError_t error = device.call(static_cast<uint16_t>(call), bytes_of(command), &reply);
  if (error != cudaSuccess || reply.code != 0)
    return error != cudaSuccess ? error : static_cast<cudaError_t>(reply.code);
  std::memset(out, 0, sizeof(cudaIpcMemHandle_t));
  std::memcpy(out, reply.data.data(), std::min(reply.data.size(), sizeof(cudaIpcMemHandle_t)));
  return cudaSuccess;
}

cudaError_t get_memory(void* out, uint64_t address) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return error;
  if (!out) return cudaErrorInvalidValue;
  if ((error = check_unsafe_call()) != cudaSuccess) return error;
  uint64_t start = 0, bytes = 0;
  Device* owner = device_of_address(address);
  if (!owner) return cudaErrorInvalidValue;
  {
    const std::lock_guard lock(owner->memory_mutex);
    if (!owner->memory.find(address, &start, &bytes) || owner->pooled.contains(start))
      return cudaErrorInvalidValue;
  }
  announce(*owner, "cudaIpcGetMemHandle", ring::kExports);
  return ask_handle(*owner, Call::cudaIpcGetMemHandle, cmd::cudaIpcGetMemHandle{start}, out);
}

cudaError_t open_memory(void** out, const void* handle, unsigned flags) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return error;
  if (!out || flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
  Reply reply;
  const cmd::cudaIpcOpenMemHandle body{flags, 0};
  const Bytes payload{static_cast<const std::byte*>(handle), sizeof(cudaIpcMemHandle_t)};
  const std::lock_guard lock(imports().mutex);
  error = device->call(static_cast<uint16_t>(Call::cudaIpcOpenMemHandle), bytes_of(body), &reply,
                       {}, payload);
  if (error != cudaSuccess || reply.code != 0)
    return error != cudaSuccess ? error : static_cast<cudaError_t>(reply.code);
  announce(*device, "cudaIpcOpenMemHandle", ring::kImports);
  Opened& opened = imports().by_address[reply.values[0]];
  if (opened.uses++ == 0) {
    opened.device = device;
    opened.bytes = reply.values[1];
    device->add_global(reply.values[0], opened.bytes);
    const cmd::pyftKeepImport keep{reply.values[0], opened.bytes};
    error = device->send(static_cast<uint16_t>(Call::pyftKeepImport), bytes_of(keep), {}, payload);
  }
  *out = reinterpret_cast<void*>(reply.values[0]);
  return error;
}

cudaError_t close_memory(uint64_t address) {
  if (const cudaError_t error = usable(); error != cudaSuccess) return error;
  const std::lock_guard lock(imports().mutex);
  const auto found = imports().by_address.find(address);
  if (found == imports().by_address.end()) return cudaErrorInvalidValue;
  Device& device = *found->second.device;
  if (const cudaError_t error = device.synchronize_all(); error != cudaSuccess) return error;
  if (--found->second.uses == 0) {
    const cmd::pyftDropImport drop{address, found->second.bytes};
    device.send(Call::pyftDropImport, drop);
    device.remove_global(address);
    imports().by_address.erase(found);
  }
  return device.confirm(Call::cudaIpcCloseMemHandle, cmd::cudaIpcCloseMemHandle{address});
}

cudaError_t get_event(void* out, cudaEvent_t handle) {
  Event* event = event_of(handle);
  if (!event || !event->shared || !out) return cudaErrorInvalidResourceHandle;
  return ask_handle(event->device, Call::cudaIpcGetEventHandle,
                    cmd::cudaIpcGetEventHandle{event->handle}, out);
}

cudaError_t open_event(cudaEvent_t* out, const void* bytes) {
  cudaError_t error;
  Device* device = attached(&error);
  if (!device) return error;
  if (!out) return cudaErrorInvalidValue;
  const uint64_t handle = mint_event(*device, cudaEventInterprocess | cudaEventDisableTiming);
  if (!handle) return cudaErrorMemoryAllocation;
  error = device->confirm(Call::cudaIpcOpenEventHandle, cmd::cudaIpcOpenEventHandle{handle},
                          {static_cast<const std::byte*>(bytes), sizeof(cudaIpcEventHandle_t)});
  if (error == cudaSuccess)
    *out = reinterpret_cast<cudaEvent_t>(handle);
  else
    delete static_cast<Event*>(end_word_handle(handle, HandleKind::kEvent));
  return error;
}

}  // namespace
}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* devPtr) {
  const Entered entered(Api::cudaIpcGetMemHandle);
  return done(get_memory(handle, reinterpret_cast<uint64_t>(devPtr)));
}

PYFT_API cudaError_t cudaIpcOpenMemHandle(void** devPtr, cudaIpcMemHandle_t handle,
                                          unsigned int flags) {
  const Entered entered(Api::cudaIpcOpenMemHandle);
  return done(open_memory(devPtr, &handle, flags));
}

PYFT_API cudaError_t cudaIpcCloseMemHandle(void* devPtr) {
  const Entered entered(Api::cudaIpcCloseMemHandle);
  return done(close_memory(reinterpret_cast<uint64_t>(devPtr)));
}

PYFT_API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  const Entered entered(Api::cudaIpcGetEventHandle);
  return done(get_event(handle, event));
}

PYFT_API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  const Entered entered(Api::cudaIpcOpenEventHandle);
  return done(open_event(event, &handle));
}

PYFT_API CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  const Entered entered(Api::cuIpcGetMemHandle);
  return static_cast<CUresult>(get_memory(pHandle, dptr));
}

PYFT_API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle,
                                        unsigned int Flags) {
  const Entered entered(Api::cuIpcOpenMemHandle_v2);
  return static_cast<CUresult>(open_memory(reinterpret_cast<void**>(pdptr), &handle, Flags));
}

PYFT_API CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
  const Entered entered(Api::cuIpcCloseMemHandle);
  return static_cast<CUresult>(close_memory(dptr));
}

PYFT_API CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  const Entered entered(Api::cuIpcGetEventHandle);
  return static_cast<CUresult>(get_event(pHandle, event));
}

PYFT_API CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  const Entered entered(Api::cuIpcOpenEventHandle);
  return static_cast<CUresult>(open_event(phEvent, &handle));
}
