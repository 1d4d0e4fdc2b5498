// Streams of a real GPU that stand still until something outside has been done: a stream writes a
// word when it comes to a place and waits for another one. No host functions: one that blocks would
// keep those of other streams from running, and two ranks could wait for each other for ever.
#ifndef PYFT_COLLECTIVES_HOLDS_H_
#define PYFT_COLLECTIVES_HOLDS_H_

#include <cuda.h>

#include <cstddef>

namespace pyft::collectives {

// What is needed of the driver, from dlsym.
struct Driver {
  decltype(&cuMemcpyDtoHAsync_v2) to_host = nullptr;
  decltype(&cuMemcpyHtoDAsync_v2) to_device = nullptr;
  decltype(&cuMemHostRegister_v2) register_memory = nullptr;
  decltype(&cuStreamWriteValue64_v2) write_value = nullptr;
  decltype(&cuStreamWaitValue64_v2) wait_value = nullptr;
  decltype(&cuCtxGetDevice) current_device = nullptr;
};
// False: the library at `handle` lacks one of them.
bool use_driver(void* handle);
const Driver& driver();

// Calls function(data) when the stream has come here, in a thread that must not be held up. Both
// return a CUresult; the context must be current.
int notify(CUstream stream, void (*function)(void*), void* data);
// The same in a thread of its own, and the stream goes on when the function has returned.
int hold(CUstream stream, void (*function)(void*), void* data);
// How many functions of hold() are running.
unsigned long long held_now();

// Page-locked memory of at least so many bytes, nullptr if there is none; given back it is used
// again. Any thread gives, a thread with the context takes.
std::byte* take_staging(size_t bytes);
void give_staging(std::byte* memory);

}  // namespace pyft::collectives

#endif  // PYFT_COLLECTIVES_HOLDS_H_
