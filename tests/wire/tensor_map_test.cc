// Tensor maps: every argument reaches the driver, once for each set of arguments.
#include <cstring>
#include <vector>

#include "api/mock_table.h"
#include "check.h"
#include "one_process.h"
#include "ring/layout.h"

namespace {

using namespace pyft;  // NOLINT: a test

int encoded = 0;

// Bytes in the place of a map: all that was passed.
void put(CUtensorMap* map, const std::vector<uint64_t>& values) {
  CHECK(values.size() <= CU_TENSOR_MAP_NUM_QWORDS);
  std::copy(values.begin(), values.end(), map->opaque);
  ++encoded;
}

CUresult tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
               const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
               const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
               CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
               CUtensorMapFloatOOBfill fill) {
  if (rank == 5) return CUDA_ERROR_INVALID_VALUE;
  put(map, {uint64_t{type}, rank, reinterpret_cast<uint64_t>(address), sizes[0], sizes[1],
            strides[0], box[0], box[1], element_strides[0], element_strides[1],
            uint64_t{interleave}, uint64_t{swizzle}, uint64_t{l2}, uint64_t{fill}});
  return CUDA_SUCCESS;
}

CUresult im2col(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* address,
                const cuuint64_t* sizes, const cuuint64_t*, const int* lower, const int* upper,
                cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* element_strides,
                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                CUtensorMapFloatOOBfill) {
  put(map, {rank, reinterpret_cast<uint64_t>(address), sizes[2], static_cast<uint64_t>(lower[0]),
            static_cast<uint64_t>(upper[0]), channels, pixels, element_strides[2]});
  return CUDA_SUCCESS;
}

backend::Table& table() {
  static backend::Table mocked = [] {
    backend::Table t = backend::mock_table();
    t.cuTensorMapEncodeTiled = tiled;
    t.cuTensorMapEncodeIm2col = im2col;
    return t;
  }();
  return mocked;
}

OneProcess& process() {
  static auto* const made = new OneProcess(&table());
  return *made;
}

void* const kTensor = reinterpret_cast<void*>(pyft::ring::kDeviceWindowBase + 0x1000);
constexpr cuuint64_t kSizes[5] = {64, 32, 16, 8, 4}, kStrides[4] = {128, 4096, 65536, 524288};
constexpr cuuint32_t kBox[5] = {16, 8, 1, 1, 1}, kOnes[5] = {1, 2, 3, 1, 1};

CUresult encode(CUtensorMap* map, void* address, cuuint32_t rank = 2) {
  return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank, address, kSizes,
                                kStrides, kBox, kOnes, CU_TENSOR_MAP_INTERLEAVE_16B,
                                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);
}

TEST(a_tiled_map_is_encoded_once_for_its_arguments) {
  process();
  encoded = 0;
  CUtensorMap first{}, again{}, other{};
  CHECK_EQ(encode(&first, kTensor), CUDA_SUCCESS);
  const uint64_t wanted[] = {CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                             2,
                             pyft::ring::kDeviceWindowBase + 0x1000,
                             64,
                             32,
                             128,
                             16,
                             8,
                             1,
                             2,
                             CU_TENSOR_MAP_INTERLEAVE_16B,
                             CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA};
  CHECK(std::equal(std::begin(wanted), std::end(wanted), first.opaque));
  CHECK_EQ(encode(&again, kTensor), CUDA_SUCCESS);
  CHECK_EQ(encoded, 1);
  CHECK(!std::memcmp(&first, &again, sizeof first));
  CHECK_EQ(encode(&other, static_cast<char*>(kTensor) + 512), CUDA_SUCCESS);
  CHECK_EQ(encoded, 2);
  CHECK_EQ(other.opaque[2], pyft::ring::kDeviceWindowBase + 0x1200);
}

TEST(an_im2col_map_has_corners) {
  process();
  encoded = 0;
  CUtensorMap map{};
  const int lower[] = {-1}, upper[] = {-2};
  const auto encode_it = [&](cuuint32_t rank) {
    return cuTensorMapEncodeIm2col(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, kTensor, kSizes, kStrides, lower, upper, 32,
        64, kOnes, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CHECK_EQ(encode_it(3), CUDA_SUCCESS);
  const uint64_t wanted[] = {
      3, pyft::ring::kDeviceWindowBase + 0x1000, 16, uint64_t(-1), uint64_t(-2), 32, 64, 3};
  CHECK(std::equal(std::begin(wanted), std::end(wanted), map.opaque));
  CHECK_EQ(encode_it(2), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(encoded, 1);
}

TEST(what_the_driver_refuses_is_asked_again) {
  process();
  CUtensorMap map{};
  for (int i = 0; i < 2; ++i) CHECK_EQ(encode(&map, kTensor, 5), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(encode(nullptr, kTensor), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(encode(&map, kTensor, 6), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(encode(&map, kTensor, 0), CUDA_ERROR_INVALID_VALUE);
  const auto odd = reinterpret_cast<CUtensorMap*>(reinterpret_cast<char*>(&map) + 8);
  CHECK_EQ(encode(odd, kTensor), CUDA_ERROR_INVALID_VALUE);
}

TEST(a_backend_without_tensor_maps_says_so) {
  process();
  table().cuTensorMapEncodeTiled = nullptr;
  CUtensorMap map{};
  CHECK_EQ(encode(&map, static_cast<char*>(kTensor) + 1024), CUDA_ERROR_NOT_SUPPORTED);
  table().cuTensorMapEncodeTiled = tiled;
}

TEST(hostile_tensor_maps_end_the_server_with_a_sentence) {
  struct Entry {
    cmd::cuTensorMapEncodeTiled command{};
    TensorMapArguments arguments{};
  } entry;
  entry.arguments.rank = 6;
  CHECK_EQ(process().refused(Call::cuTensorMapEncodeTiled, entry), "a tensor map of rank [6]");
  CHECK(!process().refused(Call::cuTensorMapEncodeTiled, entry.command).empty());
}

}  // namespace

CHECK_MAIN
