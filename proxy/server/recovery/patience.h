// Waiting for what the device does, but not for ever.
#ifndef PYFT_SERVER_RECOVERY_PATIENCE_H_
#define PYFT_SERVER_RECOVERY_PATIENCE_H_

#include <time.h>

#include <cstdint>

#include "ring/wait.h"

namespace pyft::server {

inline constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY

// The last answer to `ask`, which is asked until that is not kNotReady.
template <class Ask>
int wait_for(Ask ask, uint64_t until_ns) {
  constexpr long kNapNs = 20'000;  // between looks, after the spinning
  int code = kNotReady;
  const auto is_there = [&] { return (code = ask()) != kNotReady; };
  if (ring::spin_until(is_there)) return code;
  while (!is_there() && ring::now_ns() < until_ns) {
    const timespec nap{0, kNapNs};
    nanosleep(&nap, nullptr);
  }
  return code;
}

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_PATIENCE_H_
