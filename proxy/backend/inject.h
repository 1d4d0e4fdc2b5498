// Faults on request of a soft GPU, in its own words (softgpu/README.md), and what they pass over.
#ifndef PYFT_BACKEND_INJECT_H_
#define PYFT_BACKEND_INJECT_H_

#include <string>

namespace pyft::backend {

// `library`: as for load(). Empty, or why it cannot be done.
std::string inject(const char* library, const std::string& faults);

// Where it is noted from now on which requests with note= have come to pass: 256 bytes.
void note_faults(const char* library, unsigned char* notes);
// A line for each request that has not come to pass, with the reason.
std::string missed_faults(const char* library);

// What the thread puts on streams from now on executes something again; softgpu_again.h. nullptr:
// the backend has no such function.
using ExecuteAgain = void (*)(int again, unsigned places);
ExecuteAgain execute_again(const char* library);

}  // namespace pyft::backend

#endif  // PYFT_BACKEND_INJECT_H_
