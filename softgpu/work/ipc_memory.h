// Device memory that several processes share.
//
// Device memory is anonymous until a program asks for a handle: then the pages that hold the
// allocation move into a memory file, at the same address. Another process opens the file through
// /proc, which lets only the same user do so, and maps it into its own device's range. Memory that
// the program has mapped itself lies in a file anyway; what is allocated in a mapping only the
// program knows, so its handle is for what follows the address (a real driver refuses such memory).
#ifndef SOFTGPU_WORK_IPC_MEMORY_H_
#define SOFTGPU_WORK_IPC_MEMORY_H_

#include <driver_types.h>

#include <cstdint>

#include "memory/ipc_file.h"

namespace softgpu {

struct IpcMemory {
  IpcFile file;
  uint64_t file_bytes = 0;         // of the pages
  uint64_t offset = 0, bytes = 0;  // of the allocation in them
  uint64_t file_offset = 0;        // of the pages
};

// All thread-safe. Waits for the work of all devices if the memory has not been exported before.
cudaError_t export_memory(uint64_t address, IpcMemory* memory);
// The same address each time, as long as it stays open.
cudaError_t import_memory(int device, const IpcMemory& memory, uint64_t* address);
// Precondition: no queued work uses the memory.
cudaError_t close_memory(uint64_t address, int* device);
bool is_imported(uint64_t address);

}  // namespace softgpu

#endif  // SOFTGPU_WORK_IPC_MEMORY_H_
