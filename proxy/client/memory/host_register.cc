#include "client/memory/host_register.h"

#include <map>

#include "client/device/capture.h"

namespace pyft::client {
namespace {

struct Ranges {
  std::mutex mutex;
  std::map<uint64_t, Registered> by_start;
};

// Never destroyed: memory may be unregistered while the process exits.
Ranges& ranges() {
  static auto* const all = new Ranges;
  return *all;
}

bool overlaps(const std::map<uint64_t, Registered>& all, uint64_t start, uint64_t bytes) {
  const auto next = all.lower_bound(start);
  if (next != all.end() && next->first < start + bytes) return true;
  return next != all.begin() && start - std::prev(next)->first < std::prev(next)->second.bytes;
}

}  // namespace

cudaError_t register_host(void* pointer, size_t bytes, unsigned flags) {
  constexpr unsigned kKnown = cudaHostRegisterPortable | cudaHostRegisterMapped |
                              cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
  cudaError_t error = check_unsafe_call();
  if (error != cudaSuccess) return error;
  Device* device = attached(&error);
  if (!device) return error;
  const auto start = reinterpret_cast<uint64_t>(pointer);
  if (!start || !bytes || flags & ~kKnown || bytes > UINT64_MAX - start)
    return cudaErrorInvalidValue;
  if (flags & cudaHostRegisterIoMemory) {
    say("[cudaHostRegister] cannot register memory of I/O devices");
    return cudaErrorNotSupported;
  }
  if (device_of_address(start)) return cudaErrorInvalidValue;
  if (device_of_pinned(start, 1)) return cudaErrorHostMemoryAlreadyRegistered;
  const std::lock_guard lock(ranges().mutex);
  if (overlaps(ranges().by_start, start, bytes)) return cudaErrorHostMemoryAlreadyRegistered;
  ranges().by_start[start] = {start, bytes, flags, device};
  return cudaSuccess;
}

// Copies of such memory have read or written it before they return: there is nothing to wait for.
cudaError_t unregister_host(void* pointer) {
  if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  if (const cudaError_t error = usable(); error != cudaSuccess) return error;
  if (!pointer) return cudaErrorInvalidValue;
  const std::lock_guard lock(ranges().mutex);
  const bool known = ranges().by_start.erase(reinterpret_cast<uint64_t>(pointer)) != 0;
  return known ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}

bool find_registered(uint64_t address, Registered* out) {
  const std::lock_guard lock(ranges().mutex);
  auto after = ranges().by_start.upper_bound(address);
  if (after == ranges().by_start.begin()) return false;
  --after;
  if (address - after->first >= after->second.bytes) return false;
  *out = after->second;
  return true;
}

cudaError_t no_device_pointer() {
  static std::atomic<bool> said{false};
  if (!said.exchange(true))
    say("[cudaHostGetDevicePointer] has no device pointer for memory of [cudaHostRegister]: "
        "the server cannot reach it");
  return cudaErrorNotSupported;
}

}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API cudaError_t cudaHostRegister(void* ptr, size_t size, unsigned int flags) {
  const Entered entered(Api::cudaHostRegister);
  return done(register_host(ptr, size, flags));
}

PYFT_API cudaError_t cudaHostUnregister(void* ptr) {
  const Entered entered(Api::cudaHostUnregister);
  return done(unregister_host(ptr));
}

PYFT_API CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  const Entered entered(Api::cuMemHostRegister_v2);
  return static_cast<CUresult>(register_host(p, bytesize, Flags));
}

PYFT_API CUresult cuMemHostUnregister(void* p) {
  const Entered entered(Api::cuMemHostUnregister);
  return static_cast<CUresult>(unregister_host(p));
}
