// Copies of much memory that nothing reads soon.
#ifndef PYFT_CLIENT_DEVICE_PAST_CACHES_H_
#define PYFT_CLIENT_DEVICE_PAST_CACHES_H_

#include <cstddef>

namespace pyft::client {

// Like memcpy, past the caches: the target would only be loaded into them to be written over, and
// drive out what comes next. Measured on 2 cores with a reader that follows, 64 MiB in pieces of
// 256 KiB: 4.4 ms instead of memcpy's 5.1 where both cores are one of the host's, else 2.8 instead
// of 2.9. Complete, for other threads too, when it returns.
void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_DEVICE_PAST_CACHES_H_
