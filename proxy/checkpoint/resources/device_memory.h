// Contents of device memory: what the program has allocated or mapped, variables of modules, and
// the heap of kernels, block by block.
#ifndef PYFT_CHECKPOINT_RESOURCES_DEVICE_MEMORY_H_
#define PYFT_CHECKPOINT_RESOURCES_DEVICE_MEMORY_H_

#include <span>
#include <string>
#include <vector>

#include "checkpoint/device.h"
#include "checkpoint/memory/live_set.h"
#include "checkpoint/memory/stage.h"
#include "checkpoint/ranks.h"
#include "checkpoint/store/store.h"

namespace pyft::checkpoint {

// Save: finds out what is live at a cut (live_set.h) and gets it into the store, or ready for
// background copies (stage.h). `places`: of variables and heap. A sentence: it cannot be saved.
struct MemoryToSave {
  std::span<const std::byte> scope;                // payload of the cut
  const std::vector<ring::ManifestPlace>& places;  // of variables and of the heap of kernels
  bool late;                                       // there may be background copies
  const SharePlan* plan;                           // nullptr: no other rank has any of it
};
std::string save_memory(const MemoryToSave& what, DeviceState& state, Stage* stage, LiveSet* live);

// Restore: contents of all blocks. What the device has then is compared with the digest that each
// was saved with. A sentence, or nothing when all is well.
std::string restore_memory(ring::ControlPage& page, const Store& store, DeviceMemory& memory,
                           RemoteBlocks& remote);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_RESOURCES_DEVICE_MEMORY_H_
