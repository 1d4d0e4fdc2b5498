#include "algo/schedule.h"
#include "base/error.h"

namespace flexccl {
namespace {

std::size_t block_bytes(const OpDescriptor& op) {
  return op.count * element_size(static_cast<ncclDataType_t>(op.dtype));
}

// Block `rank` of a buffer of equal blocks.
std::size_t offset(int rank, std::size_t bytes) {
  return static_cast<std::size_t>(rank) * bytes;
}

void add_receive(Schedule* schedule, int peer, std::byte* to, std::size_t bytes) {
  schedule->receives.push_back({peer, to, bytes, -1, nullptr, false, schedule->op});
}

void add_send(Schedule* schedule, int peer, const std::byte* from, std::size_t bytes) {
  schedule->sends.push_back({peer, from, bytes, -1, nullptr, schedule->op});
}

void copy_own(Schedule* schedule, const std::vector<const PointToPoint*>& sent,
              const std::vector<const PointToPoint*>& received, Ring ring) {
  if (sent.size() != received.size())
    fail(ncclInvalidUsage, "flexccl: rank [", ring.rank, "] sends itself [", sent.size(),
         "] messages and receives [", received.size(), "] in one group");
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (sent[i]->op != received[i]->op)
      fail(ncclInvalidUsage, "flexccl: rank [", ring.rank, "] sends itself ", describe(sent[i]->op),
           " and receives ", describe(received[i]->op));
    schedule->copies.push_back(
        {sent[i]->buffers.in, received[i]->buffers.out, block_bytes(sent[i]->op), false});
  }
}

}  // namespace

Schedule all_to_all(const OpDescriptor& op, Ring ring, Buffers buffers) {
  Schedule schedule{.op = op};
  const std::size_t bytes = block_bytes(op);
  for (int step = 0; step < ring.size; ++step) {
    const int to = ring.wrap(ring.rank + step), from = ring.wrap(ring.rank - step);
    if (step == 0) {
      schedule.copies.push_back(
          {buffers.in + offset(to, bytes), buffers.out + offset(to, bytes), bytes, false});
      continue;
    }
    add_send(&schedule, to, buffers.in + offset(to, bytes), bytes);
    add_receive(&schedule, from, buffers.out + offset(from, bytes), bytes);
  }
  return schedule;
}

Schedule gather(const OpDescriptor& op, Ring ring, Buffers buffers) {
  Schedule schedule{.op = op};
  const std::size_t bytes = block_bytes(op);
  if (ring.rank != op.root) {
    add_send(&schedule, op.root, buffers.in, bytes);
    return schedule;
  }
  schedule.copies.push_back({buffers.in, buffers.out + offset(op.root, bytes), bytes, false});
  for (int peer = 0; peer < ring.size; ++peer)
    if (peer != op.root) add_receive(&schedule, peer, buffers.out + offset(peer, bytes), bytes);
  return schedule;
}

Schedule scatter(const OpDescriptor& op, Ring ring, Buffers buffers) {
  Schedule schedule{.op = op};
  const std::size_t bytes = block_bytes(op);
  if (ring.rank != op.root) {
    add_receive(&schedule, op.root, buffers.out, bytes);
    return schedule;
  }
  schedule.copies.push_back({buffers.in + offset(op.root, bytes), buffers.out, bytes, false});
  for (int peer = 0; peer < ring.size; ++peer)
    if (peer != op.root) add_send(&schedule, peer, buffers.in + offset(peer, bytes), bytes);
  return schedule;
}

Schedule point_to_point(const std::vector<PointToPoint>& calls, Ring ring) {
  Schedule schedule;
  schedule.op.collective = Collective::kSendRecv;
  std::vector<const PointToPoint*> sent, received;  // to and from itself
  for (const PointToPoint& call : calls) {
    const std::size_t bytes = block_bytes(call.op);
    if (call.peer == ring.rank)
      (call.sends ? sent : received).push_back(&call);
    else if (call.sends)
      schedule.sends.push_back({call.peer, call.buffers.in, bytes, -1, nullptr, call.op});
    else
      schedule.receives.push_back(
          {call.peer, call.buffers.out, bytes, -1, nullptr, false, call.op});
  }
  copy_own(&schedule, sent, received, ring);
  return schedule;
}

}  // namespace flexccl
