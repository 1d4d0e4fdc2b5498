// The heartbeat thread. It only proves that this process can still run; whether the dispatch
// thread is inside a long driver call is no business of a heartbeat.
#ifndef PYFT_SERVER_WATCHDOG_H_
#define PYFT_SERVER_WATCHDOG_H_

#include <functional>
#include <thread>

#include "server/session.h"

namespace pyft::server {

class Heartbeat {
 public:
  // `enter` runs first in the thread (to make the device's context current there). Ends with the
  // destructor.
  Heartbeat(Session& session, std::function<void()> enter);

 private:
  std::jthread thread_;
};

}  // namespace pyft::server

#endif  // PYFT_SERVER_WATCHDOG_H_
