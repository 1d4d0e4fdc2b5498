// Addresses the program reserves in the device window, and memory it maps there itself, as
// PyTorch's expandable segments do. The client places addresses, counts the uses of memory and
// checks ranges; whether there is memory only the server knows.
#ifndef PYFT_CLIENT_VIRTUAL_MEMORY_H_
#define PYFT_CLIENT_VIRTUAL_MEMORY_H_

#include "client/device.h"

namespace pyft::client {

struct Mapped {
  uint64_t start = 0, bytes = 0;  // of the mapping; bytes 0: none
  bool accessible = false;
};

// What lies at an address the program has reserved. False: it has not.
bool find_reserved(uint64_t address, Mapped* out);
// Accessible mappings of the device follow each other over the whole range.
bool covers(const Device& device, uint64_t address, uint64_t bytes);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_VIRTUAL_MEMORY_H_
