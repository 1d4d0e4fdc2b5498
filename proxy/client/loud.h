// Calls without a decision: they name themselves once, are counted, and answer "not supported".
#ifndef PYFT_CLIENT_LOUD_H_
#define PYFT_CLIENT_LOUD_H_

#include "api/call_ids.h"

// No vendor header here: the generated stubs declare the symbols without parameters.
#define PYFT_API extern "C" __attribute__((visibility("default")))

namespace pyft::client {

long loud(Api api, long code);
const char* loud_text(Api api);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_LOUD_H_
