#include "pyft/fault.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace pyft::fault {

std::atomic<bool> armed{false};

namespace {

struct Spec {
  std::mutex mutex;
  std::string name;
  long left = 0;
};

Spec& spec() {
  static Spec the_spec;
  return the_spec;
}

// Runs when the library is loaded, before any thread can reach a point.
const bool armed_from_environment = (arm(std::getenv("PYFT_FAULT")), true);

}  // namespace

void arm(const char* text) {
  std::lock_guard lock(spec().mutex);
  armed = false;
  if (!text || !*text) return;
  const char* colon = std::strrchr(text, ':');
  spec().name = colon ? std::string(text, colon) : text;
  spec().left = colon ? std::atol(colon + 1) : 1;
  armed = spec().left > 0;
}

void reached(const char* name) {
  std::lock_guard lock(spec().mutex);
  if (spec().name != name || --spec().left > 0) return;
  std::raise(SIGKILL);
}

}  // namespace pyft::fault
