// Files that hold memory, as other processes of the user name and open them.
#ifndef SOFTGPU_MEMORY_IPC_FILE_H_
#define SOFTGPU_MEMORY_IPC_FILE_H_

#include <cstdint>

namespace softgpu {

// A file of another process, as handles name it.
struct IpcFile {
  int32_t process = 0;
  int32_t fd = 0;
  uint64_t inode = 0;  // tells when the descriptor has come to mean something else
};
// This process's file as others name it; a descriptor, or -1 if the file is not there any more.
bool describe_file(int fd, IpcFile* file);
int open_file(const IpcFile& file);

// Memory whose pages have moved into a file, by the address of the pages; -1: they have not.
// Thread-safe.
int find_export(uint64_t base);
void note_export(uint64_t base, int fd);
// The pages are going back to the system: closes the file.
void forget_export(uint64_t base);

}  // namespace softgpu

#endif  // SOFTGPU_MEMORY_IPC_FILE_H_
