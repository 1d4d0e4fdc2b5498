// The part of Runner that writes records and answers a new rank's repetition from them.
#include <cstring>

#include "core/runner.h"

namespace flexccl {
namespace {

// What has to be recorded: a root of a broadcast has its output already.
std::size_t recorded_bytes(const Operation& operation, Ring ring) {
  const bool has_it =
      operation.op.collective == Collective::kBroadcast && ring.rank == operation.op.root;
  return has_it ? 0 : output_bytes(operation, ring);
}

std::size_t bytes_of_call(const PointToPoint& call) {
  return call.op.count * element_size(static_cast<ncclDataType_t>(call.op.dtype));
}

}  // namespace

RecordOwner Runner::owner() const {
  return {membership_->comm, static_cast<std::uint32_t>(membership_->slot),
          static_cast<std::uint32_t>(membership_->slots())};
}

void Runner::record(std::span<std::byte> memory) {
  const std::scoped_lock turn(turn_);
  records_.begin(memory, owner(), history_->standpoint());
}

void Runner::replay_after(std::uint64_t operation, std::span<std::byte> memory) {
  const std::scoped_lock turn(turn_);
  if (memory.empty()) {
    const Standpoint now{operation, operation, {}};
    return history_->restart(now, now);
  }
  const auto [now, end] = records_.adopt(memory, owner(), operation);
  history_->restart(now, end);
}

// Before anybody is told that the operation is complete here.
void Runner::record(const Operation& operation, std::uint64_t sequence, Ring ring) {
  if (!records_.active()) return;
  const std::span<const std::byte> output(operation.buffers.out, recorded_bytes(operation, ring));
  records_.append({history_->counters().operations, sequence - 1, {}}, operation.op,
                  std::span(&output, 1));
}

void Runner::replay(const Operation& operation, std::uint64_t sequence, Ring ring) {
  if (keeps_)
    history_->keep(sequence, operation, ring);
  else
    history_->begin(sequence);
  const std::span<std::byte> output(operation.buffers.out, recorded_bytes(operation, ring));
  records_.replay(operation.op, std::span(&output, 1));
  if (output.empty() && output_bytes(operation, ring) && operation.buffers.in)
    std::memmove(operation.buffers.out, operation.buffers.in, output_bytes(operation, ring));
  if (keeps_)
    history_->complete(sequence, operation, ring);
  else
    history_->complete(sequence);
}

void Runner::record_batch(const std::vector<PointToPoint>& calls, const Standpoint& before) {
  if (!records_.active()) return;
  const Standpoint now = history_->standpoint();
  std::map<int, PairCounters> after;
  std::vector<std::span<const std::byte>> outputs;
  for (const PointToPoint& call : calls) {
    if (call.peer == membership_->slot) continue;
    after[call.peer] = now.pairs.at(call.peer);
    if (!call.sends) outputs.emplace_back(call.buffers.out, bytes_of_call(call));
  }
  records_.append_batch(before, after, outputs);
}

// Messages to other ranks are not sent again, but kept for those that have not got them yet.
void Runner::replay(const std::vector<PointToPoint>& calls) {
  std::vector<std::span<std::byte>> outputs;
  for (const PointToPoint& call : calls)
    if (call.peer != membership_->slot && !call.sends)
      outputs.emplace_back(call.buffers.out, bytes_of_call(call));
  for (const PointToPoint& call : calls) {
    if (call.peer == membership_->slot)
      continue;
    else if (!call.sends)
      history_->receive(call.peer);
    else if (keeps_)
      history_->keep_message(call.peer, call.buffers.in, bytes_of_call(call));
    else
      history_->count_message(call.peer);
  }
  records_.replay({.collective = Collective::kSendRecv}, outputs);
  std::vector<PointToPoint> own;
  for (PointToPoint call : calls)
    if (call.peer == membership_->slot) {
      call.peer = membership_->ring().rank;
      own.push_back(call);
    }
  engine_.run(point_to_point(own, membership_->ring()), history_->counters().done);
  history_->count_batch();
}

}  // namespace flexccl
