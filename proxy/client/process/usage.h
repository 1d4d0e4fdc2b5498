// Limits of which a program should hear before it comes to their end: at four fifths, and at the
// end. Each is said once.
#ifndef PYFT_CLIENT_PROCESS_USAGE_H_
#define PYFT_CLIENT_PROCESS_USAGE_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "client/process/process.h"

namespace pyft::client {

class Usage {
 public:
  // Of so many `what`, so many are in use; `remedy`: what the user can do. Any thread.
  void watch(uint64_t used, uint64_t limit, const std::string& what, const std::string& remedy) {
    if (used < limit / 5 * 4) return;
    const bool full = used >= limit;
    if ((full ? full_ : high_).exchange(true)) return;
    say("[" + std::to_string(used) + "] of [" + std::to_string(limit) + "] " + what +
        " are in use" +
        (full ? ", no more can be had: " + remedy : "; " + remedy + " before that is all"));
  }

 private:
  std::atomic<bool> high_{false}, full_{false};
};

}  // namespace pyft::client

#endif  // PYFT_CLIENT_PROCESS_USAGE_H_
