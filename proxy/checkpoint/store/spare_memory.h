// How much memory snapshots may still take. Where a host or a container has none left, the kernel's
// OOM killer ends the program or a server: the job would end because it is protected.
#ifndef PYFT_CHECKPOINT_STORE_SPARE_MEMORY_H_
#define PYFT_CHECKPOINT_STORE_SPARE_MEMORY_H_

#include <cstdint>
#include <filesystem>

namespace pyft::checkpoint {

// Of the host and of each control group of this process that has a limit, the least that is left,
// less what programs are to keep of it: a 32nd, 64 MiB to 2 GiB. Pages of files that the kernel
// gives up count as left. `root` has proc and sys. What cannot be read limits nothing.
uint64_t spare_memory(const std::filesystem::path& root = "/");

}  // namespace pyft::checkpoint

#endif  // PYFT_CHECKPOINT_STORE_SPARE_MEMORY_H_
