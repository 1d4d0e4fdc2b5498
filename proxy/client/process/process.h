// What this process knows without any device: is the proxy on, which devices are visible, the
// calling thread's device and last error, and how often each function was called.
#ifndef PYFT_CLIENT_PROCESS_PROCESS_H_
#define PYFT_CLIENT_PROCESS_PROCESS_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "api/call_ids.h"
#include "client/process/dead_stack.h"
#include "client/process/vendor.h"

namespace pyft::client {

inline constexpr int kMaxDevices = 16;

extern std::atomic<uint64_t> call_counts[static_cast<size_t>(Api::kCount)];

// Every exported function starts with one, and counts itself so: no lock, no allocation. When it
// ends nothing of it stays on the stack, if that is asked for.
struct Entered {
  explicit Entered(Api api) {
    call_counts[static_cast<size_t>(api)].fetch_add(1, std::memory_order_relaxed);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  ~Entered() {
    if (clears_stack) [[unlikely]]
      clear_dead_stack();
  }
};

struct Process {
  bool enabled = false;
  std::string agent;         // value of PYFT_AGENT
  std::vector<int> devices;  // client ordinal -> device number of the job
};

// Decided from the environment on first use.
const Process& process();
// cudaSuccess, or cudaErrorNoDevice when the proxy is off (said once on stderr), or
// cudaErrorInitializationError in a fork of a client that had attached, or cudaErrorNotPermitted in
// a host function.
cudaError_t usable();

int current_device();
void set_current_device(int ordinal);

// Whether this thread runs a host function of a stream, which must not call CUDA.
void set_in_callback(bool in_callback);

// Runtime API results go through this: a failure becomes the thread's last error.
cudaError_t done(cudaError_t error);
cudaError_t last_error(bool clear);

// A line on stderr, prefixed "pyft: ".
void say(const std::string& sentence);
// Says once per function that it is not supported, and why if that is known; ends the process if
// PYFT_STRICT asks for it.
void unsupported(Api api, const std::string& why = {});
// The same each time that it is called.
void unsupported_again(Api api, const std::string& why);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_PROCESS_PROCESS_H_
