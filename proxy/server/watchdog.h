// Two threads. The heartbeat only proves that this process can still run, and never calls the
// driver: whether any other thread is inside a long call is no business of it. The watchdog asks
// the device now and then whether it has failed, which may take as long as the driver likes.
#ifndef PYFT_SERVER_WATCHDOG_H_
#define PYFT_SERVER_WATCHDOG_H_

#include <functional>
#include <thread>

#include "server/session.h"

namespace pyft::server {

class Heartbeat {
 public:
  // `enter` runs first in the watchdog (to make the device's context current there). Both end with
  // the destructor.
  Heartbeat(Session& session, std::function<void()> enter);

 private:
  std::jthread beat_, watch_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_WATCHDOG_H_
