// What the device can do and a program cannot have through its server.
#ifndef PYFT_CLIENT_QUERIES_UNSERVED_H_
#define PYFT_CLIENT_QUERIES_UNSERVED_H_

#include <cstdint>
#include <span>

#include "client/process/vendor.h"

namespace pyft::client {

// Programs choose their ways by what the device says it can do: for what would be refused, or mean
// the server's memory instead of the program's, it says that it cannot. `attributes` by their id.
void hide_unserved(std::span<int32_t> attributes, cudaDeviceProp* properties);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_QUERIES_UNSERVED_H_
