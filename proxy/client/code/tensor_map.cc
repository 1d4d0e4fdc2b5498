// Tensor maps. The server encodes one once for each set of arguments (H3), since some
// kernels need several for each launch; a map is bytes, and travels in the arguments of kernels.
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

#include "api/commands.h"
#include "client/device/device.h"
#include "client/process/process.h"

namespace pyft::client {
namespace {

constexpr size_t kMostMaps = 1 << 14;  // 3 MB; then it begins anew

struct Maps {
  std::mutex mutex;
  std::unordered_map<std::string, CUtensorMap> known;  // by device and arguments
};

// Never destroyed: threads may launch kernels while the process exits.
Maps& maps() {
  static auto* const all = new Maps;
  return *all;
}

template <class To, class From>
void copy_numbers(const From* from, size_t count, To* to) {
  static_assert(sizeof(To) == sizeof(From));
  std::memcpy(to, from, count * sizeof(To));
}

// What both ways to encode have in common. False: what no driver accepts.
bool gather(const CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, const void* address,
            const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* element_strides,
            TensorMapArguments* out) {
  if (!map || reinterpret_cast<uintptr_t>(map) % 64 || rank < 1 ||
      rank > TensorMapArguments::kMaxRank || !sizes || (!strides && rank > 1) || !element_strides)
    return false;
  out->type = static_cast<uint32_t>(type);
  out->rank = rank;
  out->address = reinterpret_cast<uint64_t>(address);
  copy_numbers(sizes, rank, out->sizes);
  if (rank > 1) copy_numbers(strides, rank - 1, out->strides);
  copy_numbers(element_strides, rank, out->element_strides);
  return true;
}

CUresult encode(Call id, const TensorMapArguments& arguments, CUtensorMap* map) {
  cudaError_t error = cudaSuccess;
  Device* const device = attached(&error);
  if (!device) return static_cast<CUresult>(error);
  std::string key(reinterpret_cast<const char*>(&arguments), sizeof arguments);
  key += std::to_string(device->ordinal()) + ":" + std::to_string(static_cast<int>(id));
  {
    const std::lock_guard lock(maps().mutex);
    if (const auto found = maps().known.find(key); found != maps().known.end()) {
      *map = found->second;
      return CUDA_SUCCESS;
    }
  }
  Reply reply;
  const cmd::cuTensorMapEncodeTiled body{};
  error = device->call(static_cast<uint16_t>(id), bytes_of(body), &reply, bytes_of(arguments));
  if (error == cudaSuccess) error = static_cast<cudaError_t>(reply.code);
  if (error != cudaSuccess || reply.data.size() != sizeof *map)
    return error != cudaSuccess ? static_cast<CUresult>(error) : CUDA_ERROR_UNKNOWN;
  std::memcpy(map, reply.data.data(), sizeof *map);
  const std::lock_guard lock(maps().mutex);
  if (maps().known.size() >= kMostMaps) maps().known.clear();
  maps().known.emplace(std::move(key), *map);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace pyft::client

using namespace pyft;          // NOLINT
using namespace pyft::client;  // NOLINT: exported functions live outside namespaces

PYFT_API CUresult cuTensorMapEncodeTiled(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
    const cuuint32_t* boxDim, const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill) {
  const Entered entered(Api::cuTensorMapEncodeTiled);
  TensorMapArguments arguments;
  if (!boxDim || !gather(tensorMap, tensorDataType, tensorRank, globalAddress, globalDim,
                         globalStrides, elementStrides, &arguments))
    return CUDA_ERROR_INVALID_VALUE;
  copy_numbers(boxDim, tensorRank, arguments.box);
  arguments.modes[0] = interleave, arguments.modes[1] = swizzle;
  arguments.modes[2] = l2Promotion, arguments.modes[3] = oobFill;
  return encode(Call::cuTensorMapEncodeTiled, arguments, tensorMap);
}

PYFT_API CUresult cuTensorMapEncodeIm2col(
    CUtensorMap* tensorMap, CUtensorMapDataType tensorDataType, cuuint32_t tensorRank,
    void* globalAddress, const cuuint64_t* globalDim, const cuuint64_t* globalStrides,
    const int* pixelBoxLowerCorner, const int* pixelBoxUpperCorner, cuuint32_t channelsPerPixel,
    cuuint32_t pixelsPerColumn, const cuuint32_t* elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill) {
  const Entered entered(Api::cuTensorMapEncodeIm2col);
  TensorMapArguments arguments;
  if (tensorRank < 3 || !pixelBoxLowerCorner || !pixelBoxUpperCorner ||
      !gather(tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
              elementStrides, &arguments))
    return CUDA_ERROR_INVALID_VALUE;
  copy_numbers(pixelBoxLowerCorner, tensorRank - 2, arguments.box);
  copy_numbers(pixelBoxUpperCorner, tensorRank - 2, arguments.upper);
  arguments.channels = channelsPerPixel, arguments.pixels = pixelsPerColumn;
  arguments.modes[0] = interleave, arguments.modes[1] = swizzle;
  arguments.modes[2] = l2Promotion, arguments.modes[3] = oobFill;
  return encode(Call::cuTensorMapEncodeIm2col, arguments, tensorMap);
}
