// Streams and the work in them: FIFO queues, executed one at a time per device in submission order
// as far as their dependencies allow; by the device's worker thread, or by a thread of the program
// that has lent itself to the device (work()).
//
// One lock guards all queues of all devices, because events order work across devices. It is held
// for bookkeeping only, never while work runs.
#ifndef SOFTGPU_STREAM_STREAM_H_
#define SOFTGPU_STREAM_STREAM_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "core/kernel.h"

namespace softgpu {

class Stream;

// One recording of an event. Complete once the work before the record has finished.
struct EventState {
  bool complete = false;
  uint64_t time_ns = 0;  // host clock
  std::weak_ptr<Stream> stream;
  uint64_t sequence = 0;  // of the record
};

struct Work {
  uint64_t sequence = 0;
  // One of the two at most; a Work with none only waits, or carries an event.
  std::function<Fault()> run;         // on the thread that executes the device's work
  std::function<void()> host_call;    // on the device's callback thread: may block its stream only
  std::shared_ptr<EventState> after;  // not ready before this event
  std::function<bool()> poll;         // not ready before this holds
  std::shared_ptr<EventState> record;
  uint64_t bytes = 0;  // of the program's data that it keeps
};

enum class StreamKind : uint8_t { kLegacy, kBlocking, kNonBlocking };

class Stream {
 public:
  Stream(int device, StreamKind kind, int priority, uint64_t id)
      : device(device), kind(kind), priority(priority), id(id) {}
  const int device;
  const StreamKind kind;
  const int priority;
  const uint64_t id;

 private:
  friend class Scheduler;
  std::deque<Work> queue_;  // front is running if busy_
  bool busy_ = false;
  uint64_t last_submitted_ = 0;
  uint64_t bytes_ = 0;     // of the program's data in the queue
  uint64_t finished_ = 0;  // works
  bool stalled_ = false;   // waits for something the program may have to do first
  int room_waiters_ = 0;
  uint64_t host_seen_ = 0;  // the host has waited for all work up to here
};

// The queues of one device and the threads that empty them.
class Scheduler {
 public:
  explicit Scheduler(int device);

  // Appends to the stream; after a fault the work is dropped and its event completes at once.
  // Returns the work's sequence number.
  uint64_t submit(const std::shared_ptr<Stream>& stream, Work work);

  // The same for work that follows each other.
  void submit_all(const std::shared_ptr<Stream>& stream, std::vector<Work> works);

  // Executes `run` at once in the calling thread if everything on the stream that it would come
  // after has finished and nothing executes; else false. It leaves no trace in the queues.
  bool run_if_idle(const Stream& stream, const std::function<Fault()>& run);

  // Everything submitted to the stream so far; on the legacy stream: also to all blocking streams.
  void wait_stream(Stream& stream);
  bool stream_done(const Stream& stream);
  void wait_device();
  static void wait_event(const EventState& event);

  // The number of the last work of all, whichever thread submitted it.
  static uint64_t last_submitted();
  // Whether all work of the stream up to that number is known to be done because some thread has
  // waited for it; whether it is done.
  bool host_has_seen(const Stream& stream, uint64_t sequence) const;
  bool reached(const Stream& stream, uint64_t sequence) const;

  // Executes the next ready work in the calling thread. False if none is ready or another thread
  // executes some. From its first call on the thread is lent to this device: what it submits does
  // not wake the worker, so before it sleeps it has to call this until false, or wait for the
  // device here. Saves the two thread switches between a submission and its completion.
  bool work();

  static bool event_done(const EventState& event);
  // Completes an event that no work records: work that comes after it becomes ready.
  static void complete(EventState& event);

  // The first fault of this device; its work is gone and every later call reports it.
  FaultKind fault() const { return fault_.load(std::memory_order_acquire); }

  // Ends the device as a fault of its work would.
  void fail_now(const Fault& fault);

  // Stops the threads after the work that is running now. For process exit.
  void stop();

 private:
  uint64_t append(const std::shared_ptr<Stream>& stream, Work work);
  void make_room(std::unique_lock<std::mutex>& lock, Stream& stream);
  void start_threads();
  void work_loop();
  void callback_loop();
  template <class Condition>
  void help_until(std::unique_lock<std::mutex>& lock, Condition done);
  template <class Condition>
  static void wait_for_progress(std::unique_lock<std::mutex>& lock, Condition done);
  bool execute_next(std::unique_lock<std::mutex>& lock, bool* polling);
  std::shared_ptr<Stream> pick(bool* polling);
  std::shared_ptr<Stream> unfair_choice(const std::vector<std::shared_ptr<Stream>>& ready);
  bool head_ready(const Stream& stream, bool* polling) const;
  void finish(const std::shared_ptr<Stream>& stream);
  void fail(const Fault& fault);
  bool done_up_to(const Stream& stream, uint64_t sequence) const;
  bool idle(const Stream& stream) const;

  const int device_;
  std::optional<std::mt19937_64> shuffle_;             // SOFTGPU_STREAM_SEED
  uint64_t favourite_ = 0;                             // stream
  std::map<uint64_t, std::shared_ptr<Stream>> heads_;  // streams with work, by their oldest work
  std::condition_variable work_ready_, callback_ready_, room_;
  uint64_t host_seen_ = 0, host_seen_legacy_ = 0;  // of all streams; of all but non-blocking ones
  std::deque<std::shared_ptr<Stream>> callbacks_;
  std::thread worker_, callback_thread_;
  std::atomic<FaultKind> fault_{FaultKind::kNone};
  bool started_ = false, stopping_ = false;
  bool running_ = false;  // some thread executes work of this device
};

uint64_t host_time_ns();

}  // namespace softgpu

#endif  // SOFTGPU_STREAM_STREAM_H_
