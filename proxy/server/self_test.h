// Whether a GPU that has just failed a rank can be trusted with its memory again: it must keep
// patterns and multiply matrices right (H6). Some 50 ms on a real GPU.
#ifndef PYFT_SERVER_SELF_TEST_H_
#define PYFT_SERVER_SELF_TEST_H_

#include <cstdint>
#include <string>

#include "backend/backend.h"

namespace pyft::server {

// Needs a current context. Empty, or what is wrong with the device. It waits so long for memory; a
// device that has none left is not tested.
std::string self_test(const backend::Table& table, int ordinal,
                      uint64_t patience_ns = 10'000'000'000);

}  // namespace pyft::server

#endif  // PYFT_SERVER_SELF_TEST_H_
