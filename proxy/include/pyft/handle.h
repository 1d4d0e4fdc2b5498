// Handles the client mints for everything that is not a device address: kind, index, generation,
// one space for runtime and driver API. The server maps index -> object by array look-up.
#ifndef PYFT_HANDLE_H_
#define PYFT_HANDLE_H_

#include <cstdint>

namespace pyft {

enum class HandleKind : uint8_t {
  kNone = 0,
  kStream = 1,
  kEvent = 2,
  kModule = 3,
  kKernel = 4,
  kCublas = 5,
  kGraph = 6,
  kGraphExec = 7,
  kContext = 8,
  kMemPool = 9,
  kCommunicator = 10,
  kPhysicalMemory = 11,
  kGraphNode = 12,  // the client's only: index = place + 1, generation = index of the graph
  kLibraryObject = 15,
};

// Bit layout: kind 56..63 | generation 32..55 | index 0..31. Index 0 is never used, so that the
// values 0, 1, 2 stay the null, legacy and per-thread streams and 0 a null handle.
struct Handle {
  uint64_t value = 0;
  static constexpr Handle make(HandleKind kind, uint32_t index, uint32_t generation) {
    return {uint64_t{static_cast<uint8_t>(kind)} << 56 | uint64_t{generation & 0xffffff} << 32 |
            index};
  }
  constexpr HandleKind kind() const { return static_cast<HandleKind>(value >> 56); }
  constexpr uint32_t index() const { return static_cast<uint32_t>(value); }
  constexpr uint32_t generation() const { return static_cast<uint32_t>(value >> 32) & 0xffffff; }
  constexpr bool operator==(const Handle&) const = default;
};
static_assert(sizeof(Handle) == 8);

// So many objects of a kind may live at once, index 0 left out; of kinds that have a completion
// word for each index there are as many as words (ring/layout.h).
inline constexpr uint32_t kMaxObjects = uint32_t{1} << 20;
inline constexpr uint32_t kMaxGeneration = 0xffffff;

// Objects of the libraries beside CUDA itself (plans, descriptors, generators): kind 56..63 |
// ObjectType 48..55 | number, never used twice. They have no slot in a table: programs make and end
// them by the million.
struct ObjectId {
  uint64_t value = 0;
  static constexpr ObjectId make(uint8_t type, uint64_t number) {
    return {uint64_t{static_cast<uint8_t>(HandleKind::kLibraryObject)} << 56 |
            uint64_t{type} << 48 | (number & 0xffffffffffff)};
  }
  constexpr HandleKind kind() const { return static_cast<HandleKind>(value >> 56); }
  constexpr uint8_t type_number() const { return static_cast<uint8_t>(value >> 48); }
  constexpr uint64_t number() const { return value & 0xffffffffffff; }
};

}  // namespace pyft

#endif  // PYFT_HANDLE_H_
