#include "core/runner.h"

#include <algorithm>
#include <thread>

#include "core/keeper.h"
#include "core/replay.h"

namespace flexccl {

Runner::Runner(const Membership& membership, std::uint64_t position)
    : membership_(std::make_shared<const Membership>(membership)),
      published_(membership_),
      history_(std::make_shared<History>(membership_, position)),
      engine_(membership_, history_, [this](int slot) { return locate(slot); }),
      keeps_(membership.repair_ms > 0),
      joined_(membership.epoch > 0),
      settled_(membership.epoch == 0),
      behind_(membership.epoch > 0) {
  if (keeps_) keep_watch(this);
}

Runner::~Runner() {
  if (keeps_) end_watch(this);
}

std::shared_ptr<const Membership> Runner::view() const {
  const std::scoped_lock lock(mutex_);
  return published_;
}

std::optional<int> Runner::paused() const {
  const std::scoped_lock lock(mutex_);
  return paused_;
}

void Runner::abort() {
  {
    const std::scoped_lock lock(mutex_);
    aborted_ = true;
  }
  changed_.notify_all();
  engine_.abort();
}

void Runner::change(const std::vector<Change>& steps) {
  const std::scoped_lock control(control_);
  {
    const std::scoped_lock lock(mutex_);
    pending_ = steps;
    has_pending_ = !steps.empty();
    // Under the lock: an interruption after its repair would have no end.
    if (keeps_ && has_pending_) engine_.interrupt();
  }
  changed_.notify_all();
  for (;;) {
    if (const Lock turn(turn_, std::try_to_lock); turn) return apply();
    Lock lock(mutex_);
    constexpr std::chrono::milliseconds kLook(2);
    if (changed_.wait_for(lock, kLook, [this] { return pending_.empty(); })) return;
  }
}

void Runner::apply() {
  const std::scoped_lock lock(mutex_);
  if (pending_.empty()) return;
  std::vector<int> changed;
  for (const Change& step : pending_) changed.push_back(step.slot);
  published_ = membership_ = std::make_shared<const Membership>(after(*membership_, pending_));
  history_->fence(membership_);
  engine_.change(membership_, changed);
  answers_.clear();
  settled_ = false;
  pending_.clear();
  has_pending_ = false;
  changed_.notify_all();
}

void Runner::pause(const Error& error) {
  Lock lock(mutex_);
  paused_ = engine_.suspect();
  const std::chrono::milliseconds limit(membership_->repair_ms);
  const bool told =
      changed_.wait_for(lock, limit, [this] { return !pending_.empty() || aborted_; });
  paused_.reset();
  if (!told) fail(error.code, error.what(), "; no repair came within [", limit.count(), "] ms");
}

void Runner::look_up() const {
  if (aborted_) fail(ncclInvalidUsage, "flexccl: the communicator was aborted");
  if (has_pending_) throw Interrupted();
}

// Repeats an attempt across repairs, until it says that it is done.
void Runner::settle(const std::function<bool()>& attempt) {
  for (bool done = false; !done;) {
    try {
      apply();
      done = attempt();
    } catch (const Interrupted&) {
      // The next attempt begins with the repair.
    } catch (const Error& error) {
      if (error.code != ncclRemoteError || aborted_) throw;
      pause(error);
    }
  }
}

void Runner::run(const Make& make) {
  const std::scoped_lock turn(turn_);
  apply();
  const Ring first = membership_->ring();
  Operation operation = make(*membership_);
  const std::uint64_t sequence = history_->next_sequence();
  enter(history_->counters().operations + 1, sequence);
  if (records_.replaying()) return replay(operation, sequence);
  // Before it runs: afterwards the output may lie there.
  const Hash input = records_.active() ? input_hash(operation, first) : Hash();
  if (!keeps_) {
    history_->begin(sequence);
    engine_.run(operation.schedule(first, operation.buffers), sequence);
    record(operation, first, input);
    history_->complete(sequence);
    settled_ = true, behind_ = false;
    return;
  }
  const Buffers buffers = history_->keep(sequence, operation, first);
  bool interrupted = false, in_ring = false;
  settle([&] {
    const Ring ring = membership_->ring();
    if (ring.size != first.size && has_blocks(operation.op.collective))
      fail(ncclInvalidUsage, "flexccl: rank [", membership_->slot, "]: ", describe(operation.op),
           " was interrupted by a repair that changed the number of ranks from [", first.size,
           "] to [", ring.size, "], and with it the size of its buffers");
    if (interrupted) operation = make(*membership_);
    operation.buffers = buffers;
    const bool asks = must_ask(operation.op.collective, interrupted);
    interrupted = true;
    const int source = asks ? find_source(sequence) : -1;
    in_ring = source < 0;
    if (in_ring)
      engine_.run(operation.schedule(ring, buffers), sequence);
    else
      fetch_all(source, sequence, operation, ring, buffers);
    return true;
  });
  record(operation, membership_->ring(), input);
  history_->complete(sequence, operation, membership_->ring());
  release_known(sequence, in_ring, operation.op.collective);
}

// An operation that nobody can complete before everybody has begun it was completed by nobody if
// this rank had not begun it.
bool Runner::must_ask(Collective collective, bool interrupted) const {
  if (settled_) return false;
  return interrupted || behind_ || !synchronising(collective);
}

void Runner::release_known(std::uint64_t sequence, bool in_ring, Collective collective) {
  if (in_ring && synchronising(collective)) {
    settled_ = true, behind_ = false;
    history_->release(sequence - 1);
  }
  std::uint64_t all = sequence;
  for (const int member : membership_->members)
    if (member != membership_->slot) all = std::min(all, engine_.done_at(member));
  history_->release(all);
}

}  // namespace flexccl
