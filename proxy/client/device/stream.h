// Streams and events as the client sees them: minted handles and completion words.
#ifndef PYFT_CLIENT_DEVICE_STREAM_H_
#define PYFT_CLIENT_DEVICE_STREAM_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "client/device/device.h"

namespace pyft::client {

// `work` counts commands appended on the stream; a fence is due when it differs from fenced_work.
struct Stream {
  Stream(Device& device, uint64_t handle, uint32_t word)
      : device(device), handle(handle), word(word) {}
  Device& device;
  uint64_t handle;
  uint32_t word;
  const uint64_t id = last_id.fetch_add(1) + 1;  // unlike the word, never used again
  unsigned flags = 0;
  int priority = 0;
  std::atomic<uint64_t> capture{0};  // id of the capture it takes part in (capture.h)
  std::atomic<uint64_t> work{0};
  std::atomic<uint64_t> observed{0};  // fence value the program knows is reached
  std::mutex fence_mutex;             // guards the two below
  uint64_t fenced_work = 0, fence_value = 0;
  inline static std::atomic<uint64_t> last_id{0};
};

// Where in a stream an event was recorded. Value 0: never.
struct Record {
  uint64_t word : 16 = 0, value : 48 = 0;
  bool operator==(const Record&) const = default;
};
static_assert(ring::kCompletionWords <= 1 << 16 && std::atomic<Record>::is_always_lock_free);

// `word` has the time of the last record; it is published before the stream's.
struct Event {
  Event(Device& device, uint64_t handle, uint32_t word, unsigned flags)
      : device(device),
        handle(handle),
        word(word),
        flags(flags),
        shared(flags & cudaEventInterprocess) {}
  Device& device;
  uint64_t handle;
  uint32_t word;
  unsigned flags;
  bool shared;  // other processes may record it too, so only the server knows when it is complete
  // The last record: it is complete when its stream's word reaches that value. One word for stream
  // and event: no order of two publications can make one complete and the other not.
  std::atomic<Record> recorded{Record{}};
  std::atomic<Record> observed{Record{}};
  std::atomic<uint64_t> capture{0};  // id of the capture its last record belongs to
};

// The stream behind a handle; 0, 1 and 2 mean streams of the current device. nullptr: no such
// stream, *error says why.
Stream* stream_of(cudaStream_t handle, cudaError_t* error);
// The same for 0, 1 and 2 on that device. 2 is a stream of the calling thread, made at its first
// use there and ended with the thread.
Stream* default_stream(Device& device, uint64_t handle, cudaError_t* error);

// While it lives, 0 is 2 for this thread: the _ptsz and _ptds variants of calls.
class OwnNullStream {
 public:
  OwnNullStream();
  ~OwnNullStream();
  OwnNullStream(const OwnNullStream&) = delete;
  OwnNullStream& operator=(const OwnNullStream&) = delete;

 private:
  const bool before_;
};

// Whether it is so.
bool null_is_own();

Event* event_of(cudaEvent_t handle);

cudaError_t create_stream(unsigned flags, int priority, cudaStream_t* out);
cudaError_t destroy_stream(cudaStream_t handle);
cudaError_t query_stream(Stream& stream);
// A handle whose event is not made in the server yet; 0: none is free.
uint64_t mint_event(Device& device, unsigned flags);
cudaError_t create_event(unsigned flags, cudaEvent_t* out);
cudaError_t destroy_event(cudaEvent_t handle);
cudaError_t record_event(cudaEvent_t event, cudaStream_t stream);
cudaError_t query_event(cudaEvent_t event);
cudaError_t synchronize_event(cudaEvent_t event);
cudaError_t elapsed_ms(float* ms, cudaEvent_t start, cudaEvent_t end);
cudaError_t wait_event(cudaStream_t stream, cudaEvent_t event, unsigned flags);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_DEVICE_STREAM_H_
