// Named places where a crash is interesting; faults.toml lists them. PYFT_FAULT=name:n in the
// environment kills this process with SIGKILL when the named point is reached for the n-th time;
// otherwise a point costs one load and one predicted branch.
#ifndef PYFT_FAULT_H_
#define PYFT_FAULT_H_

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "pyft/fault_points.h"

namespace pyft::fault {

extern std::atomic<bool> armed;  // set once from the environment when the library is loaded
void reached(const char* name);  // counts; does not return at the n-th hit of the armed name
void arm(const char* spec);      // "name:n", for tests; nullptr disarms
// A line that says so if a point whose name begins with one of these was armed and not reached so
// often; empty otherwise. Others are points of another process, as are those that end in the number
// of another rank.
std::string missed(std::initializer_list<std::string_view> owned, uint32_t rank = 0);

}  // namespace pyft::fault

#define PYFT_FAULT(name)                                                   \
  do {                                                                     \
    if (::pyft::fault::armed.load(std::memory_order_relaxed)) [[unlikely]] \
      ::pyft::fault::reached(::pyft::fault::point(name));                  \
  } while (0)

#endif  // PYFT_FAULT_H_
