// Events that several processes share: counters in shared memory.
#ifndef SOFTGPU_STREAM_IPC_EVENT_H_
#define SOFTGPU_STREAM_IPC_EVENT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/kernel.h"

namespace softgpu {

// What the processes share: 8-byte words, appended to, never moved.
struct SharedEventWords {
  std::atomic<uint64_t> asked;    // records that were put on a stream
  std::atomic<uint64_t> reached;  // the newest of them that its stream has reached
  std::atomic<int64_t> recorder;  // the process that asked last
  uint64_t reserved;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(SharedEventWords) == 32);

// The events of one process lie in few files, since a program may have a thousand of them.
struct SharedEventPlace {
  int fd = -1;
  uint32_t slot = 0;
};
inline constexpr uint32_t kSharedEventSlots = 2048;
inline constexpr uint64_t kSharedEventBytes = kSharedEventSlots * sizeof(SharedEventWords);

class SharedEvent : public std::enable_shared_from_this<SharedEvent> {
  struct Key {};  // only the makers below have one

 public:
  SharedEvent(Key, SharedEventPlace place, SharedEventWords* words, bool own)
      : place_(place), words_(words), own_(own) {}
  // nullptr if the system refuses the memory.
  static std::shared_ptr<SharedEvent> create();
  // Of another process; the descriptor may be closed afterwards.
  static std::shared_ptr<SharedEvent> open(SharedEventPlace place);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  // The work of recording now.
  std::function<Fault()> record();
  // Whether the newest record so far has been reached. A recorder that has died counts as reached:
  // its device is gone.
  std::function<bool()> recorded();
  // Where another process finds it; only of events made here.
  SharedEventPlace place() const { return place_; }
  bool own() const { return own_; }

 private:
  const SharedEventPlace place_;
  SharedEventWords* const words_;
  const bool own_;
};

}  // namespace softgpu

#endif  // SOFTGPU_STREAM_IPC_EVENT_H_
