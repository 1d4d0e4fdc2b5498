#include "runner/operation_runner.h"

#include <algorithm>

#include "base/waiting.h"
#include "runner/reclaimer.h"
#include "runner/replay.h"

namespace flexccl {
namespace {
constexpr std::chrono::milliseconds kLook(10), kQuestion(50);
}  // namespace

OperationRunner::OperationRunner(const Membership& membership, std::uint64_t position)
    : membership_(std::make_shared<const Membership>(membership)),
      published_(membership_),
      placed_(membership.epoch == 0),
      steps_(std::make_shared<Steps>(membership.epoch, membership.epoch
                                                           ? MembershipLog::find(membership)
                                                           : MembershipLog::begin(membership))),
      retention_(std::make_shared<RetentionBuffer>(membership_, position)),
      query_server_(std::make_shared<QueryServer>(retention_, steps_)),
      engine_(membership_, query_server_,
              {.locate = [this](int slot) { return locate(slot); },
               .news = [this] { return keeps_ && steps_->any_ready(membership_->epoch); },
               .ahead = [this](int slot, std::uint32_t epoch) { hear_of(slot, epoch); },
               .behind = [this](int slot) { inform(slot); },
               .has_taken = [this](int slot) { return has_taken(slot); },
               .has_left = [this](int slot) { return has_left(slot); }}),
      keeps_(membership.repair_ms > 0 && !membership.partial),
      joined_(membership.epoch > 0),
      settled_(membership.epoch == 0),
      behind_(membership.epoch > 0) {
  query_server_->serve(this);
  if (keeps_) keep_watch(this);
}

OperationRunner::~OperationRunner() {
  query_server_->leave();
  if (keeps_) end_watch(this);
}

std::shared_ptr<const Membership> OperationRunner::view() const {
  const std::scoped_lock lock(mutex_);
  return published_;
}

std::optional<int> OperationRunner::paused() const {
  const std::scoped_lock lock(mutex_);
  return paused_;
}

void OperationRunner::close() {
  const std::scoped_lock turn(turn_);
  engine_.close();
}

void OperationRunner::set_paused(std::optional<int> suspect) {
  const std::scoped_lock lock(mutex_);
  paused_ = suspect;
}

void OperationRunner::abort() {
  {
    const std::scoped_lock lock(mutex_);
    aborted_ = true;
  }
  changed_.notify_all();
  engine_.abort();
}

void OperationRunner::apply(bool waking) {
  if (!steps_->any_ready(membership_->epoch)) return;
  const std::scoped_lock lock(mutex_);
  const std::vector<Change> steps = steps_->ready(membership_->epoch);
  std::vector<int> changed;
  for (const Change& step : steps) {
    if (step.slot == membership_->slot)
      fail(ncclInvalidUsage, "flexccl: rank [", step.slot, "] lost its place in epoch [",
           step.epoch, "]: it was replaced or removed");
    changed.push_back(step.slot);
    left_.erase(step.slot);
  }
  published_ = membership_ = std::make_shared<const Membership>(after(*membership_, steps));
  placed_.store(true, std::memory_order_release);  // what is decided now comes after its own step
  retention_->fence(membership_, changed);
  engine_.change(membership_, changed);
  if (waking) engine_.ring_peers();
  answers_.clear();
  informed_.clear();
  settled_ = false;
  changed_.notify_all();
}

void OperationRunner::note_left(int slot) {
  {
    const std::scoped_lock lock(mutex_);
    left_.insert(slot);
  }
  any_left_.store(true, std::memory_order_release);
  changed_.notify_all();
}

bool OperationRunner::has_left(int slot) const {
  if (!any_left_.load(std::memory_order_acquire)) return false;
  const std::scoped_lock lock(mutex_);
  return left_.contains(slot);
}

void OperationRunner::quiesce(Lock& lock, const Error& error, Deadline limit,
                              const std::function<bool()>& over) {
  const int slot = engine_.suspect();
  paused_ = slot;
  // In slices: no doorbell announces what appears in the membership log.
  for (Every question(kQuestion); !over() && !has_passed(limit);) {
    if (left_.contains(slot)) {
      paused_.reset();
      throw NeverComes(error.code, std::string(error.what()) + "; rank [" + std::to_string(slot) +
                                       "] has ended, and no rank takes its place");
    }
    changed_.wait_for(lock, kLook);
    if (!keeps_ || !question.is_due()) continue;
    lock.unlock();
    ask_for_news();
    lock.lock();
  }
  paused_.reset();
}

void OperationRunner::pause(const Error& error) {
  Lock lock(mutex_);
  const std::chrono::milliseconds limit(membership_->repair_ms);
  const auto told = [this] { return aborted_ || steps_->any_ready(membership_->epoch); };
  quiesce(lock, error, std::chrono::steady_clock::now() + limit, told);
  const bool in_time = told();
  // A second attempt in one epoch would send again what has been sent.
  if (aborted_) fail(ncclInvalidUsage, "flexccl: the communicator was aborted");
  if (!in_time) fail(error.code, error.what(), "; no repair came within [", limit.count(), "] ms");
}

void OperationRunner::once(const std::function<void()>& attempt) {
  try {
    attempt();
  } catch (const Error& error) {
    if (error.code != ncclRemoteError || !membership_->partial || aborted_) throw;
    Lock lock(mutex_);
    quiesce(lock, error, in_ms(membership_->repair_ms), [this] { return aborted_.load(); });
    throw;
  }
}

void OperationRunner::look_up() const {
  if (aborted_) fail(ncclInvalidUsage, "flexccl: the communicator was aborted");
  if (steps_->any_ready(membership_->epoch)) throw Interrupted();
}

// Repeats an attempt across repairs, until it says that it is done.
void OperationRunner::settle(const std::function<bool()>& attempt) {
  for (bool done = false; !done;) {
    try {
      apply(true);
      engine_.forget_suspect();
      done = attempt();
    } catch (const Interrupted&) {
      // The next attempt begins with the repair.
    } catch (const NeverComes&) {
      throw;
    } catch (const NoRepair&) {
      throw;
    } catch (const Error& error) {
      if (error.code != ncclRemoteError || aborted_) throw;
      pause(error);
    }
  }
}

void OperationRunner::run(const Make& make) {
  const std::scoped_lock turn(turn_);
  catch_up();
  const Ring first = membership_->ring();
  std::shared_ptr<const Membership> made_for = membership_;
  const std::uint64_t sequence = retention_->next_sequence();
  if (records_.replaying()) return replay(make(with_all_slots(*made_for)), sequence);
  Operation operation = make(*made_for);
  enter(retention_->counters().operations + 1, sequence);
  // Before it runs: afterwards the output may lie there.
  const Hash input = records_.active() ? input_hash(operation, first) : Hash();
  if (!keeps_) {
    retention_->begin(sequence);
    need_root(operation, make);
    once([&] { engine_.run(operation.schedule(first, operation.buffers), sequence); });
    record(operation, first, input, make);
    retention_->complete(sequence);
    settled_ = true, behind_ = false;
    return;
  }
  const Buffers buffers = retention_->keep(sequence, operation, first);
  bool interrupted = false, in_ring = false;
  settle([&] {
    const Ring ring = membership_->ring();
    if (ring.size != first.size && has_blocks(operation.op.collective))
      fail(ncclInvalidUsage, "flexccl: rank [", membership_->slot, "]: ", describe(operation.op),
           " was interrupted by a repair that changed the number of ranks from [", first.size,
           "] to [", ring.size, "], and with it the size of its buffers");
    // A step may have been taken before the first attempt, too.
    if (made_for != membership_) operation = make(*(made_for = membership_));
    operation.buffers = buffers;
    const bool asks = must_ask(operation.op.collective, interrupted);
    interrupted = true;
    const int source = asks ? find_source(sequence, operation) : -1;
    in_ring = source < 0;
    if (!in_ring) return fetch_all(source, sequence, operation, ring, buffers), true;
    need_root(operation, make);
    engine_.run(operation.schedule(ring, buffers), sequence);
    return true;
  });
  const bool recorded = record(operation, membership_->ring(), input, make);
  retention_->complete(sequence, operation, membership_->ring(), recorded);
  release_known(sequence, in_ring, operation.op.collective);
}

void OperationRunner::need_root(const Operation& operation, const Make& make) const {
  if (lacks_root(operation))
    fail(ncclInvalidUsage, "flexccl: the root, rank [", make(with_all_slots(*membership_)).op.root,
         "], was removed from the communicator, and no other rank has the result");
}

// An operation that no rank can complete before all have begun it was completed by none if
// this rank had not begun it.
bool OperationRunner::must_ask(Collective collective, bool interrupted) const {
  if (settled_) return false;
  return interrupted || behind_ || !synchronising(collective);
}

void OperationRunner::release_known(std::uint64_t sequence, bool in_ring, Collective collective) {
  if (in_ring && synchronising(collective)) {
    settled_ = true, behind_ = false;
    retention_->release(sequence - 1);
  }
  std::uint64_t all = sequence;
  for (const int member : membership_->members)
    if (member != membership_->slot && !has_left(member))
      all = std::min(all, engine_.done_at(member));
  retention_->release(all);
}

}  // namespace flexccl
