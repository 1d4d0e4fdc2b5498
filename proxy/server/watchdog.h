// Two threads. The heartbeat only proves that this process can still run, and never calls the
// driver: whether any other thread is inside a long call is no business of it. The watchdog asks
// the device now and then whether it has failed, which may take as long as the driver likes.
#ifndef PYFT_SERVER_WATCHDOG_H_
#define PYFT_SERVER_WATCHDOG_H_

#include <thread>

#include "server/session/session.h"

namespace pyft::server {

class Heartbeat {
 public:
  // Both end with the destructor.
  explicit Heartbeat(Session& session);

 private:
  std::jthread beat_, watch_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_WATCHDOG_H_
