// Waiting for what the device does, but not for ever.
#ifndef PYFT_SERVER_RECOVERY_WAIT_FOR_H_
#define PYFT_SERVER_RECOVERY_WAIT_FOR_H_

#include <time.h>

#include <cstdint>

#include "checkpoint/device.h"
#include "ring/wait.h"

namespace pyft::server {

// The last answer to `ask`, which is asked until that is not checkpoint::kNotReady.
template <class Ask>
int wait_for(Ask ask, uint64_t until_ns) {
  constexpr long kNapNs = 20'000;  // between looks, after the spinning
  int code = checkpoint::kNotReady;
  const auto is_there = [&] { return (code = ask()) != checkpoint::kNotReady; };
  if (ring::spin_until(is_there)) return code;
  while (!is_there() && ring::now_ns() < until_ns) {
    const timespec nap{0, kNapNs};
    nanosleep(&nap, nullptr);
  }
  return code;
}

}  // namespace pyft::server

#endif  // PYFT_SERVER_RECOVERY_WAIT_FOR_H_
