#include "server/device.h"

#include <dlfcn.h>

#include <cstdlib>

#include "ring/layout.h"

namespace pyft::server {

namespace {

std::string failed(const char* call, int code) {
  return std::string("[") + call + "] of the backend fails with code [" + std::to_string(code) +
         "]";
}

std::string reserve_window(const backend::Table& table, uint32_t device) {
  const uint64_t wanted = ring::kDeviceWindowBase + device * ring::kDeviceWindowBytes;
  CUdeviceptr got = 0;
  const CUresult code = table.cuMemAddressReserve(&got, ring::kDeviceWindowBytes, 0, wanted, 0);
  if (code) return failed("cuMemAddressReserve", code);
  if (got == wanted) return {};
  return "the address window of device [" + std::to_string(device) + "] is at [" +
         std::to_string(got) + "] instead of [" + std::to_string(wanted) + "]";
}

// A function of the soft GPU or of the library of collectives beside it; nullptr: another backend.
void* find_beside(const char* name, const char* file) {
  const char* const backend = std::getenv("PYFT_BACKEND_LIBRARY");
  if (!backend) return nullptr;
  const std::string path(backend);
  const std::string library = file ? path.substr(0, path.find_last_of('/') + 1) + file : path;
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  return handle ? dlsym(handle, name) : nullptr;
}

void show_soft_gpu(uint32_t device, DeviceCalls* calls) {
  const auto time =
      reinterpret_cast<unsigned long long (*)(int)>(find_beside("softgpu_kernel_time_ns", nullptr));
  const auto waiting = reinterpret_cast<unsigned long long (*)()>(
      find_beside("pyft_collectives_waiting", "libpyft_collectives.so"));
  if (!time || !waiting) return;
  calls->progress = [time, device] { return time(static_cast<int>(device)); };
  calls->waiting = waiting;
}

}  // namespace

std::string prepare_device(const backend::Table& table, uint32_t device, CUcontext* context) {
  if (!table.cuInit || !table.cuDeviceGet || !table.cuDevicePrimaryCtxRetain ||
      !table.cuCtxSetCurrent || !table.cuMemAddressReserve || !table.cuLaunchHostFunc)
    return "the backend lacks a driver function that the server itself needs";
  CUdevice ordinal = 0;
  if (const CUresult code = table.cuInit(0)) return failed("cuInit", code);
  if (const CUresult code = table.cuDeviceGet(&ordinal, static_cast<int>(device)))
    return failed("cuDeviceGet", code);
  if (const CUresult code = table.cuDevicePrimaryCtxRetain(context, ordinal))
    return failed("cuDevicePrimaryCtxRetain", code);
  if (const CUresult code = table.cuCtxSetCurrent(*context)) return failed("cuCtxSetCurrent", code);
  return reserve_window(table, device);
}

DeviceCalls device_calls(const backend::Table& table, const backend::Extras& extras,
                         uint32_t device) {
  DeviceCalls calls;
  // Publishing a word never blocks, so it may run where the device's work runs.
  calls.publish = extras.publish;
  if (!calls.publish)
    calls.publish = [&table](void* stream, void (*function)(void*), void* data) {
      return static_cast<int>(
          table.cuLaunchHostFunc(static_cast<CUstream>(stream), function, data));
    };
  if (extras.work)
    calls.work = [work = extras.work, device] { return work(static_cast<int>(device)) != 0; };
  if (table.cuStreamQuery)
    calls.status = [&table] { return static_cast<int>(table.cuStreamQuery(nullptr)); };
  show_soft_gpu(device, &calls);
  return calls;
}

}  // namespace pyft::server
