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
struct LtMatmulDesc {
  static constexpr uint32_t kMaxAttributes = 14;
  uint32_t compute_type = 0, scale_type = 0, count = 0, magic = 0;
  struct Attribute {
    uint32_t id, bytes;
    uint64_t value;
  } attributes[kMaxAttributes] = {};
  uint64_t spare[2] = {};
};
static_assert(sizeof(LtMatmulDesc) == 256);

struct LtLayout {
  uint32_t magic = 0, type = 0;
  uint64_t rows = 0, cols = 0;
  int64_t ld = 0, batch_stride = 0, plane_offset = 0;
  int32_t order = 0, batch_count = 1;
  uint32_t batch_mode = 0, reserved = 0;
};
static_assert(sizeof(LtLayout) == 64);

struct LtPreference {
  uint32_t magic = 0, search_mode = 0;
  uint64_t workspace_bytes = 0;
  uint32_t reduction_mask = 0xffffffff;
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
