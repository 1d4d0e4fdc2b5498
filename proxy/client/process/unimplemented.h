// Calls without a decision: they name themselves once, are counted, and answer "not supported".
#ifndef PYFT_CLIENT_PROCESS_UNIMPLEMENTED_H_
#define PYFT_CLIENT_PROCESS_UNIMPLEMENTED_H_

#include "api/call_ids.h"

// No vendor header here: the generated stubs declare the symbols without parameters.
#define PYFT_API extern "C" __attribute__((visibility("default")))

namespace pyft::client {

// What functions return that return no status, whichever registers it comes back in: an address, a
// number, a small struct; or floating point numbers.
struct Nothing {
  long a, b;
};
struct Zero {
  double a, b;
};

long unimplemented(Api api, long code);
// The same for a function of the CUDA runtime, whose errors cudaGetLastError knows.
long unimplemented_runtime(Api api, long code);
// The same for one of NCCL, whose ncclGetLastError does.
long unimplemented_nccl(Api api, long code);
const char* unimplemented_text(Api api);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_PROCESS_UNIMPLEMENTED_H_
