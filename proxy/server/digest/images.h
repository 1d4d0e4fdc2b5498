// Machine code of the kernel, made by tools/build/compile_kernel.py.
#ifndef PYFT_SERVER_DIGEST_IMAGES_H_
#define PYFT_SERVER_DIGEST_IMAGES_H_

#include <cstddef>
#include <span>

namespace pyft::server {

struct KernelImage {
  int architecture;  // 75 for compute capability 7.5, ...; 0: PTX
  const unsigned char* bytes;
  size_t size;
};

// Empty: there was no compiler when this was built.
std::span<const KernelImage> digest_images();

// That of the architecture itself, else of an older one of the same generation, which runs there as
// well, else PTX. nullptr: there is none.
const KernelImage* image_for(int architecture, std::span<const KernelImage> images);

}  // namespace pyft::server

#endif  // PYFT_SERVER_DIGEST_IMAGES_H_
