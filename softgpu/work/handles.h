// Handles of streams and events, and events in the order of streams.
#ifndef SOFTGPU_WORK_HANDLES_H_
#define SOFTGPU_WORK_HANDLES_H_

#include <driver_types.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "stream/stream.h"

namespace softgpu {

struct CapturedEvent;
class SharedEvent;

// Stream and event handles. Invalid ones are cudaErrorInvalidResourceHandle.
struct Event {
  uint32_t flags = 0;
  int device = 0;
  // The last record: empty until recorded; guarded by the handle table. At most one of these two.
  std::shared_ptr<EventState> last;
  std::shared_ptr<CapturedEvent> captured;
  std::shared_ptr<SharedEvent> shared;  // of an event that other processes may open
};

// Whether the calling thread is inside a call that means its own stream by 0.
bool& null_stream_is_per_thread();

// Makes it so.
class PerThreadScope {
 public:
  PerThreadScope() : before_(std::exchange(null_stream_is_per_thread(), true)) {}
  ~PerThreadScope() { null_stream_is_per_thread() = before_; }
  PerThreadScope(const PerThreadScope&) = delete;
  PerThreadScope& operator=(const PerThreadScope&) = delete;

 private:
  const bool before_;
};

std::shared_ptr<Stream> create_stream(int device, bool blocking, int priority);
cudaError_t destroy_stream(const void* handle);
// Resolves 0 and 1 (legacy), 2 (per thread) and created streams; empty if there is none.
std::shared_ptr<Stream> find_stream(const void* handle);

Event* create_event(int device, uint32_t flags, std::shared_ptr<SharedEvent> shared);
cudaError_t destroy_event(const void* handle);
bool find_event(const void* handle, Event* copy);
// `external`: in a capture a node of its own, instead of an order between nodes.
cudaError_t record_event(const void* handle, const std::shared_ptr<Stream>& stream, bool external);
cudaError_t stream_wait_event(const std::shared_ptr<Stream>& stream, const void* event,
                              bool external);
// The work of recording or waiting now. An event that is gone records nothing and is complete.
Work record_work(const void* event, int device);
Work wait_work(const void* event);

}  // namespace softgpu

#endif  // SOFTGPU_WORK_HANDLES_H_
