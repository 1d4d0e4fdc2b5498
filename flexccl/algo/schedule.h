// An algorithm as data: which bytes one rank sends and receives, in which order per peer, and what
// waits for what. Made from (operation, count, data type, N, slot) and constants only, so the order
// of every addition is fixed; engine.h executes it over any transport, at any timing.
#ifndef FLEXCCL_ALGO_SCHEDULE_H_
#define FLEXCCL_ALGO_SCHEDULE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "base/ring.h"
#include "reduce/reduce.h"
#include "transport/frame.h"

namespace flexccl {

// Bytes of one pipelining step. Changing it never changes a result: an element's chunk, and with
// it the order of its additions, does not depend on it.
inline constexpr std::size_t kSliceBytes = 128 << 10;

struct Send {
  int peer = 0;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
  int after = -1;                // the receive that must be complete first
  std::byte* staging = nullptr;  // if set: premultiplied into here, and sent from here
  OpDescriptor op = {};
};

struct Receive {
  int peer = 0;
  std::byte* to = nullptr;
  std::size_t bytes = 0;
  int after = -1;                  // the send that must be complete first: it still reads `to`
  const std::byte* own = nullptr;  // if set: the result is (received + own)
  bool completes = false;          // the last step of a reduction
  OpDescriptor op = {};
};

// Within the rank; done before anything else.
struct Copy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t bytes = 0;
  bool whole_reduction = false;  // N = 1: the input is all there is to reduce
};

struct Schedule {
  OpDescriptor op = {};
  Reduction reduction = {};
  std::vector<Copy> copies = {};
  std::vector<Send> sends = {};        // those to one peer go out in this order
  std::vector<Receive> receives = {};  // those from one peer come in in this order
  std::unique_ptr<std::byte[]> scratch = {};
};

// What the caller of a collective gave, as bytes.
struct Buffers {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

// ring.cc. Chunk c of a reduction is summed in the order c+1, c+2, ..., c (slots, cyclic), rounded
// at every step; ncclReduce is one chunk whose last slot is the root.
Schedule all_reduce(const OpDescriptor& op, const Reduction& reduction, Ring ring, Buffers buffers);
Schedule reduce_scatter(const OpDescriptor& op, const Reduction& reduction, Ring ring,
                        Buffers buffers);
Schedule reduce(const OpDescriptor& op, const Reduction& reduction, Ring ring, Buffers buffers);
Schedule all_gather(const OpDescriptor& op, Ring ring, Buffers buffers);
Schedule broadcast(const OpDescriptor& op, Ring ring, Buffers buffers);
// Elements per chunk of an all-reduce: depends on nothing but its arguments.
std::size_t chunk_elements(std::size_t count, std::size_t element_bytes, int nranks);

// exchange.cc: every pair directly.
Schedule all_to_all(const OpDescriptor& op, Ring ring, Buffers buffers);
Schedule gather(const OpDescriptor& op, Ring ring, Buffers buffers);
Schedule scatter(const OpDescriptor& op, Ring ring, Buffers buffers);

struct PointToPoint {
  bool sends = false;
  int peer = 0;
  Buffers buffers = {};
  OpDescriptor op = {};
};
// All sends and receives of a group. Throws ncclInvalidUsage when those of a rank to itself do not
// match.
Schedule point_to_point(const std::vector<PointToPoint>& calls, Ring ring);

}  // namespace flexccl

#endif  // FLEXCCL_ALGO_SCHEDULE_H_
