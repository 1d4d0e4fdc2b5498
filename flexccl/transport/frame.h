// What every frame on a link starts with: one block of 64 bytes, then the payload, padded to whole
// blocks. Each frame names its operation in full, so that ranks which disagree find out at the
// first frame instead of waiting for ever.
#ifndef FLEXCCL_TRANSPORT_FRAME_H_
#define FLEXCCL_TRANSPORT_FRAME_H_

#include <cstdint>
#include <string>

#include "base/key.h"
#include "flexccl.h"

namespace flexccl {

enum class Collective : std::uint8_t {
  kNone,
  kAllReduce,
  kReduceScatter,
  kReduce,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kGather,
  kScatter,
  kSendRecv,
  kSplit,
};

// `redop` is kNoRedop where nothing is reduced and kPreMulSum for all operators made by
// ncclRedOpCreatePreMulSum: their factors may differ from rank to rank.
inline constexpr std::uint8_t kNoRedop = 255, kPreMulSum = 254;

struct OpDescriptor {
  Collective collective = Collective::kNone;
  std::uint8_t dtype = 0;
  std::uint8_t redop = kNoRedop;
  std::uint8_t padding = 0;
  std::int32_t root = -1;
  std::uint64_t count = 0;
  bool operator==(const OpDescriptor&) const = default;
};

struct FrameHeader {
  std::uint32_t magic, epoch;
  std::uint64_t comm;
  std::uint64_t sequence;  // of the collective in its communicator
  std::uint64_t bytes;     // of payload, without padding
  OpDescriptor op;
  std::uint32_t source;
  std::uint32_t index;  // of the frame on its link
  std::uint64_t mac;    // keyed, over everything above
};
static_assert(sizeof(OpDescriptor) == 16 && sizeof(FrameHeader) == 64);

std::uint64_t frame_mac(const Key& key, const FrameHeader& header);
// As a call: `ncclAllReduce(count [3], datatype [ncclFloat32], op [ncclSum])`.
std::string describe(const OpDescriptor& op);

}  // namespace flexccl

#endif  // FLEXCCL_TRANSPORT_FRAME_H_
