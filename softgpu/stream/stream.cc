#include "stream/stream.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/config.h"
#include "core/log.h"
#include "core/settings.h"

namespace softgpu {
namespace {

// Shared by all devices; never destroyed, because worker threads may outlive static objects.
struct Shared {
  std::mutex mutex;
  std::condition_variable progress;  // some work has finished
  int waiters = 0;
  uint64_t next_sequence = 1;
  std::vector<std::condition_variable*> workers;  // event waits cross devices
};

Shared& shared() {
  static Shared* all = std::make_unique<Shared>().release();
  return *all;
}

thread_local Scheduler* lent_to = nullptr;  // whose work() the thread has called

thread_local bool on_callback_thread = false;

// Of one stream; a real device's queue holds about as many.
constexpr size_t kMaxWorks = 1024;
constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
constexpr auto kStallTime = std::chrono::milliseconds(500);
constexpr auto kPollInterval = std::chrono::microseconds(50);

}  // namespace

uint64_t host_time_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

Scheduler::Scheduler(int device) : device_(device) {
  if (const uint64_t seed = settings::stream_seed()) shuffle_.emplace(seed);
  std::lock_guard lock(shared().mutex);
  shared().workers.push_back(&work_ready_);
}

void Scheduler::start_threads() {
  started_ = true;
  worker_ = std::thread([this] { work_loop(); });
  callback_thread_ = std::thread([this] { callback_loop(); });
  pthread_setname_np(worker_.native_handle(), ("softgpu" + std::to_string(device_)).c_str());
  pthread_setname_np(callback_thread_.native_handle(),
                     ("softgpu" + std::to_string(device_) + "-cb").c_str());
}

// A program that submits faster than the device works waits here, as it does at a real device, so
// that its memory stays bounded. Not for ever: work may itself wait for what the submitting thread
// does next. So a thread that finds that the stream neither executes nor gets on lets all through
// until it does again.
void Scheduler::make_room(std::unique_lock<std::mutex>& lock, Stream& stream) {
  const auto full = [&](size_t works, uint64_t bytes) {
    return stream.queue_.size() >= works || stream.bytes_ >= bytes;
  };
  if (!full(kMaxWorks, kMaxBytes) || on_callback_thread) return;
  if (lent_to == this) {
    bool polling = false;
    while (full(kMaxWorks / 2, kMaxBytes / 2) && !running_ && !stopping_ &&
           execute_next(lock, &polling)) {
    }
    return;
  }
  ++stream.room_waiters_;
  while (full(kMaxWorks / 2, kMaxBytes / 2) && !stream.stalled_ && !stopping_) {
    const uint64_t before = stream.finished_;
    room_.wait_for(lock, kStallTime);
    const bool executes = stream.busy_ && running_;
    if (stream.finished_ == before && !executes) stream.stalled_ = true;
  }
  --stream.room_waiters_;
}

// Precondition: the lock is held.
uint64_t Scheduler::append(const std::shared_ptr<Stream>& stream, Work work) {
  work.sequence = shared().next_sequence++;
  const uint64_t sequence = work.sequence;
  if (work.record) {
    work.record->stream = stream;
    work.record->sequence = sequence;
  }
  if (fault() != FaultKind::kNone || stopping_) {
    if (work.record) work.record->complete = true;
    return sequence;
  }
  stream->last_submitted_ = sequence;
  stream->bytes_ += work.bytes;
  if (stream->queue_.empty()) heads_[sequence] = stream;
  stream->queue_.push_back(std::move(work));
  return sequence;
}

uint64_t Scheduler::submit(const std::shared_ptr<Stream>& stream, Work work) {
  std::unique_lock lock(shared().mutex);
  if (!started_) start_threads();
  make_room(lock, *stream);
  const uint64_t sequence = append(stream, std::move(work));
  if (!running_ && lent_to != this) work_ready_.notify_one();
  return sequence;
}

void Scheduler::submit_all(const std::shared_ptr<Stream>& stream, std::vector<Work> works) {
  std::unique_lock lock(shared().mutex);
  if (!started_) start_threads();
  make_room(lock, *stream);
  for (Work& work : works) append(stream, std::move(work));
  if (!running_ && lent_to != this) work_ready_.notify_one();
}

uint64_t Scheduler::last_submitted() {
  const std::lock_guard lock(shared().mutex);
  return shared().next_sequence - 1;
}

bool Scheduler::host_has_seen(const Stream& stream, uint64_t sequence) const {
  const std::lock_guard lock(shared().mutex);
  const uint64_t legacy = stream.kind == StreamKind::kNonBlocking ? 0 : host_seen_legacy_;
  return sequence <= std::max({stream.host_seen_, host_seen_, legacy});
}

bool Scheduler::reached(const Stream& stream, uint64_t sequence) const {
  const std::lock_guard lock(shared().mutex);
  return done_up_to(stream, sequence);
}

bool Scheduler::head_ready(const Stream& stream, bool* polling) const {
  const Work& head = stream.queue_.front();
  if (head.after && !head.after->complete) return false;
  if (head.poll) {
    *polling = true;
    return head.poll();
  }
  return true;
}

// Oldest work first, or in an order that is as unfair as a device's may be. The legacy stream and
// the blocking streams wait for each other's earlier work, so passing an unfinished one of either
// side on the way up holds back the other side.
std::shared_ptr<Stream> Scheduler::pick(bool* polling) {
  bool legacy_unfinished = false, blocking_unfinished = false;
  std::vector<std::shared_ptr<Stream>> ready;
  for (auto& [sequence, stream] : heads_) {
    const bool legacy = stream->kind == StreamKind::kLegacy;
    const bool blocking = stream->kind == StreamKind::kBlocking;
    const bool held = (legacy && blocking_unfinished) || (blocking && legacy_unfinished);
    if (!held && !stream->busy_ && head_ready(*stream, polling)) {
      if (!shuffle_) return stream;
      ready.push_back(stream);
    }
    legacy_unfinished |= legacy;
    blocking_unfinished |= blocking;
  }
  return ready.empty() ? nullptr : unfair_choice(ready);
}

// Stays with a stream for a while, so that others fall far behind.
std::shared_ptr<Stream> Scheduler::unfair_choice(
    const std::vector<std::shared_ptr<Stream>>& ready) {
  constexpr uint64_t kTurns = 32;
  const auto same = std::find_if(ready.begin(), ready.end(),
                                 [&](const auto& stream) { return stream->id == favourite_; });
  if (same != ready.end() && (*shuffle_)() % kTurns) return *same;
  const auto& chosen = ready[(*shuffle_)() % ready.size()];
  favourite_ = chosen->id;
  return chosen;
}

// Precondition: no thread executes work of this device. The lock is released while the work runs.
bool Scheduler::execute_next(std::unique_lock<std::mutex>& lock, bool* polling) {
  const auto stream = pick(polling);
  if (!stream) return false;
  stream->busy_ = true;
  Work& work = stream->queue_.front();
  if (work.host_call) {
    callbacks_.push_back(stream);
    callback_ready_.notify_one();
    return true;
  }
  Fault fault;
  if (work.run) {
    running_ = true;
    lock.unlock();
    fault = work.run();
    lock.lock();
    running_ = false;
  }
  if (fault.until && this->fault() == FaultKind::kNone) {
    work.after = std::move(fault.until);
    stream->busy_ = false;
    return true;
  }
  finish(stream);
  if (fault) fail(fault);
  return true;
}

void Scheduler::work_loop() {
  std::unique_lock lock(shared().mutex);
  while (!stopping_) {
    bool polling = false;
    // While a lent thread executes, that thread comes back for the rest.
    if (!running_ && execute_next(lock, &polling)) continue;
    if (polling) {
      work_ready_.wait_for(lock, kPollInterval);
    } else {
      work_ready_.wait(lock);
    }
  }
  shared().progress.notify_all();
}

bool Scheduler::work() {
  std::unique_lock lock(shared().mutex);
  lent_to = this;
  bool polling = false;
  if (running_ || stopping_) return false;
  if (execute_next(lock, &polling)) return true;
  if (polling) work_ready_.notify_one();  // the worker polls, and goes on from there
  return false;
}

// A lent thread that waits executes what it waits for; when nothing is ready the worker takes over.
// Not when the wait is over: the thread comes back for the rest, and a wake-up for each piece of a
// large copy would cost as much as half its bytes.
template <class Condition>
void Scheduler::help_until(std::unique_lock<std::mutex>& lock, Condition done) {
  bool polling = false;
  while (!done() && !running_ && !stopping_ && execute_next(lock, &polling)) {
  }
  if (!done()) work_ready_.notify_one();
}

template <class Condition>
void Scheduler::wait_for_progress(std::unique_lock<std::mutex>& lock, Condition done) {
  if (lent_to) lent_to->help_until(lock, done);
  ++shared().waiters;
  shared().progress.wait(lock, done);
  --shared().waiters;
}

void Scheduler::callback_loop() {
  on_callback_thread = true;
  std::unique_lock lock(shared().mutex);
  while (!stopping_) {
    if (callbacks_.empty()) {
      callback_ready_.wait(lock);
      continue;
    }
    const auto stream = callbacks_.front();
    callbacks_.pop_front();
    const auto call = std::move(stream->queue_.front().host_call);
    lock.unlock();
    call();
    lock.lock();
    finish(stream);
    work_ready_.notify_one();
  }
}

// Takes the finished head off its stream. The work's captures are destroyed under the lock, which
// is why they only ever own plain memory.
void Scheduler::finish(const std::shared_ptr<Stream>& stream) {
  Work& work = stream->queue_.front();
  if (work.record) {
    work.record->time_ns = host_time_ns();
    work.record->complete = true;
    for (auto* other : shared().workers) {
      if (other != &work_ready_) other->notify_one();
    }
  }
  heads_.erase(work.sequence);
  stream->bytes_ -= work.bytes;
  stream->queue_.pop_front();
  stream->busy_ = stream->stalled_ = false;
  ++stream->finished_;
  if (stream->room_waiters_ &&
      (stream->queue_.size() < kMaxWorks / 2 && stream->bytes_ < kMaxBytes / 2)) {
    room_.notify_all();
  }
  if (!stream->queue_.empty()) heads_[stream->queue_.front().sequence] = stream;
  if (shared().waiters) shared().progress.notify_all();
}

// A fault ends the device for this process: what is queued is dropped, and each thread that waits
// for it is let go to find the error. Host functions that are already running end by themselves.
void Scheduler::fail(const Fault& fault) {
  fault_.store(fault.kind, std::memory_order_release);
  log_line(SOFTGPU_LOG_ERROR, "device [%d]: %s", device_, fault.message.c_str());
  std::map<uint64_t, std::shared_ptr<Stream>> running;
  for (auto& [sequence, stream] : heads_) {
    const size_t keep = stream->busy_ ? 1 : 0;
    for (size_t i = keep; i < stream->queue_.size(); ++i) {
      if (stream->queue_[i].record) stream->queue_[i].record->complete = true;
    }
    stream->queue_.resize(keep);
    stream->bytes_ = keep ? stream->queue_.front().bytes : 0;
    if (keep) running[sequence] = stream;
  }
  heads_ = std::move(running);
  for (auto* other : shared().workers) other->notify_one();
  shared().progress.notify_all();
  room_.notify_all();
}

void Scheduler::fail_now(const Fault& fault) {
  std::lock_guard lock(shared().mutex);
  if (this->fault() == FaultKind::kNone) fail(fault);
}

bool Scheduler::done_up_to(const Stream& stream, uint64_t sequence) const {
  if (stream.kind != StreamKind::kLegacy) {
    return stream.queue_.empty() || stream.queue_.front().sequence > sequence;
  }
  for (auto& [head, other] : heads_) {
    if (head > sequence) break;
    if (other->kind != StreamKind::kNonBlocking) return false;
  }
  return true;
}

// Work of a blocking stream comes after that of the legacy stream as well.
bool Scheduler::idle(const Stream& stream) const {
  const uint64_t last = shared().next_sequence - 1;
  if (!done_up_to(stream, last)) return false;
  return stream.kind != StreamKind::kBlocking ||
         std::none_of(heads_.begin(), heads_.end(),
                      [](const auto& head) { return head.second->kind == StreamKind::kLegacy; });
}

bool Scheduler::run_if_idle(const Stream& stream, const std::function<Fault()>& run) {
  std::unique_lock lock(shared().mutex);
  if (running_ || stopping_ || fault() != FaultKind::kNone || !idle(stream)) return false;
  running_ = true;
  lock.unlock();
  const Fault failed = run();
  lock.lock();
  running_ = false;
  if (failed) fail(failed);
  // What others have submitted meanwhile has woken no thread.
  if (!heads_.empty() && lent_to != this) work_ready_.notify_one();
  if (shared().waiters) shared().progress.notify_all();
  return true;
}

void Scheduler::wait_stream(Stream& stream) {
  std::unique_lock lock(shared().mutex);
  const uint64_t last = shared().next_sequence - 1;
  wait_for_progress(lock, [&] { return stopping_ || done_up_to(stream, last); });
  stream.host_seen_ = std::max(stream.host_seen_, last);
  if (stream.kind == StreamKind::kLegacy) host_seen_legacy_ = std::max(host_seen_legacy_, last);
}

bool Scheduler::stream_done(const Stream& stream) {
  std::lock_guard lock(shared().mutex);
  return done_up_to(stream, shared().next_sequence - 1);
}

void Scheduler::wait_device() {
  std::unique_lock lock(shared().mutex);
  const uint64_t last = shared().next_sequence - 1;
  wait_for_progress(lock,
                    [&] { return stopping_ || heads_.empty() || heads_.begin()->first > last; });
  host_seen_ = std::max(host_seen_, last);
}

void Scheduler::wait_event(const EventState& event) {
  std::unique_lock lock(shared().mutex);
  wait_for_progress(lock, [&] { return event.complete; });
  if (const auto stream = event.stream.lock()) {
    stream->host_seen_ = std::max(stream->host_seen_, event.sequence);
  }
}

bool Scheduler::event_done(const EventState& event) {
  std::lock_guard lock(shared().mutex);
  return event.complete;
}

void Scheduler::complete(EventState& event) {
  std::lock_guard lock(shared().mutex);
  event.time_ns = host_time_ns();
  event.complete = true;
  for (auto* worker : shared().workers) worker->notify_one();
  shared().progress.notify_all();
}

void Scheduler::stop() {
  std::unique_lock lock(shared().mutex);
  stopping_ = true;
  work_ready_.notify_all();
  callback_ready_.notify_all();
  wait_for_progress(lock, [&] { return !running_; });
  // Not joined: a host function may block for ever, and exit must not wait for it.
  if (worker_.joinable()) worker_.detach();
  if (callback_thread_.joinable()) callback_thread_.detach();
}

}  // namespace softgpu
