// What a server has seen a device do for an entry, as it tells its client. Same rules as
// ring/layout.h: fixed widths, no pointers, no padding.
#ifndef PYFT_API_PROFILE_RECORDS_H_
#define PYFT_API_PROFILE_RECORDS_H_

#include <cstdint>
#include <type_traits>

namespace pyft {

enum class ProfiledKind : uint32_t { kKernel = 1, kCopy = 2, kFill = 3 };

// A name follows the record that has it for the first time: `name_bytes` of it, padded to 8.
struct ProfiledWork {
  uint64_t entry;
  uint64_t start, end;  // CLOCK_REALTIME
  uint64_t bytes;       // of copies and fills
  ProfiledKind kind;
  uint32_t stream;
  uint32_t name, name_bytes;  // of kernels, a number of the server's
  uint32_t grid[3], block[3];
  uint32_t static_shared, dynamic_shared, local, registers;
  uint32_t value;                              // of fills
  uint8_t copy_kind, src_kind, dst_kind, how;  // CUPTI's numbers; how: kernels are launched
};
static_assert(sizeof(ProfiledWork) == 96 && std::is_trivially_copyable_v<ProfiledWork>);

}  // namespace pyft

#endif  // PYFT_API_PROFILE_RECORDS_H_
