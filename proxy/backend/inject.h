// Faults on request of a soft GPU, in its own words (softgpu/README.md).
#ifndef PYFT_BACKEND_INJECT_H_
#define PYFT_BACKEND_INJECT_H_

#include <string>

namespace pyft::backend {

// `library`: as for load(). Empty, or why it cannot be done.
std::string inject(const char* library, const std::string& faults);

}  // namespace pyft::backend

#endif  // PYFT_BACKEND_INJECT_H_
