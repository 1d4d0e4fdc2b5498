#include "server/digest/images.h"

namespace pyft::server {

const KernelImage* image_for(int architecture, std::span<const KernelImage> images) {
  const KernelImage* best = nullptr;
  for (const KernelImage& image : images) {
    const bool fits = image.architecture == 0 || (image.architecture <= architecture &&
                                                  image.architecture / 10 == architecture / 10);
    if (fits && (!best || image.architecture > best->architecture)) best = &image;
  }
  return best;
}

}  // namespace pyft::server
