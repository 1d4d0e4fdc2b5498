// Host memory the program has registered. The server cannot reach it, so copies treat it as
// pageable memory; what is kept here answers questions about it and finds wrong calls.
#ifndef PYFT_CLIENT_MEMORY_HOST_REGISTER_H_
#define PYFT_CLIENT_MEMORY_HOST_REGISTER_H_

#include "client/device/device.h"

namespace pyft::client {

struct Registered {
  uint64_t start = 0, bytes = 0;
  unsigned flags = 0;
  Device* device = nullptr;  // the one that was current
};

cudaError_t register_host(void* pointer, size_t bytes, unsigned flags);
cudaError_t unregister_host(void* pointer);
// The registered range that contains the address. False: none.
bool find_registered(uint64_t address, Registered* out);
// Says once that a device cannot read registered memory, and returns the code of that.
cudaError_t no_device_pointer();

}  // namespace pyft::client

#endif  // PYFT_CLIENT_MEMORY_HOST_REGISTER_H_
