// Reading an image of which only a pointer is known: what its headers say may be wrong, and then
// the bytes may not be there.
#ifndef SOFTGPU_LOADER_READABLE_H_
#define SOFTGPU_LOADER_READABLE_H_

#include <cstdint>
#include <vector>

namespace softgpu {

// More than any module has; sizes beyond it are damage, not requests for memory.
inline constexpr uint64_t kMaxImageBytes = uint64_t{1} << 30;

// Copies bytes of this process; false if not all of them can be read.
bool copy_readable(const void* from, uint64_t bytes, void* to);

bool copy_readable(const void* from, uint64_t bytes, std::vector<uint8_t>* to);

// As resize(). An image may have tens of megabytes, and taking its memory page by page would be
// most of what loading it costs.
void resize_image(uint64_t bytes, std::vector<uint8_t>* image);

template <class T>
bool load_readable(const void* from, T* value) {
  return copy_readable(from, sizeof(T), value);
}

}  // namespace softgpu

#endif  // SOFTGPU_LOADER_READABLE_H_
