// The part of OperationRunner that writes records and answers a new rank's repetition from them.
#include "runner/replay.h"

#include <cstring>
#include <numeric>

#include "runner/operation_runner.h"
#include "transport/endpoint.h"

namespace flexccl {
namespace {

// A root of a broadcast has its output already.
bool has_output(const Operation& operation, Ring ring) {
  return operation.op.collective != Collective::kBroadcast || ring.rank != operation.op.root;
}

// What has to be recorded.
std::size_t recorded_bytes(const Operation& operation, Ring ring) {
  return has_output(operation, ring) ? output_bytes(operation, ring) : 0;
}

// Whether others can get what they need of it from its record.
bool serves_others(const Operation& operation, Ring ring) {
  return identical_output(operation.op.collective) && has_output(operation, ring);
}

// Of an operation as records name it: whether its root is this rank, which is in `slot`.
OpDescriptor seen_from(int slot, OpDescriptor op, Ring ring) {
  if (op.root >= 0) op.root = op.root == slot ? ring.rank : ring.size;
  return op;
}

constexpr OpDescriptor kBatch{.collective = Collective::kSendRecv};

}  // namespace

Hash input_hash(const Operation& operation, Ring ring) {
  const Reduction& reduction = operation.reduction;
  Hash before;
  if (reduction.premultiplies && operation.op.redop == kPreMulSum) before.low = reduction.scalar;
  return content_hash({operation.buffers.in, input_bytes(operation, ring)}, before);
}

Hash input_hash(const std::vector<PointToPoint>& calls) {
  Hash hash;
  for (const PointToPoint& call : calls)
    if (call.sends) hash = content_hash({call.buffers.in, message_bytes(call)}, hash);
  return hash;
}

Membership with_all_slots(Membership self) {
  std::vector<int> slots(static_cast<std::size_t>(self.slots()));
  std::iota(slots.begin(), slots.end(), 0);
  self.members = std::move(slots);
  return self;
}

RecordOwner OperationRunner::owner() const {
  return {.comm = membership_->comm,
          .parent = parent_,
          .slot = static_cast<std::uint32_t>(membership_->slot),
          .slots = static_cast<std::uint32_t>(membership_->slots()),
          .epoch = membership_->epoch,
          .members = {membership_->members.begin(), membership_->members.end()},
          .process = Endpoint::process().address().process,
          .key = membership_->key};
}

void OperationRunner::record(std::span<std::byte> memory) {
  if (records_.lies_at(memory.data())) return;
  const std::scoped_lock turn(turn_);
  records_.begin(memory, owner(), retention_->position_now());
}

void OperationRunner::replay_after(std::uint64_t operation, std::span<std::byte> memory) {
  const std::scoped_lock turn(turn_);
  if (memory.empty()) {
    const LogPosition now{operation, operation, 0, {}};
    return retention_->restart(now, now, operation + 1, {});
  }
  const auto [now, end] = records_.adopt(memory, owner(), operation);
  std::vector<Inherited> kept;
  const std::uint64_t open = records_.each_open([&](const Record& record, auto output) {
    const Ring ring{record.rank, record.ranks};
    const Operation operation{.op = seen_from(membership_->slot, record.op, ring)};
    if (keeps_ && serves_others(operation, ring))
      kept.push_back({record.sequence, operation, ring, output});
  });
  retention_->restart(now, end, open, kept);
}

// Before any rank is told that the operation is complete here.
bool OperationRunner::record(const Operation& operation, Ring ring, const Hash& input,
                             const Make& make) {
  if (!records_.active()) return false;
  const std::span<const std::byte> output(operation.buffers.out, recorded_bytes(operation, ring));
  OpDescriptor named = operation.op;
  if (lacks_root(operation))
    named.root = make(with_all_slots(*membership_)).op.root;
  else if (named.root >= 0)
    named.root = membership_->slot_at(named.root);
  const bool found_room = records_.append(retention_->position_now(),
                                          {.op = named,
                                           .ring = ring,
                                           .input = input,
                                           .outputs = std::span(&output, 1),
                                           .identical = identical_output(operation.op.collective)});
  return found_room && serves_others(operation, ring);
}

// The ring is that of the first time: a repair may have changed the number of ranks since.
void OperationRunner::replay(Operation operation, std::uint64_t sequence) {
  enter(retention_->counters().operations + 1, sequence);
  const Ring ring = records_.next_ring();
  const OpDescriptor named = operation.op;
  operation.op = seen_from(membership_->slot, named, ring);
  const Hash input = input_hash(operation, ring);
  if (keeps_)
    retention_->keep(sequence, operation, ring);
  else
    retention_->begin(sequence);
  const std::span<std::byte> output(operation.buffers.out, recorded_bytes(operation, ring));
  records_.replay({.op = named, .input = input}, std::span(&output, 1));
  if (output.empty() && output_bytes(operation, ring) && operation.buffers.in)
    std::memmove(operation.buffers.out, operation.buffers.in, output_bytes(operation, ring));
  if (keeps_)
    retention_->complete(sequence, operation, ring, serves_others(operation, ring));
  else
    retention_->complete(sequence);
}

void OperationRunner::record_batch(const std::vector<PointToPoint>& calls,
                                   const LogPosition& before, const Hash& input) {
  if (!records_.active()) return;
  const LogPosition now = retention_->position_now();
  std::map<int, PairCounters> changed;
  std::vector<std::span<const std::byte>> outputs;
  for (const PointToPoint& call : calls) {
    if (call.peer == membership_->slot) continue;
    changed[call.peer] = now.pairs.at(call.peer);
    if (!call.sends) outputs.emplace_back(call.buffers.out, message_bytes(call));
  }
  records_.append(before, {.op = kBatch,
                           .ring = membership_->ring(),
                           .input = input,
                           .outputs = outputs,
                           .changed = std::move(changed)});
}

// Messages to other ranks are not sent again, but kept for those that have not got them yet.
void OperationRunner::replay(const std::vector<PointToPoint>& calls) {
  std::vector<std::span<std::byte>> outputs;
  for (const PointToPoint& call : calls)
    if (call.peer != membership_->slot && !call.sends)
      outputs.emplace_back(call.buffers.out, message_bytes(call));
  const Hash input = input_hash(calls);
  for (const PointToPoint& call : calls) {
    if (call.peer == membership_->slot)
      continue;
    else if (!call.sends)
      retention_->receive(call.peer);
    else if (keeps_ && membership_->position(call.peer) >= 0)
      retention_->keep_message(call.peer, call.buffers.in, message_bytes(call));
    else
      retention_->count_message(call.peer);
  }
  records_.replay({.op = kBatch, .input = input}, outputs);
  std::vector<PointToPoint> own;
  for (PointToPoint call : calls)
    if (call.peer == membership_->slot) {
      call.peer = membership_->ring().rank;
      own.push_back(call);
    }
  engine_.run(point_to_point(own, membership_->ring()), retention_->counters().done);
  retention_->count_batch();
}

void OperationRunner::enter(std::uint64_t operation, std::uint64_t sequence) {
  if (records_.active())
    records_.enter(operation, sequence, membership_->epoch,
                   {&membership_->members.front(), membership_->members.size()});
}

std::pair<std::uint64_t, std::vector<int>> OperationRunner::count_child(const Hash& what) {
  const std::scoped_lock turn(turn_);
  const LogPosition before = retention_->position_now();
  std::vector<std::byte> live(static_cast<std::size_t>(membership_->slots()));  // 1: is there
  for (const int slot : expected()->members) live[static_cast<std::size_t>(slot)] = std::byte{1};
  OperationResult outcome{.op = {}, .ring = membership_->ring(), .input = what};
  enter(before.operation + 1, before.sequence);
  if (records_.replaying()) {
    const std::span<std::byte> output(live);
    records_.replay(outcome, std::span(&output, 1));
  } else if (records_.active()) {
    const std::span<const std::byte> output(live);
    outcome.outputs = std::span(&output, 1);
    records_.append(before, outcome);
  }
  std::vector<int> slots;
  for (int slot = 0; slot < membership_->slots(); ++slot)
    if (live[static_cast<std::size_t>(slot)] != std::byte{0}) slots.push_back(slot);
  return {retention_->count_child(), slots};
}

}  // namespace flexccl
