#include "server/device.h"

#include <dlfcn.h>
#include <time.h>

#include <cstdlib>

#include "backend/repair.h"
#include "ring/layout.h"
#include "ring/wait.h"

namespace pyft::server {

namespace {

std::string failed(const char* call, int code) {
  return std::string("[") + call + "] of the backend fails with code [" + std::to_string(code) +
         "]";
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

// How a context is asked whether it has failed. A stream that has nothing to do may not know of it:
// so it is given something. It is no stream of the program's, and waits for none: the default
// stream must not even be looked at while a blocking stream captures, which would break the
// capture.
void ask_context(const backend::Table& table, DeviceCalls* calls) {
  calls->status = [&table] { return static_cast<int>(table.cuStreamQuery(nullptr)); };
  CUstream stream = nullptr;
  CUevent event = nullptr;
  if (!table.cuStreamCreateWithPriority || !table.cuEventCreate || !table.cuEventRecord ||
      table.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0) ||
      table.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING))
    return;
  calls->status_in_capture = [&table, stream, event] {
    const int code = table.cuEventRecord(event, stream);
    return code ? code : static_cast<int>(table.cuStreamQuery(stream));
  };
  calls->status = [first = calls->status_in_capture, second = calls->status] {
    constexpr int kNotReady = 600;
    const int code = first();
    return code == 0 || code == kNotReady ? second() : code;
  };
}

void show_soft_gpu(int device, DeviceCalls* calls) {
  const auto time =
      reinterpret_cast<unsigned long long (*)(int)>(find_beside("softgpu_kernel_time_ns", nullptr));
  const auto waiting = reinterpret_cast<unsigned long long (*)()>(
      find_beside("pyft_collectives_waiting", "libpyft_collectives.so"));
  if (waiting && backend::collectives_are_flexccl())
    calls->waiting = waiting, calls->sees_collectives = {};
  if (time) calls->progress = [time, device] { return time(device); };
}

// The server before this one may have died so recently that the GPU is not free again.
CUresult retain(const backend::Table& table, CUdevice device, CUcontext* context) {
  constexpr uint64_t kMostNs = 10'000'000'000;
  const bool replaces = std::getenv("PYFT_SELF_TEST");
  const uint64_t until = ring::now_ns() + (replaces ? kMostNs : 0);
  for (;;) {
    const CUresult code = table.cuDevicePrimaryCtxRetain(context, device);
    const bool may_pass = code == CUDA_ERROR_OUT_OF_MEMORY || code == CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (!may_pass || ring::now_ns() >= until) return code;
    const timespec moment{0, 10'000'000};
    nanosleep(&moment, nullptr);
  }
}

}  // namespace

std::vector<int> ordinals() {
  std::vector<int> found;
  const char* at = std::getenv("PYFT_ORDINALS");
  for (char* end = nullptr; at && *at; at = *end ? end + 1 : end) {
    found.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    if (end == at) return {};
  }
  return found;
}

std::string enter_context(const backend::Table& table, int ordinal, CUcontext* context) {
  if (!table.cuInit || !table.cuDeviceGet || !table.cuDevicePrimaryCtxRetain ||
      !table.cuCtxSetCurrent || !table.cuMemAddressReserve || !table.cuLaunchHostFunc)
    return "the backend lacks a driver function that the server itself needs";
  CUdevice device = 0;
  if (const CUresult code = table.cuInit(0)) return failed("cuInit", code);
  if (const CUresult code = table.cuDeviceGet(&device, ordinal)) return failed("cuDeviceGet", code);
  if (const CUresult code = retain(table, device, context))
    return failed("cuDevicePrimaryCtxRetain", code);
  if (const CUresult code = table.cuCtxSetCurrent(*context)) return failed("cuCtxSetCurrent", code);
  return {};
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

// MPS ends all of its clients when one fails, and admits no new ones until all have ended: nobody
// could take over.
std::string shared_fate(const backend::Table& table, int ordinal) {
  int shares = 0;
  if (!table.cuDeviceGetAttribute ||
      table.cuDeviceGetAttribute(&shares, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, ordinal) || !shares)
    return {};
  return "the GPU is shared by MPS, where one process that fails takes the others with it: faults "
         "cannot be repaired. End nvidia-cuda-mps-control, or set CUDA_MPS_PIPE_DIRECTORY to an "
         "empty folder";
}

void enter_thread(const backend::Table& table, CUcontext context) {
  table.cuCtxSetCurrent(context);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (table.cuThreadExchangeStreamCaptureMode) table.cuThreadExchangeStreamCaptureMode(&mode);
}

DeviceCalls device_calls(const backend::Table& table, const backend::Extras& extras, int ordinal,
                         StreamWords* words, CollectiveMarks* marks) {
  DeviceCalls calls;
  // Publishing a word never blocks, so it may run where the device's work runs.
  calls.publish = extras.publish;
  if (!calls.publish)
    calls.publish = [&table](void* stream, void (*function)(void*), void* data) {
      return static_cast<int>(
          table.cuLaunchHostFunc(static_cast<CUstream>(stream), function, data));
    };
  if (extras.work) calls.work = [work = extras.work, ordinal] { return work(ordinal) != 0; };
  if (table.cuStreamQuery && extras.publish)
    calls.status = [&table] { return static_cast<int>(table.cuStreamQuery(nullptr)); };
  else if (table.cuStreamQuery)
    ask_context(table, &calls);
  if (words) {
    calls.signal = [words](void* stream, void (*function)(void*), void* data) {
      return words->signal(stream, function, data);
    };
    calls.progress = [=] { return words->progress() + (marks ? marks->passed() : 0); };
    calls.waiting = [=] { return marks ? marks->waiting() : 0; };  // unless they are flexccl's
    calls.sees_collectives = [=] { return marks && marks->sees(); };
    calls.marks = marks;
  }
  show_soft_gpu(ordinal, &calls);
  return calls;
}

}  // namespace pyft::server
