// Objects of the program: streams, events, modules, handles of libraries, graphs, memory mappings.
//
// Save: the client keeps them, in its object log (ring/object_log.h), which outlives the server; a
// graph is there as the calls of its capture. A snapshot notes up to which entry they count.
// Restore: what made or set them is executed again, in order.
//
// Nothing in the store or the log is changed, so a restore that is cut short can begin again.
#ifndef PYFT_CHECKPOINT_RESOURCES_OBJECTS_H_
#define PYFT_CHECKPOINT_RESOURCES_OBJECTS_H_

#include <span>
#include <string>

#include "checkpoint/device.h"
#include "checkpoint/store/store.h"
#include "ring/channel.h"

namespace pyft::checkpoint {

// Save. `position`: in the ring, after the entry of the cut.
void save_objects(const ring::EntryHeader& cut, uint64_t position, ring::Manifest* manifest);

// What knows the meaning of calls.
class ObjectMaker {
 public:
  virtual ~ObjectMaker() = default;
  // Gets every creating, configuring and destroying entry; what it leaves for later (communicators)
  // is its business. Empty, or what is wrong with the entry.
  virtual std::string execute(const ring::EntryHeader& header, std::span<const std::byte> body,
                              std::span<const std::byte> payload) = 0;
  // Whether a call has failed since this was last asked.
  virtual bool failed() = 0;
  // Whether the entry maps memory of another process.
  virtual bool imports(const ring::EntryHeader& header) const = 0;
};

struct Restored {
  std::string error;      // empty: all is there
  uint64_t position = 0;  // in the ring: replay starts here
};

// Restore: objects as they were at the committed snapshot, with the variables of modules
// (variables.h) and the heap of kernels (kernel_heap.h) where they lay. With no snapshot there is
// nothing to do, and replay starts at 0.
Restored restore_objects(ring::Channel& channel, const Store& store, DeviceState& state,
                         Placement& placement, ObjectMaker& maker);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_RESOURCES_OBJECTS_H_
