// The heap of kernels: memory that the device gives to malloc() in kernels. Soft GPUs tell where it
// lies; real ones do not, and a program that uses it is not protected.
#ifndef PYFT_CHECKPOINT_RESOURCES_KERNEL_HEAP_H_
#define PYFT_CHECKPOINT_RESOURCES_KERNEL_HEAP_H_

#include <string>
#include <vector>

#include "checkpoint/device.h"
#include "ring/store_layout.h"

namespace pyft::checkpoint {

// Save: its place, with owner 0. What is in it is memory like any other (device_memory.h).
void save_kernel_heap(DeviceState& state, std::vector<ring::ManifestPlace>* places);

// Restore: it is made where it lay, after the objects. Empty, or why it is not there.
std::string restore_kernel_heap(const std::vector<ring::ManifestPlace>& places, DeviceState& state,
                                Placement& placement);

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_RESOURCES_KERNEL_HEAP_H_
