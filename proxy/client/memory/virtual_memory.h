// Addresses the program reserves in the device window, and memory it maps there itself, as
// PyTorch's expandable segments do. The client places addresses, counts the uses of memory and
// checks ranges; whether there is memory only the server knows.
#ifndef PYFT_CLIENT_MEMORY_VIRTUAL_MEMORY_H_
#define PYFT_CLIENT_MEMORY_VIRTUAL_MEMORY_H_

#include "client/device/device.h"

namespace pyft::client {

// What the driver calls do; check_properties() refuses memory that cannot be created.
CUresult reserve_addresses(uint64_t bytes, uint64_t alignment, uint64_t wanted, uint64_t flags,
                           CUdeviceptr* out);
CUresult free_addresses(uint64_t address, uint64_t bytes);
CUresult check_properties(const CUmemAllocationProp& prop);
CUresult create_memory(uint64_t bytes, const CUmemAllocationProp* prop, uint64_t flags,
                       CUmemGenericAllocationHandle* out);
CUresult release_memory(uint64_t handle);
CUresult map_memory(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t handle,
                    uint64_t flags);
CUresult unmap_memory(uint64_t address, uint64_t bytes);
CUresult set_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc* list, size_t count);
CUresult retain_memory(uint64_t address, CUmemGenericAllocationHandle* out);
CUresult memory_properties(uint64_t handle, CUmemAllocationProp* out);

struct Mapped {
  uint64_t start = 0, bytes = 0;  // of the mapping; bytes 0: none
  bool accessible = false;
};

// What lies at an address the program has reserved. False: it has not.
bool find_reserved(uint64_t address, Mapped* out);
// Accessible mappings of the device follow each other over the whole range.
bool covers(const Device& device, uint64_t address, uint64_t bytes);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_MEMORY_VIRTUAL_MEMORY_H_
