// Counters of second executions (docs/concepts/second-executions.md): the server's, behind all else
// in the first page of the control area. Rules of change: layout.h.
#ifndef PYFT_RING_SECOND_COUNTERS_H_
#define PYFT_RING_SECOND_COUNTERS_H_

#include <cstddef>
#include <new>

#include "ring/layout.h"

namespace pyft::ring {

struct SecondCounters {
  // Products that the server has executed again, and compared; those that were executed twice by
  // it or by the program, and their operations.
  std::atomic<uint64_t> dmr_again, dmr_covered, dmr_covered_flops;
  // Products that were not: their inputs had changed, there was no memory, their turn comes later,
  // the library refuses. Launches that are no products.
  std::atomic<uint64_t> dmr_expired, dmr_no_room, dmr_later, dmr_refused, dmr_kernels;
  // What second executions took at the program's cost, and while it waited; how long it waited.
  std::atomic<uint64_t> dmr_again_ns, dmr_window_again_ns, dmr_window_ns;
  std::atomic<uint64_t> dmr_period;  // in so many intervals all were covered once
};
inline constexpr uint64_t kSecondCountersOffset = 3072;
static_assert(sizeof(ControlPage) <= kSecondCountersOffset);
static_assert(kSecondCountersOffset + sizeof(SecondCounters) <= kPageBytes);

// Of the page that begins with this.
inline SecondCounters& second_counters(ControlPage& page) {
  auto* const bytes = reinterpret_cast<std::byte*>(&page);
  return *std::launder(reinterpret_cast<SecondCounters*>(bytes + kSecondCountersOffset));
}

}  // namespace pyft::ring

#endif  // PYFT_RING_SECOND_COUNTERS_H_
