#include "transport/frame.h"

#include <cstddef>
#include <sstream>

namespace flexccl {
namespace {

const char* name(Collective collective) {
  constexpr const char* kNames[] = {"nothing",       "ncclAllReduce", "ncclReduceScatter",
                                    "ncclReduce",    "ncclAllGather", "ncclBroadcast",
                                    "ncclAlltoAll",  "ncclGather",    "ncclScatter",
                                    "ncclSend/Recv", "ncclCommSplit"};
  const auto index = static_cast<std::size_t>(collective);
  return index < std::size(kNames) ? kNames[index] : "an unknown call";
}

const char* dtype_name(std::uint8_t dtype) {
  constexpr const char* kNames[] = {"ncclInt8",     "ncclUint8",      "ncclInt32",
                                    "ncclUint32",   "ncclInt64",      "ncclUint64",
                                    "ncclFloat16",  "ncclFloat32",    "ncclFloat64",
                                    "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
  return dtype < std::size(kNames) ? kNames[dtype] : "unknown";
}

const char* redop_name(std::uint8_t redop) {
  constexpr const char* kNames[] = {"ncclSum", "ncclProd", "ncclMax", "ncclMin", "ncclAvg"};
  if (redop == kPreMulSum) return "PreMulSum";
  return redop < std::size(kNames) ? kNames[redop] : "unknown";
}

}  // namespace

std::uint64_t frame_mac(const Key& key, const FrameHeader& header) {
  return keyed_hash64(key, bytes_of(header).first(offsetof(FrameHeader, mac)));
}

std::string describe(const OpDescriptor& op) {
  std::ostringstream text;
  text << name(op.collective) << "(count [" << op.count << "], datatype [" << dtype_name(op.dtype)
       << "]";
  if (op.redop != kNoRedop) text << ", op [" << redop_name(op.redop) << "]";
  if (op.root >= 0) text << ", root [" << op.root << "]";
  text << ")";
  return text.str();
}

}  // namespace flexccl
