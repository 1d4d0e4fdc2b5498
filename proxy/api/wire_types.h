// Structs inside commands and replies, shared by client and server. Same rules as ring/layout.h:
// fixed widths, no pointers, no padding.
#ifndef PYFT_API_WIRE_TYPES_H_
#define PYFT_API_WIRE_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace pyft {

// alpha or beta of a BLAS call: the bytes of the host scalar, or in device pointer mode the address
// in `low`.
struct Scalar {
  uint64_t low = 0, high = 0;
};

// In the place of the size of a host array: the program passed a null pointer.
inline constexpr uint32_t kNoArray = 0xffffffff;

// State of a cuBLAS handle, kept by the client and carried by every command; the server applies
// what differs (cublasSetStream resets the workspace, so order matters there).
struct BlasState {
  uint64_t handle = 0;
  uint64_t stream = 0;
  uint64_t workspace = 0, workspace_bytes = 0;  // 0: the library's own
  uint32_t math_mode = 0, pointer_mode = 0, atomics_mode = 0, sm_target = 0;
};
static_assert(sizeof(BlasState) == 48);

// Reply to cuModuleGetFunction: what the client needs to pack parameters and check launches.
struct KernelInfo {
  static constexpr uint32_t kAttributes = 16;  // CUfunction_attribute 0..15
  static constexpr uint32_t kMaxParams = 470;
  int32_t attributes[kAttributes] = {};
  uint32_t param_bytes = 0;  // end of the last parameter
  uint32_t param_count = 0;
  struct Param {
    uint16_t offset, bytes;
  } params[kMaxParams] = {};
};
static_assert(offsetof(KernelInfo, params) == 72 && sizeof(KernelInfo) <= 1984);

// Bytes of an element of NCCL's data types, by ncclDataType_t.
inline constexpr uint8_t kNcclElementBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

enum LaunchFlags : uint32_t { kLaunchCooperative = 1 };

// cuBLASLt descriptors. The client's Create/Init/SetAttribute write these; a command carries them
// whole. They have the sizes of the vendor's opaque structs because the Init variants write into
// storage of the caller.
// Each attribute has a place of its own (lt_attribute()), so that equal descriptors have equal
// bytes in whatever order they were made.
struct LtMatmulDesc {
  uint32_t compute_type = 0, scale_type = 0, magic = 0, reserved = 0;
  uint64_t given = 0;  // a bit for each attribute that was set, by its number
  std::byte values[232] = {};
};
static_assert(sizeof(LtMatmulDesc) == 256);

struct LtAttribute {
  uint32_t bytes = 0, offset = 0;  // in LtMatmulDesc::values; 0 bytes: there is no such attribute
};

// Sizes as cuBLAS 13.1's library itself tells and demands them, by the numbers of cublasLt.h.
constexpr LtAttribute lt_attribute(uint32_t id) {
  constexpr uint8_t kEight[] = {8, 10, 11, 12, 13, 14, 17, 18, 19, 20, 21, 23, 24, 36, 38};
  constexpr uint8_t kFour[] = {2, 3, 4, 5, 6, 7, 15, 16, 22, 26, 31, 32, 33, 34, 35, 37};
  constexpr uint32_t kFastAccumulation = 25;
  uint32_t offset = 0;
  for (const uint8_t one : kEight) {
    if (one == id) return {8, offset};
    offset += 8;
  }
  for (const uint8_t one : kFour) {
    if (one == id) return {4, offset};
    offset += 4;
  }
  static_assert(8 * sizeof kEight + 4 * sizeof kFour < sizeof LtMatmulDesc::values);
  return id == kFastAccumulation ? LtAttribute{1, offset} : LtAttribute{};
}

struct LtLayout {
  uint32_t magic = 0, type = 0;
  uint64_t rows = 0, cols = 0;
  int64_t ld = 0, batch_stride = 0, plane_offset = 0;
  int32_t order = 0, batch_count = 1;
  uint32_t batch_mode = 0, reserved = 0;
};
static_assert(sizeof(LtLayout) == 64);

inline constexpr int kLtLayoutBatchMode = 8;  // an attribute that older headers do not name

struct LtPreference {
  uint32_t magic = 0, search_mode = 0;
  uint64_t workspace_bytes = 0;
  uint32_t reduction_mask = 0x7;  // CUBLASLT_REDUCTION_SCHEME_MASK
  uint32_t alignment[4] = {256, 256, 256, 256};
  uint32_t max_waves_bits = 0;  // a float
  uint64_t impl_mask = ~uint64_t{0};
  uint64_t spare[2] = {};
};
static_assert(sizeof(LtPreference) == 64);

// Follows the command struct of cublasLtMatmul and cublasLtMatmulAlgoGetHeuristic.
struct LtProblem {
  LtMatmulDesc desc;
  LtLayout a, b, c, d;
  LtPreference preference;  // heuristic only
  uint64_t algo[8] = {};    // matmul only: cublasLtMatmulAlgo_t, opaque
};
static_assert(sizeof(LtProblem) == 640 && std::is_trivially_copyable_v<LtProblem>);

// Of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col; what an encoding does not have is 0.
struct TensorMapArguments {
  static constexpr uint32_t kMaxRank = 5;
  uint64_t address = 0, sizes[kMaxRank] = {}, strides[kMaxRank] = {};
  uint32_t type = 0, rank = 0;
  uint32_t box[kMaxRank] = {}, upper[kMaxRank] = {};  // im2col: lower corner and upper corner
  uint32_t element_strides[kMaxRank] = {};
  uint32_t channels = 0, pixels = 0;
  uint32_t modes[4] = {};  // interleave, swizzle, promotion to L2, fill out of bounds
  uint32_t reserved = 0;
};
static_assert(sizeof(TensorMapArguments) == 184 &&
              std::has_unique_object_representations_v<TensorMapArguments>);

}  // namespace pyft

#endif  // PYFT_API_WIRE_TYPES_H_
