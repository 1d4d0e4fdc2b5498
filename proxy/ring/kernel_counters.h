// What is counted of launches of kernels that are executed twice
// (docs/concepts/second-executions.md). It lies in the control page, behind all else. The server.
#ifndef PYFT_RING_KERNEL_COUNTERS_H_
#define PYFT_RING_KERNEL_COUNTERS_H_

#include "ring/layout.h"

namespace pyft::ring {

struct KernelCounters {
  // Executed twice, and compared.
  std::atomic<uint64_t> dmr_kernels_again;
  // Why the others were not: their results depend on the order of blocks; they use memory of
  // others; call the system; read a clock; may wait for others; write too much; cannot be put off;
  // are in graphs.
  std::atomic<uint64_t> dmr_kernels_order, dmr_kernels_host, dmr_kernels_calls, dmr_kernels_clock;
  std::atomic<uint64_t> dmr_kernels_waits, dmr_kernels_room, dmr_kernels_later, dmr_kernels_graphs;
};

inline constexpr uint64_t kKernelCountersAt = 3584;  // in the page
static_assert(sizeof(ControlPage) <= kKernelCountersAt);
static_assert(kKernelCountersAt + sizeof(KernelCounters) <= kPageBytes);

// Precondition: the page is a whole one, as those of channels are.
inline KernelCounters& kernel_counters(ControlPage& page) {
  return *reinterpret_cast<KernelCounters*>(reinterpret_cast<std::byte*>(&page) +
                                            kKernelCountersAt);
}

}  // namespace pyft::ring

#endif  // PYFT_RING_KERNEL_COUNTERS_H_
