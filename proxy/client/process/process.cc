#include "client/process/process.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "pyft/log.h"
#include "pyft/settings.h"
#include "ring/wait.h"

namespace pyft::client {

std::atomic<uint64_t> call_counts[static_cast<size_t>(Api::kCount)];

namespace {

thread_local int thread_device = 0;
thread_local cudaError_t thread_error = cudaSuccess;
// Read by every call: this library is loaded at the start, so the cheap model is possible.
__attribute__((tls_model("initial-exec"))) thread_local bool in_host_function = false;

// CUDA_VISIBLE_DEVICES as the driver reads it: numbers, ends at the first one that is no device.
std::vector<int> visible_devices(int count) {
  std::vector<int> devices;
  const char* list = settings::cuda_visible_devices();
  if (!list) {
    for (int i = 0; i < count; ++i) devices.push_back(i);
    return devices;
  }
  for (const char* at = list; *at;) {
    char* end = nullptr;
    const long device = std::strtol(at, &end, 10);
    if (end == at || device < 0 || device >= count) break;
    devices.push_back(static_cast<int>(device));
    at = *end == ',' ? end + 1 : end;
    if (*end && *end != ',') break;
  }
  return devices;
}

Process make_process() {
  Process made;
  made.agent = settings::agent();
  made.enabled = !made.agent.empty() && !settings::disable();
  if (!made.enabled) return made;
  made.devices = visible_devices(
      static_cast<int>(std::min<uint64_t>(settings::devices(), uint64_t{kMaxDevices})));
  return made;
}

}  // namespace

const Process& process() {
  static const Process* const made = new Process(make_process());  // outlives atexit handlers
  return *made;
}

cudaError_t usable() {
  if (!process().enabled) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true))
      say("no device: the proxy is off (PYFT_AGENT is not set, or PYFT_DISABLE=1)");
    return cudaErrorNoDevice;
  }
  if (ring::in_forked_child()) return cudaErrorInitializationError;
  if (in_host_function) [[unlikely]]
    return cudaErrorNotPermitted;
  return process().devices.empty() ? cudaErrorNoDevice : cudaSuccess;
}

int current_device() {
  return thread_device;
}
void set_current_device(int ordinal) {
  thread_device = ordinal;
}

void set_in_callback(bool in_callback) {
  in_host_function = in_callback;
}

cudaError_t done(cudaError_t error) {
  if (error != cudaSuccess) [[unlikely]]
    thread_error = error;
  return error;
}

cudaError_t last_error(bool clear) {
  const cudaError_t error = thread_error;
  if (clear) thread_error = cudaSuccess;
  return error;
}

void say(const std::string& sentence) {
  PYFT_LOG(kClient, kWarning, "%s", sentence.c_str());
  std::fflush(stderr);
}

}  // namespace pyft::client
