// Where device memory and module variables have their places. One home: the executor asks as well.
#ifndef SOFTGPU_CORE_WINDOWS_H_
#define SOFTGPU_CORE_WINDOWS_H_

#include <cstdint>

#include "core/config.h"

namespace softgpu {

#ifdef __SANITIZE_THREAD__  // which lets a program map only a few parts of the address space
inline constexpr uint64_t kWindowBase = 0x7e90'0000'0000;
inline constexpr uint64_t kWindowBytes = uint64_t{1} << 34;
inline constexpr uint64_t kAuxiliaryBase = 0x7e88'0000'0000;
inline constexpr uint64_t kAuxiliaryBytes = uint64_t{1} << 32;
#else
// Where Linux puts nothing by itself (mmap's and programs' places). + device * kWindowBytes
inline constexpr uint64_t kWindowBase = 0x1800'0000'0000;
inline constexpr uint64_t kWindowBytes = uint64_t{1} << 40;
// Module globals, and everything else once a program has reserved the window for itself.
inline constexpr uint64_t kAuxiliaryBase = 0x1610'0000'0000;  // 0x16a0…: pyft's pinned windows
inline constexpr uint64_t kAuxiliaryBytes = uint64_t{1} << 36;
#endif

// Whether an address lies in any of them. Other mapped memory belongs to the program as well, which
// may use it at any time.
inline bool is_device_memory(uint64_t address) {
  return address - kWindowBase < kMaxDevices * kWindowBytes ||
         address - kAuxiliaryBase < kMaxDevices * kAuxiliaryBytes;
}

}  // namespace softgpu

#endif  // SOFTGPU_CORE_WINDOWS_H_
