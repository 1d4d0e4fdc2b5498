// Reads the containers that compilers embed: only as far as needed to send a device its own code.
#ifndef PYFT_CLIENT_CODE_FATBIN_H_
#define PYFT_CLIENT_CODE_FATBIN_H_

#include <cstddef>
#include <string>
#include <vector>

namespace pyft::client {

// Bytes of what cuModuleLoadData got: size of an ELF file, of a fatbin, or of PTX text.
// 0: none of these.
size_t image_bytes(const void* image);

// A fatbin, or what a fatbin wrapper points to, which for relocatable code is what was linked;
// other images are returned as they are.
const void* unwrap(const void* image);

// A fatbin with only the entries for compute capability major.minor, still compressed: the newest
// machine code that runs there, else the PTX. Other images are copied whole. Empty: nothing in it
// runs on that device, or the container is damaged.
std::vector<std::byte> select_code(const void* image, int major, int minor);

}  // namespace pyft::client

#endif  // PYFT_CLIENT_CODE_FATBIN_H_
