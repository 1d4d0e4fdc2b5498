// Threads for functions that may block for long. One per function that is running; kept for the
// next one.
#ifndef PYFT_COLLECTIVES_THREADS_H_
#define PYFT_COLLECTIVES_THREADS_H_

namespace pyft::collectives {

// Returns at once. Functions start in the order of the calls and run side by side.
void run_in_thread(void (*function)(void*), void* data);

}  // namespace pyft::collectives

#endif  // PYFT_COLLECTIVES_THREADS_H_
