// Element-wise arithmetic of the reductions, rounded to the element type at every step, as NCCL
// does.
#ifndef FLEXCCL_REDUCE_REDUCE_H_
#define FLEXCCL_REDUCE_REDUCE_H_

#include <cstddef>
#include <cstdint>

#include "flexccl.h"

namespace flexccl {

enum class Combine : std::uint8_t { kSum, kProd, kMin, kMax };

struct Reduction {
  ncclDataType_t dtype = ncclInt8;
  Combine combine = Combine::kSum;
  bool premultiplies = false;      // every rank's input is multiplied by `scalar` first
  std::uint64_t scalar = 0;        // one element of `dtype`, in the low bytes
  std::uint64_t post_divisor = 1;  // integers' average: the finished sum is divided
};

// 0 for a value that is not a data type.
std::size_t element_size(ncclDataType_t dtype);

// ncclAvg over `nranks`: floats are multiplied by 1/nranks beforehand, integer sums divided after.
Reduction average(ncclDataType_t dtype, int nranks);

// out = received (+) own, where `own` is an input and is premultiplied if the reduction says so.
// `out` may be either operand. Nothing needs to be aligned.
void combine(const Reduction& reduction, const std::byte* received, const std::byte* own,
             std::byte* out, std::size_t count);
void premultiply(const Reduction& reduction, const std::byte* in, std::byte* out,
                 std::size_t count);
// The last step on a complete result: division of integer averages.
void finish(const Reduction& reduction, std::byte* data, std::size_t count);

}  // namespace flexccl

#endif  // FLEXCCL_REDUCE_REDUCE_H_
